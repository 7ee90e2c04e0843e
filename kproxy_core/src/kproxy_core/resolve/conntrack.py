"""Finds the UDP flows that connection tracking still sends to endpoints which are no longer right."""

from collections.abc import Callable, Iterable, Iterator

from kproxy_core.model.addresses import Address
from kproxy_core.model.flows import FrontendKey, UdpFlow
from kproxy_core.model.names import Protocol
from kproxy_core.model.state import NodeState, ServicePort

ValidReplies = Callable[[ServicePort], Iterable[tuple[Address, int]]]
"""From where replies to flows of a Service port are right; a mode's ``valid_replies``."""

_Place = tuple[Address, int]


def stale_flows(
    state: NodeState, valid_replies: ValidReplies, gone: Iterable[FrontendKey], flows: Iterable[UdpFlow]
) -> Iterator[UdpFlow]:
    """Yield the flows to delete, in one pass and with one hash lookup each.

    A flow to one of our UDP frontends is stale when its replies do not come from a valid place: an endpoint that went away, or,
    if the flow was made before the Service was, from the address that was dialled itself. Without endpoints every flow is
    stale, also one that is not answered at all. Flows to ``gone`` frontends, those of deleted Services, are stale if they were
    translated; the rest of the traffic to that place is none of our business. Only flows whose address, port and protocol all
    match are touched: a node address alone, or a port alone, says nothing (think of VXLAN). TCP is left to end by itself.
    """
    owners = dict(_owners(state))
    deserted = set(_places(gone, state)) - owners.keys()
    valid: dict[int, frozenset[_Place]] = {}
    for flow in flows:
        place = (flow.destination, flow.destination_port)
        reply = (flow.reply_source, flow.reply_port)
        port = owners.get(place)
        if port is None:
            if place in deserted and reply != place:
                yield flow
            continue
        replies = valid.get(id(port))
        if replies is None:
            replies = valid[id(port)] = frozenset(valid_replies(port))
        if reply not in replies:
            yield flow


def _owners(state: NodeState) -> Iterator[tuple[_Place, ServicePort]]:
    """Who answers where over UDP; frontends with an address come last because they win over NodePorts."""
    ports = [port for port in state.ports.values() if port.name.protocol is Protocol.UDP]
    frontends = [(rule.frontend, port) for port in ports for rule in port.rules]
    for frontend, port in frontends:
        if frontend.address is None:
            for address in state.node.node_port_addresses:
                if address.family is port.family:
                    yield (address, frontend.port), port
    for frontend, port in frontends:
        if frontend.address is not None:
            yield (frontend.address, frontend.port), port


def _places(keys: Iterable[FrontendKey], state: NodeState) -> Iterator[_Place]:
    for key in keys:
        if key.protocol is not Protocol.UDP:
            continue
        if key.address is not None:
            yield (key.address, key.port)
        else:
            yield from ((a, key.port) for a in state.node.node_port_addresses if a.family is key.family)


def udp_places(state: NodeState, gone: Iterable[FrontendKey]) -> frozenset[tuple[Address, int]]:
    """Return the addresses and ports whose flows :func:`stale_flows` looks at; whoever lists flows can leave out all others."""
    return frozenset({place for place, _ in _owners(state)} | set(_places(gone, state)))
