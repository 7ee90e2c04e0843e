"""What a NodeState means: the verdict on one packet, read off the state as a mode would have to render it."""

from collections.abc import Collection, Iterator

from kproxy_core.model.addresses import Address, Family, parse_network
from kproxy_core.model.packet import Delivered, Dropped, Packet, Refused, Target, Untouched, Verdict
from kproxy_core.model.state import (
    Drop,
    Forward,
    FrontendKind,
    FrontendRule,
    LocalByInterface,
    LocalByNetwork,
    LocalDetector,
    Masquerade,
    NodeState,
    Origin,
    Reject,
    ServicePort,
)

_LOOPBACK = (parse_network("127.0.0.0/8"), parse_network("::1/128"))


def interpret(state: NodeState, packet: Packet, local_addresses: Collection[Address] = ()) -> Verdict:
    """What becomes of the first packet of a connection, if a mode does exactly what ``state`` says.

    ``local_addresses`` are those the kernel holds for its own, which only the kernel knows; they matter with ``node_port_any``.
    For authors of modes this is the meaning of the values in :mod:`kproxy_core.model.state`, in the order in which a packet meets
    them. Raises ``ValueError`` if the state is not clear: two rules for one frontend, or a Forward to an empty set.
    """
    matched = _rule_for(state, packet, local_addresses)
    if matched is None:
        return _unclaimed(state, packet)
    port, rule = matched
    if rule.restricted and not any(packet.source in network for network in port.source_ranges):
        return Dropped()
    match rule.disposition(origin_of(state.node.local_detector, packet)):
        case Drop():
            return Dropped()
        case Reject():
            return Refused()
        case Forward(scope, masquerade):
            targets = frozenset(
                Target(
                    address=endpoint.address,
                    port=endpoint.port,
                    masqueraded=masquerade is Masquerade.ALWAYS or endpoint.address == packet.source,
                )
                for endpoint in port.endpoints.of(scope)
            )
            if not targets:
                raise ValueError(f"{port.key}: forward to the {scope.value} endpoints, of which there are none")
            return Delivered(targets)


def origin_of(detector: LocalDetector, packet: Packet) -> Origin:
    """Which disposition of a rule applies to a packet. Local pods are asked for first, then the node's own processes."""
    match detector:
        case LocalByNetwork(networks) if any(packet.source in network for network in networks):
            return Origin.LOCAL_POD
        case LocalByInterface(name, prefix) if not packet.from_this_node:
            if packet.interface == name or (prefix and packet.interface.startswith(name)):
                return Origin.LOCAL_POD
    return Origin.NODE if packet.from_this_node else Origin.OUTSIDE


def _rule_for(state: NodeState, packet: Packet, local_addresses: Collection[Address]) -> tuple[ServicePort, FrontendRule] | None:
    """The rule of the packet's address and port, else that of the NodePort if the address answers on those."""
    here = list(_rules(state, packet))
    exact = [(port, rule) for port, rule in here if rule.frontend.address == packet.destination]
    node_port = [(port, rule) for port, rule in here if rule.frontend.address is None]
    for found in (exact, node_port):
        if len(found) > 1:
            raise ValueError(f"{found[0][1].frontend} belongs to both {found[0][0].key} and {found[1][0].key}")
    if exact:
        return exact[0]
    return node_port[0] if node_port and _answers_node_ports(state, packet.destination, local_addresses) else None


def _rules(state: NodeState, packet: Packet) -> Iterator[tuple[ServicePort, FrontendRule]]:
    """The rules with the packet's family, protocol and port."""
    for key, port in state.ports.items():
        if key.family is packet.destination.family and key.name.protocol is packet.protocol:
            for rule in port.rules:
                if rule.frontend.port == packet.port:
                    yield port, rule


def _answers_node_ports(state: NodeState, address: Address, local_addresses: Collection[Address]) -> bool:
    if any(address in network for network in _LOOPBACK):
        return False
    if state.node.node_port_any:
        return address in local_addresses
    return address in state.node.node_port_addresses


def _unclaimed(state: NodeState, packet: Packet) -> Verdict:
    """Other ports of a cluster address in use are refused, other addresses of the Services' ranges dropped."""
    if packet.destination in cluster_addresses(state, packet.destination.family):
        return Refused()
    return Dropped() if any(packet.destination in network for network in state.node.service_cidrs) else Untouched()


def cluster_addresses(state: NodeState, family: Family) -> frozenset[Address]:
    """The cluster addresses of ``family`` that are in use: those with a rule of kind ClusterIP."""
    return frozenset(
        rule.frontend.address
        for key, port in state.ports.items()
        if key.family is family
        for rule in port.rules
        if rule.frontend.kind is FrontendKind.CLUSTER_IP and rule.frontend.address is not None
    )
