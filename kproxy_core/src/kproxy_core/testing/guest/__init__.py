"""Guests: user-mode Linux (Debian's package user-mode-linux), for tests of what this machine's own kernel does not have.

A guest boots in two to three seconds, with this machine's files as its own: what it writes stays in its memory. Its kernel has
IPVS, dummy links, ipset and iptables-legacy; it has no nf_tables for IP, and one processor.
"""

from kproxy_core.testing.guest.request import GuestOutcome, GuestRequest
from kproxy_core.testing.guest.runner import Guest, GuestError, find_kernel, run

__all__ = ["Guest", "GuestError", "GuestOutcome", "GuestRequest", "find_kernel", "run"]
