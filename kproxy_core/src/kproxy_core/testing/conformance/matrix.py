"""The matrix: every kind of frontend by origin, traffic policies, state of the endpoints, family and protocol.

Each cell is shown by a scenario or left out for a reason that is written here. Which cells a scenario shows follows from what it
applies and sends; nothing of its verdicts is computed.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import product

from attrs import frozen

from kproxy_core.model.addresses import Family
from kproxy_core.model.names import Protocol
from kproxy_core.testing.conformance.notation import POLICIES
from kproxy_core.testing.conformance.places import Places
from kproxy_core.testing.conformance.scenario import (
    FRONTENDS,
    Apply,
    Ask,
    Delete,
    EndpointsNote,
    Packets,
    Scenario,
    ServiceNote,
    Target,
    flat,
)
from kproxy_core.testing.lab.plan import NODES, OUTSIDE

KINDS = (*FRONTENDS, "loopback")
ORIGINS = ("routed pod", "bridged pod", "node", "outside")
STATES = ("ready", "elsewhere", "draining", "terminating", "unready", "none")
"""Of a Service's endpoints: ready here and elsewhere; ready elsewhere alone; the same while one here terminates; only terminating
ones that serve, here and elsewhere; none usable; none at all."""


@frozen
class Cell:
    """A kind of packet."""

    kind: str
    origin: str
    internal: str
    external: str
    state: str
    family: Family
    protocol: Protocol

    def __str__(self) -> str:
        way = f"{self.origin} to {self.kind} over {self.family.label} {self.protocol.name}"
        return f"{way}, internal {self.internal}, external {self.external}, endpoints {self.state}"


@frozen
class Exclusion:
    """Cells that no scenario shows, and why not."""

    name: str
    reason: str
    covers: Callable[[Cell], bool]


EXCLUSIONS = (
    Exclusion(
        "loopback-from-elsewhere",
        "only the node itself can dial its loopback addresses; what others send there is the scenario loopback-neighbours",
        lambda cell: cell.kind == "loopback" and cell.origin != "node",
    ),
    Exclusion(
        "loopback-ipv6",
        "no kernel routes from ::1 to another host, so that NodePorts there are a matter of each mode that offers them",
        lambda cell: cell.kind == "loopback" and cell.family is Family.IPV6,
    ),
    Exclusion(
        "loopback-sctp",
        "localhostNodePorts is for processes of the node that know no other address; none of them is known to speak SCTP",
        lambda cell: cell.kind == "loopback" and cell.protocol is Protocol.SCTP,
    ),
    Exclusion(
        "loopback-internal-local",
        "internalTrafficPolicy is about cluster addresses; that NodePorts do not heed it is shown from all other origins",
        lambda cell: cell.kind == "loopback" and cell.internal == "Local",
    ),
)


def cells() -> Iterator[Cell]:
    """Every cell."""
    for values in product(KINDS, ORIGINS, POLICIES, POLICIES, STATES, Family, Protocol):
        yield Cell(*values)


def excluded(cell: Cell) -> Exclusion | None:
    """Why a cell is left out, if it is."""
    return next((each for each in EXCLUSIONS if each.covers(cell)), None)


def state_of(hosts: str, places: Places) -> str:
    """The state of endpoints written as ``a1 b1/terminating``; empty for one that is not in the matrix."""
    found: set[tuple[bool, str]] = set()
    for entry in hosts.split():
        host, *words = entry.split("/")
        condition = next((word for word in words if "=" not in word), "ready").replace("nil", "ready")
        found.add((places.on.get(host) == NODES[0], condition))
    ready = {here for here, condition in found if condition == "ready"}
    terminating = {here for here, condition in found if condition == "terminating"}
    match sorted(ready), sorted(terminating):
        case [False, True], _:
            return "ready"
        case [False], []:
            return "elsewhere"
        case [False], [*places_of] if True in places_of:
            return "draining"
        case [], [False, True]:
            return "terminating"
        case [], []:
            return "unready" if found else "none"
    return ""


def cells_of(scenario: Scenario) -> Iterator[Cell]:
    """The cells that a scenario shows: by its plain Services, with the usual settings."""
    if set(scenario.settings) - {"nodePortAddresses"}:
        return
    places = Places()
    services: dict[int, ServiceNote] = {}
    hosts: dict[str, str] = {}
    for step in flat(scenario.steps):
        match step:
            case Apply(notes=notes):
                for note in notes:
                    if isinstance(note, ServiceNote):
                        services[note.number] = note
                        hosts |= {} if note.endpoints is None else {note.service: note.endpoints}
                    elif isinstance(note, EndpointsNote):
                        hosts[note.endpoints] = note.hosts
            case Delete(names=names):
                services = {number: note for number, note in services.items() if f"service {note.service}" not in names}
            case Packets(asks=asks):
                for ask, number in product(asks, services):
                    note = services[number]
                    yield from _shown(ask, note, state_of(hosts.get(note.service, ""), places), places)


def _shown(ask: Ask, note: ServiceNote, state: str, places: Places) -> Iterator[Cell]:
    plain = not (note.affinity or note.ranges is not None or note.ip_mode or note.spec or note.labels or ask.source or ask.port)
    if not plain or not state:
        return
    kinds = [target.kind for target in ask.to if _is_of(target, note)]
    policies = (note.internal_policy or POLICIES[0], note.external_policy or POLICIES[0])
    origins = [origin for host in ask.origins if (origin := _origin(host, places))]
    for kind, origin, family, protocol in product(kinds, origins, ask.families, ask.protocols):
        yield Cell(kind, origin, *policies, state, family, protocol)


def _is_of(target: Target, note: ServiceNote) -> bool:
    return target.kind in KINDS and target.what == str(note.number)


def _origin(host: str, places: Places) -> str:
    if host in (NODES[0], OUTSIDE):
        return "node" if host == NODES[0] else "outside"
    if places.on[host] != NODES[0]:
        return ""
    return "bridged pod" if host in places.bridged else "routed pod"


def unshown(scenarios: Iterable[Scenario]) -> list[Cell]:
    """The cells that are neither shown by a scenario nor left out."""
    shown = {cell for scenario in scenarios for cell in cells_of(scenario)}
    return [cell for cell in cells() if cell not in shown and excluded(cell) is None]
