"""The iptables mode of kproxy."""
