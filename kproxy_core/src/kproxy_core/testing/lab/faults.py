"""What can go wrong with a lab: it cannot be built, or it can be built without something."""

import enum

from attrs import frozen


class LabError(Exception):
    """The lab cannot be built or used here; the message says why and what would help."""


class LabCapability(enum.Enum):
    """What a lab may have to do without; the value is the sentence shown to people."""

    IPV6 = "speaks IPv6"
    SYSCTLS = "sets kernel parameters in its namespaces (forwarding among them)"
    BRIDGE_NETFILTER = "passes bridged packets to iptables and nftables rules of the IP families"
    ICMP_UNLIMITED = "sends every ICMP error, none suppressed by rate limits"
    NAMES = "has names under /run/netns"
    SYSFS = "shows its own interfaces under /sys"


@frozen(kw_only=True)
class Missing:
    """Something this lab has to do without, why, and what would mend it."""

    capability: LabCapability
    reason: str
    remedy: str
