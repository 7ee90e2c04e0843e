"""Hypothesis strategies for small, nasty clusters, for packets that meet them, and for the ways in which a watch tells of them.

Everything is drawn from small pools, so that collisions are frequent: two Services at one address, one endpoint in three slices,
an external address that is the node's, an endpoint that is the client. ``scenes()`` is the usual entry: a cluster, settings and a
node.
"""

import enum
import functools
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from attrs import evolve
from hypothesis import strategies as st

from kproxy_core.config.settings import DetectLocalMode, NodePortScope, Settings
from kproxy_core.model.addresses import Address, Family, Network, parse_address, parse_network
from kproxy_core.model.changes import Change, Deleted, Replaced, Upserted, WatchedObject
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import (
    EndpointSlice,
    LoadBalancerIngress,
    Node,
    Service,
    ServiceCIDR,
    ServicePortSpec,
    ServiceType,
    SliceEndpoint,
    SlicePort,
    TrafficPolicy,
)
from kproxy_core.model.packet import Packet
from kproxy_core.model.snapshot import ClusterSnapshot, Kind
from kproxy_core.testing.oracle import Scene, Site
from kproxy_core.testing.oracle.claims import claimant

T = TypeVar("T")


def _addresses(*texts: str) -> tuple[Address, ...]:
    return tuple(map(parse_address, texts))


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(map(parse_network, texts))


