"""What everything is drawn from: few values, so that they collide, each a trap of its own."""

from typing import Any

from hypothesis import strategies as st

from kproxy_core.model.addresses import Address, Network, parse_address, parse_network
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import ServiceType


def addresses(*texts: str) -> tuple[Address, ...]:
    """Parse addresses."""
    return tuple(map(parse_address, texts))


def networks(*texts: str) -> tuple[Network, ...]:
    """Parse networks."""
    return tuple(map(parse_network, texts))


# The pools. Hypothesis shrinks towards the first entry of each; an entry listed twice is drawn more often.
NODE_NAME = "n1"
API_SERVER = ObjectName("default", "kubernetes")
SERVICE_NAMES = (ObjectName("shop", "a"), ObjectName("shop", "b"), ObjectName("default", "c"), API_SERVER)
CLUSTER_IPS = (
    addresses("10.96.0.10", "10.96.0.11", "10.96.0.12", "10.96.0.10", "10.96.0.11", "192.0.2.9", "192.0.2.2"),
    addresses("fd00:96::10", "fd00:96::11", "fd00:96::10", "2001:db8::9"),
)
UNALLOCATED = addresses("10.96.0.99", "fd00:96::99", "203.0.113.9")
INTERFACE_ADDRESSES = addresses("192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "127.0.0.1", "::1", "fe80::1")
NODE_OBJECT_ADDRESSES = addresses("192.0.2.1", "2001:db8::1", "192.0.2.2", "203.0.113.1")
INTERNAL_ADDRESSES = (
    addresses("192.0.2.1", "2001:db8::1"),
    addresses("192.0.2.1"),
    addresses("2001:db8::1", "192.0.2.2", "192.0.2.1"),
    addresses("192.0.2.1", "2001:db8::1", "192.0.2.2"),
    (),
)
POD_ADDRESSES = addresses("10.244.1.1", "10.244.1.2", "10.244.2.1", "fd00:244:1::1", "fd00:244:1::2", "fd00:244:2::1")
OUTSIDE_ADDRESSES = addresses("198.51.100.1", "198.51.101.1", "2001:db8:c::1", "2001:db8:d::1")
API_SERVER_ADDRESSES = addresses("192.0.2.9", "192.0.2.1", "2001:db8::9")
IMPOSSIBLE_ADDRESSES = addresses("127.0.0.1", "169.254.1.1", "224.0.0.1", "0.0.0.0", "::1", "fe80::1", "ff02::1", "::")
EXTERNAL_ADDRESSES = (
    *addresses("203.0.113.10", "203.0.113.11", "2001:db8:e::10", "203.0.113.10", "2001:db8:e::10"),
    *addresses("192.0.2.1", "192.0.2.2", "192.0.2.9", "203.0.113.1", "2001:db8::1", "2001:db8::9", "10.96.0.10", "fd00:96::10"),
    *IMPOSSIBLE_ADDRESSES,
)
# Where and at what a Service cuts something off: the node's SSH, an API server.
RISKY_ADDRESSES = (*INTERFACE_ADDRESSES[:3], *API_SERVER_ADDRESSES, NODE_OBJECT_ADDRESSES[-1])
RISKY_PORTS = (22, 6443, 6443, 80)
POD_NETWORKS = networks("10.244.0.0/16", "fd00:244::/32")
NODE_POD_NETWORKS = networks("10.244.1.0/24", "fd00:244:1::/64")
SERVICE_NETWORKS = networks("10.96.0.0/24", "fd00:96::/112", "203.0.113.8/30")
SOURCE_RANGES = (
    *networks("198.51.100.0/24", "192.0.2.0/24", "10.244.1.0/24", "203.0.113.10/32", "0.0.0.0/0"),
    *networks("2001:db8:c::/48", "2001:db8::/64", "::/0"),
)
NODE_PORT_RANGES = networks("192.0.2.0/24", "192.0.2.2/32", "127.0.0.0/8", "2001:db8::/64", "::/0", "0.0.0.0/0")
PORTS = (80, 80, 443, 22, 6443, 10250, 30000)
NODE_PORTS = (30000, 30000, 30001, 22, 80, 6443)
ENDPOINT_PORTS = (8080, 8080, 8081, 6443)
PORT_NAMES = ("", "http", "dns")
PROTOCOLS = (Protocol.TCP, Protocol.TCP, Protocol.UDP, Protocol.SCTP)
NODE_NAMES = (NODE_NAME, "n2", NODE_NAME, "n2", "")
INTERFACES = ("veth1", "eth0", "br0", "")
BRIDGE = "br0"
PREFIX = "veth"
# What no verdict shows: affinity timeout, healthCheckNodePort, weights, scheduler.
UNSEEN: st.SearchStrategy[tuple[int | None, int, dict[str, int], str]] = st.sampled_from(
    [(None, 0, {}, ""), (10800, 0, {}, ""), (5, 32000, {"*": 2}, "wrr"), (None, 32001, {"10.244.1.1": 0}, "")]
)

# Ready, serving, terminating: all combinations, those that happen more often.
CONDITIONS = (
    *((True, True, False),) * 6,
    *((False, True, True),) * 3,
    *((False, True, False),) * 2,
    (False, False, True),
    (True, True, True),
    (True, False, False),
    (True, False, True),
    (False, False, False),
)
_EAST, _WEST, _BOTH, _ODD = (frozenset(zones) for zones in (["east"], ["west"], ["east", "west"], [""]))
_HERE, _THERE, _ANYWHERE = (frozenset(names) for names in ([NODE_NAME], ["n2"], [NODE_NAME, "n2"]))
_NONE: frozenset[str] = frozenset()
# Zone and node hints of an endpoint, by how those of its slice are given: not at all, by zone, by node and zone, as it comes.
HINTS = (
    ((_NONE, _NONE),),
    ((_EAST, _NONE), (_WEST, _NONE), (_BOTH, _NONE), (_ODD, _NONE)),
    ((_EAST, _HERE), (_WEST, _THERE), (_WEST, _HERE), (_EAST, _THERE), (_BOTH, _ANYWHERE), (_EAST, _ODD)),
    ((_NONE, _NONE), (_EAST, _NONE), (_WEST, _NONE), (_EAST, _HERE), (_NONE, _HERE), (_NONE, _THERE), (_WEST, _HERE)),
)
# What makes a Service one that is not to be served, or not in full.
ODDITIES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"type": ServiceType.EXTERNAL_NAME},
        {"proxy_name": "other"},
        {"proxy_name": ""},
        {"headless": True},
        {"cluster_ips": ()},
        {"ports": ()},
    ]
)
