"""The iptables mode's side of the kernel: the only part of it that meets the world."""

from kproxy_iptables.dataplane.dataplane import IptablesDataplane
from kproxy_iptables.dataplane.node import probe

__all__ = ["IptablesDataplane", "probe"]
