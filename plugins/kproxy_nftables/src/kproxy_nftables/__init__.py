"""The nftables mode of kproxy."""
