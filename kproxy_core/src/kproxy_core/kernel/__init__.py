"""The sockets and files of the kernel's interfaces; only a plugin's dataplane.py and the edge import this."""
