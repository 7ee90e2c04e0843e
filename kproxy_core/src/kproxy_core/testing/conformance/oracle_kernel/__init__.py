"""The oracle against the kernel: generated clusters, real packets, and a second opinion on what must become of each."""
