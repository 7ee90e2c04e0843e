"""The sets of this mode: one of each for a family, however many Services there are, and one for each sticky endpoint."""

from typing import Final

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.names import Protocol
from kproxy_core.wire import nfnetlink
from kproxy_core.wire.ipset import IpSet
from kproxy_core.wire.ipset_keys import SetType, halves
from kproxy_iptables.objects import SET_PREFIXES, VERSIONS, Key, hashed

CLUSTER_IPS: Final = "CLUSTER-IPS"
"""Cluster addresses in use: who is masqueraded, and that other ports are refused, follows from them."""
HAIRPIN: Final = "HAIRPIN"
"""Endpoints that may be sent back to themselves, as address, port and address again."""
REJECT: Final = "REJECT"
"""Frontends to be refused."""
DROP: Final = "DROP"
"""Frontends to be dropped for whoever was not forwarded."""
SELF: Final = "SELF"
"""Frontends that are their own endpoints: such a translation changes nothing, and conntrack does not call it one."""
RESTRICTED: Final = "RESTRICTED"
"""Frontends that have source ranges."""
SOURCES: Final = "SOURCES"
"""Frontends with the ranges that may come there."""
NODE_PORT_SELF: Final = "NP-SELF"
"""The same for NodePorts, by the endpoint's address."""
NODE_PORT_REJECT: Final = "NP-REJECT"
NODE_PORT_DROP: Final = "NP-DROP"
"""NodePorts to be refused, and dropped: each with the lower and the upper half of all addresses."""

_TYPES: Final = {
    CLUSTER_IPS: SetType.HASH_IP,
    HAIRPIN: SetType.HASH_IP_PORT_IP,
    REJECT: SetType.HASH_IP_PORT,
    DROP: SetType.HASH_IP_PORT,
    SELF: SetType.HASH_IP_PORT,
    RESTRICTED: SetType.HASH_IP_PORT,
    SOURCES: SetType.HASH_IP_PORT_NET,
    NODE_PORT_SELF: SetType.HASH_IP_PORT,
    NODE_PORT_REJECT: SetType.HASH_NET_PORT,
    NODE_PORT_DROP: SetType.HASH_NET_PORT,
}

CLIENTS_AT_MOST: Final = 1 << 18
"""Sticky clients remembered for each endpoint at most; those beyond are forwarded, but not remembered."""
CLIENTS_IN_A_BUCKET: Final = 2
"""On average, of 12 at most; then the dataplane gives a set more buckets. The kernel does so for programs, but not for rules."""
_FIRST_BUCKETS: Final = 1024
"""Takes 8 KiB, and some 5,000 clients before one is not remembered."""
_ANY_TIMEOUT: Final = 10800
"""Of a set of clients; each entry has the timeout of its rule, which may change, as that of a set may not."""


def set_name(family: Family, word: str) -> str:
    """The name of a set."""
    return _NAMES[family, word]


_NAMES: Final = {(family, word): prefix + word for family, prefix in SET_PREFIXES.items() for word in _TYPES}


def place(family: Family) -> str:
    """The place of a family's sets."""
    return f"{VERSIONS[family]} set"


def definitions(family: Family) -> dict[Key, IpSet]:
    """Every set that is there once for a family."""
    return {
        (place(family), set_name(family, word)): IpSet(name=set_name(family, word), type=kind, family=nfnetlink.Family(family))
        for word, kind in _TYPES.items()
    }


def clients_of(family: Family, port: str, endpoint: str) -> IpSet:
    """The set of those clients of a sticky Service port that an endpoint has."""
    return IpSet(
        name=hashed(f"{SET_PREFIXES[family]}SEP-", f"{port} {endpoint}"),
        type=SetType.HASH_IP,
        family=nfnetlink.Family(family),
        timeout=_ANY_TIMEOUT,
        max_elements=CLIENTS_AT_MOST,
        hash_size=_FIRST_BUCKETS,
    )


def frontend_key(address: Address, protocol: Protocol, port: int) -> bytes:
    """The packed key of a frontend in a set of type hash:ip,port."""
    return address + bytes((protocol,)) + port.to_bytes(2, "big")


def source_key(frontend: bytes, network: Address, length: int) -> bytes:
    """The packed key of a range that may come to a frontend."""
    return frontend + network + bytes((length,))


def node_port_keys(family: Family, protocol: Protocol, port: int) -> tuple[bytes, ...]:
    """The packed keys of a NodePort, which no single network covers: a set takes no prefix of length 0."""
    end = bytes((protocol,)) + port.to_bytes(2, "big")
    return tuple(address + bytes((length,)) + end for address, length in halves(nfnetlink.Family(family)))
