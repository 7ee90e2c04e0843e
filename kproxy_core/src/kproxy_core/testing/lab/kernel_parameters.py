"""The kernel parameters that a lab sets in its namespaces, and what it means when one cannot be set."""

from kproxy_core.testing.lab.faults import LabCapability, Missing

EVERYWHERE = (
    ("net.ipv6.conf.all.disable_ipv6", "0"),
    ("net.ipv6.conf.default.disable_ipv6", "0"),
    ("net.ipv6.conf.all.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
    ("net.ipv4.tcp_tw_reuse", "1"),
    ("net.ipv4.icmp_ratemask", "0"),
    ("net.ipv6.icmp.ratemask", ""),
)
"""rp_filter is off since replies may take another way than requests here; ports in TIME_WAIT are reused, or a load would run out
of them; no type of ICMP message is limited, neither per destination nor over all (the IPv6 mask is there from Linux 5.1 on)."""

ON_NODES = (
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv6.conf.all.forwarding", "1"),
    ("net.bridge.bridge-nf-call-iptables", "1"),
    ("net.bridge.bridge-nf-call-ip6tables", "1"),
)

ON_OUTSIDE = (
    ("net.ipv4.ip_forward", "0"),
    ("net.bridge.bridge-nf-call-iptables", "0"),
    ("net.bridge.bridge-nf-call-ip6tables", "0"),
)


def unset(name: str, error: OSError) -> Missing | None:
    """What is missing when a parameter could not be set; None where it does not matter, as on a kernel without IPv6."""
    absent = isinstance(error, FileNotFoundError)
    if name.startswith("net.bridge."):
        remedy = "modprobe br_netfilter" if absent else "mount /proc/sys writable"
        return Missing(capability=LabCapability.BRIDGE_NETFILTER, reason=f"{name}: {error.strerror}", remedy=remedy)
    if absent:
        return None
    capability = LabCapability.ICMP_UNLIMITED if ".icmp" in name else LabCapability.SYSCTLS
    return Missing(capability=capability, reason=f"{name}: {error.strerror}", remedy="mount /proc/sys writable")
