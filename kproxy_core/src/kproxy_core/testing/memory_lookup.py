"""What the in-memory kernel does with a packet: its objects read as a kernel would, without the state they came from."""

from collections.abc import Collection, Mapping
from typing import cast

from kproxy_core.model.addresses import Address, Network, parse_network
from kproxy_core.model.packet import Delivered, Dropped, Packet, Refused, Target, Untouched, Verdict
from kproxy_core.model.state import Masquerade
from kproxy_core.testing.memory_backend import Front, Key, Value

_LOOPBACK = (parse_network("127.0.0.0/8"), parse_network("::1/128"))

Objects = Mapping[Key, Value]


def lookup(objects: Objects, packet: Packet, local_addresses: Collection[Address] = ()) -> Verdict:
    """Say what becomes of the first packet of a connection. ``local_addresses`` are those the kernel holds for its own.

    Raises ``KeyError`` when an object refers to one that is not there: a moment at which a client would get no answer.
    """
    where = ("frontend", packet.destination.family.label, packet.protocol.name)
    front = objects.get((*where, packet.destination, packet.port))
    if front is None and _answers_node_ports(objects, packet.destination, local_addresses):
        front = objects.get((*where, "*", packet.port))
    if not isinstance(front, Front):
        return _unclaimed(objects, packet)
    if objects.get(("service", front.service)) is None:
        raise KeyError(("service", front.service))
    if front.restricted and not _may_come(objects, front.service, packet.source):
        return Dropped()
    match _action_for(objects, front, packet):
        case ("drop",):
            return Dropped()
        case ("reject",):
            return Refused()
        case ("forward", scope, int(count), masquerade):
            objects["pick", count]
            picked = [cast("tuple[Address, int]", objects["slot", front.service, scope, number]) for number in range(count)]
            always = masquerade == Masquerade.ALWAYS.value
            return Delivered(frozenset(Target(address=a, port=p, masqueraded=always or a == packet.source) for a, p in picked))
        case action:
            raise KeyError(action)


def _action_for(objects: Objects, front: Front, packet: Packet) -> tuple[object, ...]:
    match objects["node", "local pods"]:
        case ("from", *networks) if any(packet.source in cast("Network", network) for network in networks):
            return front.local_pod
        case ("on interface", name) if packet.interface == name:
            return front.local_pod
        case ("on interfaces", str(prefix)) if packet.interface.startswith(prefix):
            return front.local_pod
    return front.node if packet.from_this_node else front.outside


def _may_come(objects: Objects, service: int, source: Address) -> bool:
    return any(key[:2] == ("range", service) and source in cast("Network", key[2]) for key in objects)


def _answers_node_ports(objects: Objects, address: Address, local_addresses: Collection[Address]) -> bool:
    if any(address in network for network in _LOOPBACK):
        return False
    chosen = objects.get(("node", "node port addresses"), ())
    return address in (local_addresses if chosen == "any" else cast("tuple[Address, ...]", chosen))


def _unclaimed(objects: Objects, packet: Packet) -> Verdict:
    if ("cluster address", packet.destination) in objects:
        return Refused()
    ranges = cast("tuple[Network, ...]", objects.get(("node", "service ranges"), ()))
    return Dropped() if any(packet.destination in network for network in ranges) else Untouched()
