"""Strategies for packets, most of them aimed at what is there."""

from collections.abc import Iterable

from attrs import evolve
from hypothesis import strategies as st

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.names import Protocol
from kproxy_core.model.packet import Packet
from kproxy_core.testing.oracle import Scene
from kproxy_core.testing.oracle.claims import claimant
from kproxy_core.testing.strategies import pools
from kproxy_core.testing.strategies.drawing import pick

Aim = tuple[Address, int, Protocol]
_ANOTHER = {Protocol.TCP: Protocol.UDP, Protocol.UDP: Protocol.TCP, Protocol.SCTP: Protocol.UDP}


def packets(scene: Scene) -> st.SearchStrategy[Packet]:
    """Packets that mostly go to a frontend, or just beside one, from pods, the node and outside."""
    aimed = packets_at(scene)
    senders = {family: _clients(scene, family) for family in Family}

    @st.composite
    def astray(draw: st.DrawFn) -> Packet:
        packet = draw(st.sampled_from(aimed))
        port, protocol = draw(pick((*pools.PORTS, *pools.NODE_PORTS))), draw(pick(Protocol))
        source, _ = draw(st.sampled_from(senders[packet.destination.family]))
        return evolve(packet, port=port, protocol=protocol, source=source, interface=draw(pick(pools.INTERFACES)))

    return st.one_of(st.sampled_from(aimed), st.sampled_from(aimed), st.sampled_from(aimed), astray())


def packets_at(scene: Scene) -> tuple[Packet, ...]:
    """A packet to every frontend from every sort of client, and some that go just beside.

    That is a few hundred, which is what to ask when asking costs little. What nobody claims, says the oracle, is aimed at by
    one pod and by the node.
    """
    clients = {family: _clients(scene, family) for family in Family}
    sent: list[Packet] = []
    for destination, port, protocol in dict.fromkeys(_aims(scene)):
        packets = [
            Packet(source=source, destination=destination, protocol=protocol, port=port, interface=interface)
            for source, interface in clients[destination.family]
        ]
        sent += packets if claimant(scene, packets[0]) is not None else packets[:2]
    return tuple(sent)


def _aims(scene: Scene) -> Iterable[Aim]:
    """Every frontend that some Service mentions, served or not, each with another protocol, and a few places that none does."""
    node = (*pools.INTERFACE_ADDRESSES, *pools.NODE_OBJECT_ADDRESSES[3:])
    for service in scene.snapshot.services.values():
        balancers = (ingress.address for ingress in service.ingress)
        for address in (*service.cluster_ips, *service.external_ips, *balancers):
            yield from ((address, port.port, port.protocol) for port in service.ports)
            yield from ((address, port.port, _ANOTHER[port.protocol]) for port in service.ports)
        for port in service.ports:
            if port.node_port:
                yield from ((address, port.node_port, port.protocol) for address in node)
                yield pools.INTERFACE_ADDRESSES[0], port.node_port, _ANOTHER[port.protocol]
    yield from (
        (address, 80, Protocol.TCP) for address in (*pools.UNALLOCATED, *pools.POD_ADDRESSES[:1], *pools.API_SERVER_ADDRESSES)
    )


def _clients(scene: Scene, family: Family) -> tuple[tuple[Address, str], ...]:
    """Source addresses and interfaces: pods, which are endpoints often, outside, the node, not always by its own address."""

    def of_family(addresses: Iterable[Address]) -> list[Address]:
        return [address for address in addresses if address.family is family]

    near, other, far, *_ = of_family(pools.POD_ADDRESSES)
    known, unknown = of_family(pools.OUTSIDE_ADDRESSES)
    balancers = (ingress.address for service in scene.snapshot.services.values() for ingress in service.ingress)
    return (
        (near, "veth1"),
        (of_family(pools.INTERFACE_ADDRESSES)[0], ""),
        (known, "eth0"),
        (unknown, "eth0"),
        (other, pools.BRIDGE),
        (far, "eth0"),
        (near, ""),
        *((address, "") for address in dict.fromkeys(of_family(balancers))),
    )
