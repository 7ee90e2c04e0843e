"""What the in-memory kernel does with a packet: a table's objects read as a kernel would, without the state they came from."""

from collections.abc import Collection, Mapping
from typing import cast

from kproxy_core.model.addresses import Address, Network, parse_network
from kproxy_core.model.packet import Delivered, Dropped, Packet, Refused, Target, Untouched, Verdict
from kproxy_core.model.state import Masquerade
from kproxy_core.plugin.backend import Trace
from kproxy_core.testing.memory_objects import LEAVE, Front, Key, Value

_LOOPBACK = (parse_network("127.0.0.0/8"), parse_network("::1/128"))

Objects = Mapping[Key, Value]


def lookup(objects: Objects, packet: Packet, local_addresses: Collection[Address] = ()) -> Verdict:
    """Say what becomes of the first packet of a connection. ``local_addresses`` are those the kernel holds for its own.

    Raises ``KeyError`` when an object refers to one that is not there: a moment at which a client would get no answer.
    """
    verdict = trace(objects, packet, local_addresses).verdict
    assert verdict is not None
    return verdict


def trace(objects: Objects, packet: Packet, local_addresses: Collection[Address] = ()) -> Trace:
    """Say what becomes of a packet, and why; as :func:`lookup`."""
    front = front_of(objects, packet, local_addresses)
    if front is None:
        return _unclaimed(objects, packet)
    port = objects["service", front.service]
    action = _action_for(objects, front, packet)
    lines = [f"{packet.destination}:{packet.port} is a frontend of {port}", f"from {packet.source}: {' '.join(map(str, action))}"]
    if action == LEAVE:
        return Trace(lines=tuple(lines), verdict=Untouched())
    if front.restricted and not _may_come(objects, front.service, packet.source):
        return Trace(lines=(*lines, f"{packet.source} is in none of its source ranges"), verdict=Dropped())
    match action:
        case ("drop",):
            return Trace(lines=tuple(lines), verdict=Dropped())
        case ("reject",):
            return Trace(lines=tuple(lines), verdict=Refused())
        case ("forward", scope, int(count), masquerade):
            lines.append(str(objects["pick", count]))
            picked = [cast("tuple[Address, int]", objects["slot", front.service, scope, number]) for number in range(count)]
            always = masquerade == Masquerade.ALWAYS.value
            targets = frozenset(Target(address=a, port=p, masqueraded=always or a == packet.source) for a, p in picked)
            return Trace(lines=(*lines, *(f"slot {n}: {a}:{p}" for n, (a, p) in enumerate(picked))), verdict=Delivered(targets))
        case _:
            raise KeyError(action)


def front_of(objects: Objects, packet: Packet, local_addresses: Collection[Address] = ()) -> Front | None:
    """Return the frontend that a packet is for."""
    where = ("frontend", packet.destination.family.label, packet.protocol.name)
    front = objects.get((*where, packet.destination, packet.port))
    if front is None and _answers_node_ports(objects, packet.destination, local_addresses):
        front = objects.get((*where, "*", packet.port))
    return front if isinstance(front, Front) else None


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


def _unclaimed(objects: Objects, packet: Packet) -> Trace:
    if ("cluster address", packet.destination) in objects:
        return Trace(lines=(f"nobody serves port {packet.port} of {packet.destination}",), verdict=Refused())
    ranges = cast("tuple[Network, ...]", objects.get(("node", "service ranges"), ()))
    if any(packet.destination in network for network in ranges):
        return Trace(lines=(f"{packet.destination} is of the Services' ranges, and nobody's",), verdict=Dropped())
    return Trace(lines=(f"{packet.destination}:{packet.port} is no frontend",), verdict=Untouched())
