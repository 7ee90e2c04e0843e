"""A mode of kproxy: Services as text for nft."""