# The pools. Hypothesis shrinks towards the first entry of each; an entry listed twice is drawn more often.
NODE_NAME = "n1"
API_SERVER = ObjectName("default", "kubernetes")
SERVICE_NAMES = (ObjectName("shop", "a"), ObjectName("shop", "b"), ObjectName("default", "c"), API_SERVER)
CLUSTER_IPS = (
    _addresses("10.96.0.10", "10.96.0.11", "10.96.0.12", "10.96.0.10", "10.96.0.11", "192.0.2.9", "192.0.2.2"),
    _addresses("fd00:96::10", "fd00:96::11", "fd00:96::10", "2001:db8::9"),
)
UNALLOCATED = _addresses("10.96.0.99", "fd00:96::99", "203.0.113.9")
INTERFACE_ADDRESSES = _addresses("192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "127.0.0.1", "::1", "fe80::1")
NODE_OBJECT_ADDRESSES = _addresses("192.0.2.1", "2001:db8::1", "192.0.2.2", "203.0.113.1")
INTERNAL_ADDRESSES = (
    _addresses("192.0.2.1", "2001:db8::1"),
    _addresses("192.0.2.1"),
    _addresses("2001:db8::1", "192.0.2.2", "192.0.2.1"),
    _addresses("192.0.2.1", "2001:db8::1", "192.0.2.2"),
    (),
)
POD_ADDRESSES = _addresses("10.244.1.1", "10.244.1.2", "10.244.2.1", "fd00:244:1::1", "fd00:244:1::2", "fd00:244:2::1")
OUTSIDE_ADDRESSES = _addresses("198.51.100.1", "198.51.101.1", "2001:db8:c::1", "2001:db8:d::1")
API_SERVER_ADDRESSES = _addresses("192.0.2.9", "192.0.2.1", "2001:db8::9")
IMPOSSIBLE_ADDRESSES = _addresses("127.0.0.1", "169.254.1.1", "224.0.0.1", "0.0.0.0", "::1", "fe80::1", "ff02::1", "::")
EXTERNAL_ADDRESSES = (
    *_addresses("203.0.113.10", "203.0.113.11", "2001:db8:e::10", "203.0.113.10", "2001:db8:e::10"),
    *_addresses("192.0.2.1", "192.0.2.2", "192.0.2.9", "203.0.113.1", "2001:db8::1", "2001:db8::9", "10.96.0.10", "fd00:96::10"),
    *IMPOSSIBLE_ADDRESSES,
)
# Where and at what a Service cuts something off: the node's SSH, an API server.
RISKY_ADDRESSES = (*INTERFACE_ADDRESSES[:3], *API_SERVER_ADDRESSES, NODE_OBJECT_ADDRESSES[-1])
RISKY_PORTS = (22, 6443, 6443, 80)
POD_NETWORKS = _networks("10.244.0.0/16", "fd00:244::/32")
NODE_POD_NETWORKS = _networks("10.244.1.0/24", "fd00:244:1::/64")
SERVICE_NETWORKS = _networks("10.96.0.0/24", "fd00:96::/112", "203.0.113.8/30")
SOURCE_RANGES = (
    *_networks("198.51.100.0/24", "192.0.2.0/24", "10.244.1.0/24", "203.0.113.10/32", "0.0.0.0/0"),
    *_networks("2001:db8:c::/48", "2001:db8::/64", "::/0"),
)
NODE_PORT_RANGES = _networks("192.0.2.0/24", "192.0.2.2/32", "127.0.0.0/8", "2001:db8::/64", "::/0", "0.0.0.0/0")
PORTS = (80, 80, 443, 22, 6443, 10250, 30000)
NODE_PORTS = (30000, 30000, 30001, 22, 80, 6443)
ENDPOINT_PORTS = (8080, 8080, 8081, 6443)
PORT_NAMES = ("", "http", "dns")
PROTOCOLS = (Protocol.TCP, Protocol.TCP, Protocol.UDP, Protocol.SCTP)
NODE_NAMES = (NODE_NAME, "n2", NODE_NAME, "n2", "")
INTERFACES = ("veth1", "eth0", "br0", "")
BRIDGE, PREFIX = "br0", "veth"
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


@functools.cache
def pick(pool: tuple[T, ...] | type[enum.Enum]) -> st.SearchStrategy[T]:
    """One entry of a constant pool; cached, since making a strategy costs more than drawing from it."""
    return st.sampled_from(pool)


@functools.cache
def one_in(count: int) -> st.SearchStrategy[bool]:
    """True once in ``count`` times; shrinks to false."""
    return pick((*(False,) * (count - 1), True))


@functools.cache
def some(pool: tuple[T, ...], most: int) -> st.SearchStrategy[tuple[T, ...]]:
    """A few different entries of a pool, in any order."""
    return st.lists(pick(pool), max_size=most, unique=True).map(tuple)


@functools.cache
def service_ports(numbers: tuple[int, ...], node_ports: tuple[int, ...]) -> st.SearchStrategy[tuple[ServicePortSpec, ...]]:
    """Ports of a Service: one to three; names and protocols differ, numbers need not."""
    port = st.builds(
        ServicePortSpec,
        name=pick(PORT_NAMES),
        protocol=pick(PROTOCOLS),
        port=pick(numbers),
        node_port=pick((0, *node_ports)),
    )
    return st.lists(port, min_size=1, max_size=3, unique_by=lambda made: (made.name, made.protocol)).map(tuple)


@functools.cache
@st.composite
def cluster_ips(draw: st.DrawFn) -> tuple[Address, ...]:
    """The virtual addresses of a Service: of either family or both, in either order."""
    four, six = (draw(pick(pool)) for pool in CLUSTER_IPS)
    return draw(st.sampled_from([(four,), (four, six), (six, four), (six,)]))


@functools.cache
def ingresses(pool: tuple[Address, ...]) -> st.SearchStrategy[tuple[LoadBalancerIngress, ...]]:
    """Addresses of a load balancer, rarely with ``ipMode: Proxy``."""
    ingress = st.builds(LoadBalancerIngress, address=pick(pool), proxied=one_in(8))
    return st.lists(ingress, max_size=2).map(tuple)


@functools.cache
def source_ranges() -> st.SearchStrategy[tuple[Network, ...] | None]:
    """None is no filter, nothing is nobody, and ranges may be of one family or both."""
    few = some(SOURCE_RANGES, 3)
    return st.one_of(st.none(), few, few, st.just(_networks("192.0.2.0/24", "2001:db8::/64")))


@functools.cache
@st.composite
def services(draw: st.DrawFn, name: ObjectName) -> Service:
    """Services of this name, of every type, with any combination of what they can ask for."""
    policies = pick(TrafficPolicy)
    affinity, health, weights, scheduler = draw(UNSEEN)
    risky = draw(one_in(4))
    addresses = RISKY_ADDRESSES if risky else EXTERNAL_ADDRESSES
    made = Service(
        name=name,
        uid=str(name),
        created=draw(pick((1.0, 2.0, 2.0, float("inf")))),
        type=draw(pick((ServiceType.LOAD_BALANCER, ServiceType.NODE_PORT, ServiceType.CLUSTER_IP))),
        cluster_ips=draw(cluster_ips()),
        external_ips=draw(some(addresses, 2)),
        ingress=draw(ingresses(addresses)),
        ports=draw(service_ports(RISKY_PORTS, RISKY_PORTS) if risky else service_ports(PORTS, NODE_PORTS)),
        affinity_timeout=affinity,
        internal_policy=draw(policies),
        external_policy=draw(policies),
        source_ranges=draw(source_ranges()),
        health_check_node_port=health,
        weights=weights,
        scheduler=scheduler,
    )
    return evolve(made, **draw(ODDITIES)) if draw(one_in(6)) else made


@functools.cache
@st.composite
def slice_endpoints(draw: st.DrawFn, hosts: tuple[Address, ...], hints: int) -> SliceEndpoint:
    """An endpoint at one of ``hosts``; for ``hints`` see ``HINTS``."""
    ready, serving, terminating = draw(pick(CONDITIONS))
    zone_hints, node_hints = draw(pick(HINTS[hints]))
    return SliceEndpoint(
        address=draw(pick(hosts)),
        ready=ready,
        serving=serving,
        terminating=terminating,
        node_name=draw(pick(NODE_NAMES)),
        zone_hints=zone_hints,
        node_hints=node_hints,
    )


@functools.cache
def hosts_of(owner: ObjectName, family: Family) -> tuple[Address, ...]:
    """Where the endpoints of a slice of ``family`` may be: pods mostly, the node, a client, rarely what no endpoint can be."""
    likely = API_SERVER_ADDRESSES if owner == API_SERVER else POD_ADDRESSES
    others = (*INTERFACE_ADDRESSES[:4], *OUTSIDE_ADDRESSES[:1], *API_SERVER_ADDRESSES, *IMPOSSIBLE_ADDRESSES)
    fitting = (address for address in (*likely * 4, *POD_ADDRESSES, *others) if address.family is family)
    return (*fitting, POD_ADDRESSES[0], POD_ADDRESSES[-1])


@st.composite
def slice_ports(draw: st.DrawFn, owner: Service | None) -> tuple[SlicePort, ...]:
    """The ports of a slice: most of those that its Service has, each with its own number, and now and then a stranger."""
    ports = []
    for spec in owner.ports if owner is not None else ():
        number = draw(
            pick((6443, 6443, 8080, 0) if owner and owner.name == API_SERVER else (*ENDPOINT_PORTS, *ENDPOINT_PORTS, 0))
        )
        if number:
            ports.append(SlicePort(name=spec.name, protocol=spec.protocol, port=number))
    if not ports or draw(one_in(8)):
        name, protocol = draw(pick(PORT_NAMES)), draw(pick(PROTOCOLS))
        ports.append(SlicePort(name=name, protocol=protocol, port=draw(pick(ENDPOINT_PORTS))))
    return tuple(ports)


@st.composite
def slices(draw: st.DrawFn, owner: ObjectName, service: Service | None, number: int) -> EndpointSlice:
    """A slice of the Service ``owner``, which may not be there; slices are numbered, so that a name may change its owner."""
    families = [address.family for address in service.cluster_ips] if service is not None else []
    # Of the two families of a Service each has its turn.
    family = families[number % len(families)] if families and not draw(one_in(10)) else draw(pick(Family))
    return EndpointSlice(
        name=ObjectName(owner.namespace, f"slice-{number}"),
        service=owner,
        family=family,
        endpoints=draw(several_endpoints(hosts_of(owner, family), draw(pick((0, 0, 1, 2, 3))))),
        ports=draw(slice_ports(service)),
        trigger_time=draw(pick((None, 1000.0))),
    )


@functools.cache
def several_endpoints(hosts: tuple[Address, ...], hints: int) -> st.SearchStrategy[tuple[SliceEndpoint, ...]]:
    """One to four endpoints, rarely none."""
    few = st.lists(slice_endpoints(hosts, hints), min_size=1, max_size=4).map(tuple)
    return one_in(15).flatmap(lambda none: st.just(()) if none else few)


@functools.cache
def nodes() -> st.SearchStrategy[Node]:
    """The node's own Node object, with more or less in it."""
    return st.builds(
        Node,
        name=st.just(NODE_NAME),
        internal_addresses=st.sampled_from(INTERNAL_ADDRESSES),
        external_addresses=some(NODE_OBJECT_ADDRESSES[2:], 2),
        pod_cidrs=pick((NODE_POD_NETWORKS, NODE_POD_NETWORKS[:1], NODE_POD_NETWORKS, ())),
        zone=pick(("east", "west", "east", "")),
        eligible=st.booleans(),
    )


@functools.cache
@st.composite
def snapshots(draw: st.DrawFn) -> ClusterSnapshot:
    """A cluster of a few Services and slices, all kinds in sync; the Node is rarely missing."""
    names = draw(st.lists(pick(SERVICE_NAMES), min_size=1, max_size=3, unique=True))
    made = {name: draw(services(name)) for name in names}
    owners = [name for name in names for _ in range(draw(pick((2, 1, 2, 3, 0))))]
    owners += draw(pick(((), (API_SERVER,), SERVICE_NAMES[:1], SERVICE_NAMES[2:])))
    owned: dict[ObjectName, dict[ObjectName, EndpointSlice]] = {}
    for number, owner in enumerate(owners):
        piece = draw(slices(owner, made.get(owner), number))
        owned.setdefault(owner, {})[piece.name] = piece
    ranges = draw(some((SERVICE_NETWORKS, SERVICE_NETWORKS[:1], SERVICE_NETWORKS[2:]), 2))
    return ClusterSnapshot(
        services=made,
        slices=owned,
        node=None if draw(one_in(10)) else draw(nodes()),
        service_cidrs={f"cidr-{number}": ServiceCIDR(name=f"cidr-{number}", cidrs=cidrs) for number, cidrs in enumerate(ranges)},
        synced=frozenset(Kind),
    )


@functools.cache
def settings() -> st.SearchStrategy[Settings]:
    """What an operator may decide that changes a verdict."""
    return st.builds(
        Settings,
        node_name=st.just(NODE_NAME),
        bind_address=pick((*(None,) * 5, *_addresses("192.0.2.2", "2001:db8::2", "0.0.0.0", "0.0.0.0", "127.0.0.1"))),
        cluster_cidrs=pick((POD_NETWORKS, POD_NETWORKS, POD_NETWORKS[:1], POD_NETWORKS[1:], ())),
        detect_local_mode=pick((DetectLocalMode.CLUSTER_CIDR, *DetectLocalMode)),
        bridge_interface=pick((BRIDGE, BRIDGE, "")),
        interface_name_prefix=pick((PREFIX, PREFIX, "")),
        node_port_addresses=st.one_of(st.none(), st.none(), pick(NodePortScope), some(NODE_PORT_RANGES, 2)),
        masquerade_all=one_in(4),
        external_ips_allowed=one_in(5).map(lambda forbidden: not forbidden),
        protected_ports=pick((frozenset({22, 10250}), frozenset({22, 10250}), frozenset[int](), frozenset({80}))),
    )


@functools.cache
def sites() -> st.SearchStrategy[Site]:
    """The node as the kernel knows it. NodePorts never answer on loopback here: that is a matter of single modes."""
    return st.builds(
        Site,
        name=st.just(NODE_NAME),
        addresses=pick((INTERFACE_ADDRESSES, INTERFACE_ADDRESSES, INTERFACE_ADDRESSES[1:], ())),
        node_ports_everywhere=st.booleans(),
    )


@functools.cache
def scenes() -> st.SearchStrategy[Scene]:
    """A cluster, settings and the node that packets meet."""
    return st.builds(Scene, snapshot=snapshots(), settings=settings(), site=sites())


Aim = tuple[Address, int, Protocol]
_ANOTHER = {Protocol.TCP: Protocol.UDP, Protocol.UDP: Protocol.TCP, Protocol.SCTP: Protocol.UDP}


def packets(scene: Scene) -> st.SearchStrategy[Packet]:
    """Packets that mostly go to a frontend, or just beside one, from pods, the node and outside."""
    aimed = packets_at(scene)
    senders = {family: _clients(scene, family) for family in Family}

    @st.composite
    def astray(draw: st.DrawFn) -> Packet:
        packet = draw(st.sampled_from(aimed))
        port, protocol = draw(pick((*PORTS, *NODE_PORTS))), draw(pick(Protocol))
        source, _ = draw(st.sampled_from(senders[packet.destination.family]))
        return evolve(packet, port=port, protocol=protocol, source=source, interface=draw(pick(INTERFACES)))

    return st.one_of(st.sampled_from(aimed), st.sampled_from(aimed), st.sampled_from(aimed), astray())


def packets_at(scene: Scene) -> tuple[Packet, ...]:
    """A packet to every frontend from every sort of client, and some that go just beside.

    That is a few hundred, which is what to ask when asking costs little. What nobody claims, says the oracle, is aimed at once.
    """
    clients = {family: _clients(scene, family) for family in Family}
    sent: list[Packet] = []
    for destination, port, protocol in dict.fromkeys(_aims(scene)):
        packets = [
            Packet(source=source, destination=destination, protocol=protocol, port=port, interface=interface)
            for source, interface in clients[destination.family]
        ]
        sent += packets if claimant(scene, packets[0]) is not None else packets[:1]
    return tuple(sent)


def _aims(scene: Scene) -> Iterable[Aim]:
    """Every frontend that some Service mentions, served or not, each with another protocol, and a few places that none does."""
    node = (*INTERFACE_ADDRESSES, *NODE_OBJECT_ADDRESSES[3:])
    for service in scene.snapshot.services.values():
        balancers = (ingress.address for ingress in service.ingress)
        for address in (*service.cluster_ips, *service.external_ips, *balancers):
            yield from ((address, port.port, port.protocol) for port in service.ports)
            yield from ((address, port.port, _ANOTHER[port.protocol]) for port in service.ports)
        for port in service.ports:
            if port.node_port:
                yield from ((address, port.node_port, port.protocol) for address in node)
                yield INTERFACE_ADDRESSES[0], port.node_port, _ANOTHER[port.protocol]
    yield from ((address, 80, Protocol.TCP) for address in (*UNALLOCATED, *POD_ADDRESSES[:1], *API_SERVER_ADDRESSES))


def _clients(scene: Scene, family: Family) -> tuple[tuple[Address, str], ...]:
    """Source addresses and interfaces: pods, which are endpoints often, outside, the node, not always by its own address."""

    def of_family(addresses: Iterable[Address]) -> list[Address]:
        return [address for address in addresses if address.family is family]

    near, other, far, *_ = of_family(POD_ADDRESSES)
    known, unknown = of_family(OUTSIDE_ADDRESSES)
    balancers = (ingress.address for service in scene.snapshot.services.values() for ingress in service.ingress)
    return (
        (near, "veth1"),
        (of_family(INTERFACE_ADDRESSES)[0], ""),
        (known, "eth0"),
        (unknown, "eth0"),
        (other, BRIDGE),
        (far, "eth0"),
        (near, ""),
        *((address, "") for address in dict.fromkeys(of_family(balancers))),
    )


def objects_of(snapshot: ClusterSnapshot) -> dict[Kind, dict[ObjectName, WatchedObject]]:
    """All objects of a snapshot, by kind and by the name that a :class:`Deleted` would call them."""
    owned = (piece for pieces in snapshot.slices.values() for piece in pieces.values())
    node = snapshot.node
    return {
        Kind.SERVICE: dict(snapshot.services),
        Kind.ENDPOINT_SLICE: {piece.name: piece for piece in owned},
        Kind.NODE: {} if node is None else {ObjectName("", node.name): node},
        Kind.SERVICE_CIDR: {ObjectName("", name): made for name, made in snapshot.service_cidrs.items()},
    }


@st.composite
def changes_leading_to(draw: st.DrawFn, snapshot: ClusterSnapshot) -> tuple[Change, ...]:
    """Events that end in ``snapshot``, whatever they tell on the way.

    Kinds come in any interleaving, objects in any order, by list or one by one, some twice, some in another version first (a
    slice may then belong to another Service), and there are objects that come and go. The kinds in ``snapshot.synced`` are listed
    at least once, no others.
    """
    wanted, detours = objects_of(snapshot), objects_of(draw(snapshots()))
    pending = [list(draw(_history(kind, wanted[kind], detours[kind], kind in snapshot.synced))) for kind in Kind]
    told: list[Change] = []
    while any(pending):
        told.append(draw(st.sampled_from([history for history in pending if history])).pop(0))
    return tuple(told)


@st.composite
def _history(
    draw: st.DrawFn,
    kind: Kind,
    wanted: Mapping[ObjectName, WatchedObject],
    detours: Mapping[ObjectName, WatchedObject],
    listed: bool,
) -> list[Change]:
    """Events of one kind: a few that may be wrong, those that correct what is left of them, then some once more."""
    seen: dict[ObjectName, WatchedObject] = {}
    told: list[Change] = []

    def tell(change: Change) -> None:
        told.append(change)
        match change:
            case Replaced(objects=objects):
                seen.clear()
                seen.update((_name_of(made), made) for made in objects)
            case Upserted(object=made):
                seen[_name_of(made)] = made
            case Deleted(name=name):
                seen.pop(name, None)

    pool = [*wanted.items(), *detours.items()]
    for way in draw(st.lists(pick(("upsert", "delete", "list")), max_size=4)) if pool else ():
        if way == "list" and listed:
            versions = draw(st.lists(st.sampled_from(pool), max_size=4))
            tell(Replaced(kind=kind, objects=tuple(dict(versions).values())))
        else:
            name, made = draw(st.sampled_from(pool))
            tell(Upserted(object=made) if way == "upsert" else Deleted(kind=kind, name=name))
    if listed and (draw(st.booleans()) or not any(isinstance(change, Replaced) for change in told)):
        tell(Replaced(kind=kind, objects=tuple(draw(st.permutations(list(wanted.values()))))))
    corrections: list[Change] = [Upserted(object=made) for name, made in wanted.items() if seen.get(name) != made]
    corrections += [Deleted(kind=kind, name=name) for name in seen if name not in wanted]
    for change in draw(st.permutations(corrections)):
        tell(change)
    for name in draw(some(tuple(wanted), 2)) if wanted else ():
        tell(Upserted(object=wanted[name]))
    return told


def _name_of(made: WatchedObject) -> ObjectName:
    return made.name if isinstance(made.name, ObjectName) else ObjectName("", made.name)
