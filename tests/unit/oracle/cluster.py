"""A small cluster to read verdicts off by hand, and a short way to write objects, packets and verdicts down.

Node n1 is where the packets are: 192.0.2.1 (primary) and 192.0.2.101 on its interfaces, 2001:db8::1 in IPv6. Pods of n1 have
10.244.1.x, those of n2 10.244.2.x. Clients: a pod of n1, a process of n1, and 198.18.0.7 somewhere outside.
"""

from collections.abc import Iterable
from typing import Any

from attrs import evolve
from msgspec.structs import replace

from kproxy_core.config.settings import Settings
from kproxy_core.model.addresses import Address, Family, parse_address, parse_network
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
from kproxy_core.model.packet import Delivered, Packet, Target
from kproxy_core.model.snapshot import ClusterSnapshot, Kind
from kproxy_core.testing.oracle import Site

SITE = Site(
    name="n1", addresses=tuple(map(parse_address, ("127.0.0.1", "192.0.2.1", "192.0.2.101", "::1", "2001:db8::1", "fe80::1")))
)
NODE = Node(
    name="n1",
    internal_addresses=(parse_address("192.0.2.1"), parse_address("2001:db8::1")),
    external_addresses=(parse_address("203.0.113.1"),),
    pod_cidrs=(parse_network("10.244.1.0/24"), parse_network("fd00:244:1::/64")),
    zone="east",
)
SETTINGS = Settings(node_name="n1", cluster_cidrs=(parse_network("10.244.0.0/16"), parse_network("fd00:244::/32")))
SERVICE_CIDR = ServiceCIDR(name="kubernetes", cidrs=(parse_network("10.96.0.0/24"), parse_network("fd00:96::/112")))
LOCAL = TrafficPolicy.LOCAL


def name_of(text: str) -> ObjectName:
    namespace, _, name = text.partition("/")
    return ObjectName(namespace, name)


def addresses(text: str) -> tuple[Address, ...]:
    """Addresses with blanks between."""
    return tuple(map(parse_address, text.split()))


def ports(text: str) -> tuple[ServicePortSpec, ...]:
    """Ports with blanks between, each ``[name=]port[/protocol][@nodePort]``."""
    return tuple(map(_port, text.split()))


def _port(text: str) -> ServicePortSpec:
    name, _, rest = text.rpartition("=")
    rest, _, node_port = rest.partition("@")
    number, _, protocol = rest.partition("/")
    return ServicePortSpec(
        name=name, port=int(number), protocol=Protocol[(protocol or "tcp").upper()], node_port=int(node_port or 0)
    )


def service(name: str, cluster_ips: str = "", served: str = "80", **fields: Any) -> Service:
    """A Service. ``external`` and ``balancer`` are addresses as text, ``ranges`` networks as text; all else as in the model."""
    external, balancer, ranges = (fields.pop(key, None) for key in ("external", "balancer", "ranges"))
    made = Service(
        name=name_of(name),
        created=0.0,
        type=ServiceType.LOAD_BALANCER,
        cluster_ips=addresses(cluster_ips),
        ports=ports(served),
        external_ips=addresses(str(external or "")),
        ingress=tuple(LoadBalancerIngress(address=address) for address in addresses(str(balancer or ""))),
        source_ranges=None if ranges is None else tuple(map(parse_network, str(ranges).split())),
    )
    return evolve(made, **fields)


def endpoint(text: str, **fields: Any) -> SliceEndpoint:
    """An endpoint; those of 10.244.1.0/24 and fd00:244:1::/64 run on n1, others on n2. Conditions follow as letters.

    ``10.244.1.11 -r`` is not ready, ``-s`` does not serve, ``+t`` terminates.
    """
    address_text, *conditions = text.split()
    address = parse_address(address_text)
    here = any(address in network for network in NODE.pod_cidrs)
    made = SliceEndpoint(
        address=address,
        ready="-r" not in conditions,
        serving="-s" not in conditions,
        terminating="+t" in conditions,
        node_name="n1" if here else "n2",
    )
    return replace(made, **fields)


def piece(owner: str, served: str, *endpoints: str | SliceEndpoint, suffix: str = "1") -> EndpointSlice:
    """A slice of ``owner`` with ports as in :func:`ports` and endpoints as in :func:`endpoint`; the first tells the family."""
    entries = tuple(entry if isinstance(entry, SliceEndpoint) else endpoint(entry) for entry in endpoints)
    return EndpointSlice(
        name=ObjectName(name_of(owner).namespace, f"{name_of(owner).name}-{suffix}"),
        service=name_of(owner),
        family=entries[0].address.family if entries else Family.IPV4,
        endpoints=entries,
        ports=tuple(SlicePort(name=port.name, protocol=port.protocol, port=port.port) for port in ports(served)),
    )


def snapshot(services: Iterable[Service], pieces: Iterable[EndpointSlice] = (), node: Node | None = NODE) -> ClusterSnapshot:
    slices: dict[ObjectName, dict[ObjectName, EndpointSlice]] = {}
    for part in pieces:
        slices.setdefault(part.service, {})[part.name] = part
    return ClusterSnapshot(
        services={made.name: made for made in services},
        slices=slices,
        node=node,
        service_cidrs={SERVICE_CIDR.name: SERVICE_CIDR},
        synced=frozenset(Kind),
    )


def packet(destination: str, source: str, interface: str) -> Packet:
    """A packet to ``address:port[/protocol]``."""
    where, _, protocol = destination.partition("/")
    host, _, port = where.rpartition(":")
    return Packet(
        source=parse_address(source),
        destination=parse_address(host.strip("[]")),
        protocol=Protocol[(protocol or "tcp").upper()],
        port=int(port),
        interface=interface,
    )


def from_pod(destination: str, source: str = "") -> Packet:
    """From a pod of n1, unless told otherwise one that is nobody's endpoint."""
    return packet(destination, source or ("fd00:244:1::9" if "[" in destination else "10.244.1.9"), "veth9")


def from_node(destination: str, source: str = "") -> Packet:
    """From a process of n1."""
    return packet(destination, source or ("2001:db8::1" if "[" in destination else "192.0.2.1"), "")


def from_outside(destination: str, source: str = "") -> Packet:
    """From a client far away."""
    return packet(destination, source or ("2001:db8:ffff::7" if "[" in destination else "198.18.0.7"), "eth0")


def to(*targets: str) -> Delivered:
    """Delivered to ``address:port``, an asterisk behind it where the client's address is masqueraded."""
    return Delivered(frozenset(map(_target, targets)))


def _target(text: str) -> Target:
    host, _, port = text.rstrip("*").rpartition(":")
    return Target(address=parse_address(host.strip("[]")), port=int(port), masqueraded=text.endswith("*"))
