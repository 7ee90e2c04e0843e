"""The sets and maps of a table: one of each, however many Services there are.

Keys and data are nft's types where it has them, so that ``nft list table`` shows addresses and ports; ids, slots and actions
are of type mark, which is how they travel through rules.
"""

from collections.abc import Iterator
from typing import Final

from attrs import evolve

from kproxy_core.model.addresses import Family
from kproxy_core.wire.nfnetlink import Family as NetlinkFamily
from kproxy_core.wire.nft_constants import DataType, SetFlag, concatenated
from kproxy_core.wire.nft_objects import Set
from kproxy_nftables.objects import FAMILY_NAMES, TABLE, Key

SERVICES: Final = "services"
ACTIONS: Final = "actions"
OUTSIDE_ACTIONS: Final = "outside-actions"
NODE_PORT_SERVICES: Final = "node-port-services"
NODE_PORT_ACTIONS: Final = "node-port-actions"
OUTSIDE_NODE_PORT_ACTIONS: Final = "outside-node-port-actions"
DISPATCH: Final = "dispatch"
NODE_PORT_DISPATCH: Final = "node-port-dispatch"
ENDPOINTS: Final = "endpoints"
LOCAL_ENDPOINTS: Final = "local-endpoints"
STICKY_SLOTS: Final = "sticky-slots"
LOCAL_STICKY_SLOTS: Final = "local-sticky-slots"
STICKY_ENDPOINTS: Final = "sticky-endpoints"
LOCAL_STICKY_ENDPOINTS: Final = "local-sticky-endpoints"
AFFINITY: Final = "affinity"
SOURCE_RANGES: Final = "source-ranges"
CLUSTER_IPS: Final = "cluster-ips"
HAIRPIN: Final = "hairpin"
NODE_PORT_IPS: Final = "node-port-ips"

AFFINITY_SIZE: Final = 1 << 20
"""Clients remembered at most, over all Services; dynamic sets would default to 65,535. Beyond it new clients are not sticky."""

NUMBERED: Final = frozenset(
    {ENDPOINTS, LOCAL_ENDPOINTS, STICKY_SLOTS, LOCAL_STICKY_SLOTS, STICKY_ENDPOINTS, LOCAL_STICKY_ENDPOINTS}
)
"""Their elements' keys are the id of the Service port and a number under it."""

KEYED_BY_ID: Final = NUMBERED | {SOURCE_RANGES}
"""Their elements' keys begin with the id of the Service port."""

KEYED_BY_FRONTEND: Final = {
    ACTIONS: SERVICES,
    OUTSIDE_ACTIONS: SERVICES,
    NODE_PORT_ACTIONS: NODE_PORT_SERVICES,
    OUTSIDE_NODE_PORT_ACTIONS: NODE_PORT_SERVICES,
}
"""Their elements' keys are frontends; the id is found under the same key in the map named here."""


def shapes(family: Family) -> dict[Key, Set]:
    """Return every set and map of one family's table."""
    return {(f"{FAMILY_NAMES[family]} set", shape.name): shape for shape in _sets(family)}


def _sets(family: Family) -> Iterator[Set]:
    ip = DataType.IPV4_ADDR if family is Family.IPV4 else DataType.IPV6_ADDR
    mark = DataType.MARK
    size = family.bits // 8

    def plain(name: str, *types: DataType) -> Set:
        lengths = {ip: size}
        length = sum(lengths.get(kind, 4) for kind in types)
        return Set(family=NetlinkFamily(family), table=TABLE, name=name, key_type=concatenated(*types), key_length=length)

    def to(target: Set, *types: DataType) -> Set:
        length = sum(size if kind is ip else 4 for kind in types)
        return evolve(target, data_type=concatenated(*types), data_length=length, flags=SetFlag.MAP)

    def to_verdict(name: str) -> Set:
        return evolve(plain(name, mark), data_type=int(DataType.VERDICT), data_length=16, flags=SetFlag.MAP)

    for name in (SERVICES, ACTIONS, OUTSIDE_ACTIONS):
        yield to(plain(name, ip, DataType.INET_PROTOCOL, DataType.INET_SERVICE), mark)
    for name in (NODE_PORT_SERVICES, NODE_PORT_ACTIONS, OUTSIDE_NODE_PORT_ACTIONS):
        yield to(plain(name, DataType.INET_PROTOCOL, DataType.INET_SERVICE), mark)
    for name in (DISPATCH, NODE_PORT_DISPATCH):
        yield to_verdict(name)
    for name in (ENDPOINTS, LOCAL_ENDPOINTS, STICKY_ENDPOINTS, LOCAL_STICKY_ENDPOINTS):
        yield to(plain(name, mark, mark), ip, DataType.INET_SERVICE)
    for name in (STICKY_SLOTS, LOCAL_STICKY_SLOTS):
        yield to(plain(name, mark, mark), mark)
    dynamic = SetFlag.MAP | SetFlag.TIMEOUT | SetFlag.EVAL
    yield evolve(to(plain(AFFINITY, mark, ip), mark), flags=dynamic, size=AFFINITY_SIZE)
    yield evolve(plain(SOURCE_RANGES, mark, ip), flags=SetFlag.INTERVAL | SetFlag.CONCAT, field_lengths=(4, size))
    yield plain(CLUSTER_IPS, ip)
    yield plain(HAIRPIN, ip, ip)
    yield plain(NODE_PORT_IPS, ip)
