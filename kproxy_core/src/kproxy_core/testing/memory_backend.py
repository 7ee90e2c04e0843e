"""A mode whose kernel is a dictionary: the reference for authors of modes, and a kernel that fails wherever it is told to.

It keeps everything the contract asks for in the plainest form. Objects are tuples with readable parts; ids and slots are used
as a mode with kernel maps would: a frontend points to a Service id, and endpoints are numbered in slots under that id. Nothing is
atomic unless asked for: a plan is a list of single operations, in an order that leaves no moment without an answer.
"""

import contextlib
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import field, frozen

from kproxy_core.model.addresses import Address
from kproxy_core.model.names import ServicePortKey
from kproxy_core.model.packet import Packet
from kproxy_core.model.state import (
    Disposition,
    Drop,
    EndpointScope,
    Forward,
    FrontendKind,
    FrontendRule,
    LocalByInterface,
    LocalByNetwork,
    NodeContext,
    Origin,
    Reject,
    ServicePort,
)
from kproxy_core.plugin.backend import (
    ApplyResult,
    Backend,
    Capability,
    Companion,
    Counters,
    Dataplane,
    Drift,
    Failure,
    Leftovers,
    Support,
    Trace,
)
from kproxy_core.plugin.errors import ApplyError
from kproxy_core.program.delta import Delta
from kproxy_core.program.program import Fragment, Program
from kproxy_core.program.slots import assign_slots
from kproxy_core.testing.memory_kernel import MemoryKernel, Operation
from kproxy_core.testing.memory_lookup import trace
from kproxy_core.testing.memory_objects import LEAVE, TABLE, Front, Key, Objects, Value

__all__ = [
    "TABLE",
    "Front",
    "Key",
    "MemoryBackend",
    "MemoryDataplane",
    "MemoryFragment",
    "MemoryKernel",
    "MemoryProgram",
    "Objects",
    "Operation",
    "Value",
    "attributed",
]

MemoryProgram = Program[Key, Value]
MemoryFragment = Fragment[Key, Value]
Claims = Callable[[ServicePort, FrontendRule, Origin], bool]


def claims_everything(_port: ServicePort, _rule: FrontendRule, _origin: Origin) -> bool:
    """Leave nothing to a companion."""
    return True


@frozen
class MemoryBackend(Backend[Key, Value]):
    """The mode.

    Its objects, by kind:

    - ``("service", id)``: the Service port that the id belongs to, by which a fresh process attributes all others;
    - ``("frontend", family, protocol, address or "*", port)``: a :class:`Front`;
    - ``("slot", id, scope, number)``: address and port of an endpoint;
    - ``("range", id, network)``: who may come where a frontend is restricted;
    - ``("affinity", id)``: the timeout in seconds;
    - ``("pick", n)``, shared: how one of n slots is chosen; ``("cluster address", address)``, shared: refuses its other ports;
    - ``("node", what)``: the scaffold.

    ``atomic`` makes a plan take effect as a whole or not at all; ``everywhere`` is the default for ``nodePortAddresses``. With
    ``companions`` beneath it, it serves what ``claimed`` says and lets pass all else, also what only the lowest mode can tell to
    be nobody's. Several can share a kernel, by names and tables of their own; the kernel's ``hooks`` then name the tables.
    """

    kernel: MemoryKernel = field(factory=MemoryKernel)
    atomic: bool = False
    everywhere: bool = False
    name: str = "memory"
    table: str = TABLE
    companions: tuple[Companion, ...] = ()
    claimed: Claims = claims_everything

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do."""
        common = {Capability.SCTP, Capability.SOURCE_RANGES, Capability.DRIFT_NOTIFIED, Capability.COUNTERS, Capability.TRACE}
        common |= set() if self.companions else {Capability.UNUSED_PORTS_REJECTED}
        return frozenset(common | {Capability.ATOMIC} if self.atomic else common)

    @property
    def node_ports_everywhere(self) -> bool:
        """Whether NodePorts answer on every local address, not on primary ones only."""
        return self.everywhere

    def claims(self, port: ServicePort, rule: FrontendRule, origin: Origin) -> bool:
        """As it was told."""
        return self.claimed(port, rule, origin)

    def probe(self) -> Support:
        """Nothing is needed."""
        return Support()

    def compile(self, port: ServicePort, node: NodeContext, previous: MemoryFragment | None, fresh_id: int) -> MemoryFragment:
        """Render one Service port."""
        del node  # the same for every node: what depends on it is in the scaffold
        identity = previous.id if previous is not None and previous.id else fresh_id
        before = previous.own if previous is not None else {}
        own: Objects = {("service", identity): port.key}
        shared: Objects = {}
        for scope in _scopes(port):
            wanted = [(endpoint.address, endpoint.port) for endpoint in port.endpoints.of(scope)]
            placed = {key[3]: value for key, value in before.items() if key[:3] == ("slot", identity, scope.value)}
            slots = assign_slots(placed, wanted)  # type: ignore[arg-type]
            own.update({("slot", identity, scope.value, number): endpoint for number, endpoint in enumerate(slots)})
            shared["pick", len(slots)] = f"one of {len(slots)} at random"
        for rule in port.rules:
            own[_frontend_key(port, rule.frontend.address, rule.frontend.port)] = Front(
                service=identity,
                local_pod=self._action(port, rule, Origin.LOCAL_POD),
                node=self._action(port, rule, Origin.NODE),
                outside=self._action(port, rule, Origin.OUTSIDE),
                restricted=rule.restricted,
            )
            if rule.frontend.kind is FrontendKind.CLUSTER_IP and not self.companions:
                shared["cluster address", rule.frontend.address] = "refuse other ports"
        if any(rule.restricted for rule in port.rules):
            own.update({("range", identity, network): "may come" for network in port.source_ranges})
        if port.affinity_timeout is not None:
            own["affinity", identity] = port.affinity_timeout
        return Fragment(id=identity, own=own, shared=shared)

    def _action(self, port: ServicePort, rule: FrontendRule, origin: Origin) -> tuple[object, ...]:
        return _action(rule.disposition(origin), port) if self.claimed(port, rule, origin) else LEAVE

    def scaffold(self, node: NodeContext) -> Mapping[Key, Value]:
        """Render what is there once per node."""
        return {
            ("node", "node port addresses"): "any" if node.node_port_any else tuple(sorted(node.node_port_addresses)),
            ("node", "local pods"): _detector(node),
            ("node", "service ranges"): () if self.companions else tuple(sorted(node.service_cidrs)),
        }

    def canonical(self, program: MemoryProgram) -> object:
        """The program without ids and slots: for each Service port its objects as a sorted text, and the common ones."""
        ports = {port: _without_numbers(fragment) for port, fragment in program.fragments.items()}
        return frozenset(ports.items()), frozenset((key, str(value)) for key, value in program.common.items())

    def plan(self, before: MemoryProgram, delta: Delta[Key, Value]) -> Sequence[Operation]:
        """Put what frontends need before them, and take it away after them."""
        del before
        made = [Operation("add", key, value) for key, value in delta.added.items()]
        made += [Operation("set", key, new) for key, (_, new) in delta.changed.items()]
        removed = [Operation("delete", key) for key in delta.removed]
        makes = sorted(made, key=lambda operation: operation.key[0] == "frontend")
        return [*makes, *sorted(removed, key=lambda operation: operation.key[0] != "frontend")]

    def render(self, program: MemoryProgram) -> str:
        """One line for each object."""
        lines = [f"# {port}\n{_lines(fragment.own)}" for port, fragment in sorted(program.fragments.items())]
        return "\n".join([f"# common\n{_lines(program.common)}", *lines])

    def open(self) -> "MemoryDataplane":
        """Open the kernel."""
        return MemoryDataplane(self.kernel, self.table, atomic=self.atomic)


class MemoryDataplane(Dataplane[Key, Value]):
    """The kernel as one process sees it."""

    def __init__(self, kernel: MemoryKernel, table: str = TABLE, *, atomic: bool = False) -> None:
        self._kernel = kernel
        self._table = table
        self._atomic = atomic
        self._drift: Drift | None = None
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Thousands are made in a test of a law, which may end anywhere.
        self._close_event = weakref.finalize(self, os.close, self._event)
        kernel.watch(table, self.tell)

    @property
    def _objects(self) -> Objects:
        return self._kernel.tables.setdefault(self._table, {})

    def read(self) -> MemoryProgram:
        """Read our objects and attribute them by their ids; shared ones are left unattributed."""
        if self._kernel.unreadable:
            raise ApplyError(self._kernel.unreadable)
        self._kernel.reads += 1
        self._drift = None
        return attributed(self._objects)

    def apply(self, plan: Sequence[Operation]) -> ApplyResult:
        """Carry out the operations in order; the others go on when one is refused, unless the whole is atomic."""
        self._kernel.history.append(len(plan))
        objects = dict(self._objects) if self._atomic else self._objects
        failures: list[Failure] = []
        for operation in plan:
            failure = self._kernel.operate(self._table, objects, operation)
            if failure is not None:
                failures.append(failure)
                if self._atomic:
                    return ApplyResult(failures=tuple(failures), unchanged=True)
        self._kernel.tables[self._table] = objects
        return ApplyResult(done=len(plan) - len(failures), failures=tuple(failures))

    def tell(self, drift: Drift) -> None:
        """Somebody else has changed our objects."""
        self._drift = drift
        os.eventfd_write(self._event, 1)

    def fileno(self) -> int:
        """Readable once somebody else has changed our objects."""
        return self._event

    def drift(self) -> Drift | None:
        """Who has, if anybody."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        drift, self._drift = self._drift, None
        return drift

    def lookup(self, port: ServicePort) -> Mapping[Key, Value]:
        """The Service port's own objects, and all that is common."""
        program = attributed(self._objects)
        fragment = program.fragments.get(port.key)
        return {**program.common, **(fragment.own if fragment is not None else {})}

    def counters(self) -> Counters:
        """What the endpoints of each Service port that is there have got."""
        ports = {key[1]: port for key, port in self._objects.items() if key[0] == "service" and isinstance(port, ServicePortKey)}
        traffic = self._kernel.traffic
        return {
            ports[number]: dict(counts) for (table, number), counts in traffic.items() if table == self._table and number in ports
        }

    def trace(self, packet: Packet) -> Trace:
        """Follow a packet through our table."""
        return trace(self._objects, packet, self._kernel.addresses)

    def leftovers(self) -> Leftovers:
        """Say how much there is."""
        count = len(self._kernel.tables.get(self._table, {}))
        return Leftovers(lines=(f"table {self._table} with {count} objects",) if count else ())

    def cleanup(self) -> Leftovers:
        """Remove our table."""
        removed = self.leftovers()
        self._kernel.tables.pop(self._table, None)
        return removed

    def close(self) -> None:
        """Stop watching; the kernel keeps what it has."""
        self._kernel.unwatch(self.tell)
        self._close_event()
        self._event = -1


def attributed(objects: Mapping[Key, Value]) -> MemoryProgram:
    """Turn a table's objects into a program: what bears, or points to, the id of a Service port is that port's own."""
    ports = {key[1]: port for key, port in objects.items() if key[0] == "service" and isinstance(port, ServicePortKey)}
    own: dict[ServicePortKey, Objects] = {port: {} for port in ports.values()}
    common: Objects = {}
    for key, value in objects.items():
        port = ports.get(value.service if isinstance(value, Front) else key[1] if key[0] in _NUMBERED else None)
        (common if port is None else own[port])[key] = value
    ids = {port: identity for identity, port in ports.items() if isinstance(identity, int)}
    return Program(fragments={port: Fragment(id=ids[port], own=own[port]) for port in own}, common=common)


_NUMBERED: Final = frozenset({"service", "slot", "range", "affinity"})


def _scopes(port: ServicePort) -> list[EndpointScope]:
    dispositions = [d for rule in port.rules for d in (rule.from_local_pod, rule.from_node, rule.from_outside)]
    used = {d.scope for d in dispositions if isinstance(d, Forward)}
    return [scope for scope in EndpointScope if scope in used]


def _frontend_key(port: ServicePort, address: Address | None, number: int) -> Key:
    return ("frontend", port.family.label, port.name.protocol.name, "*" if address is None else address, number)


def _action(disposition: Disposition, port: ServicePort) -> tuple[object, ...]:
    match disposition:
        case Forward(scope, masquerade):
            return ("forward", scope.value, len(port.endpoints.of(scope)), masquerade.value)
        case Drop():
            return ("drop",)
        case Reject():
            return ("reject",)


def _detector(node: NodeContext) -> Value:
    match node.local_detector:
        case LocalByNetwork(networks):
            return ("from", *networks)
        case LocalByInterface(name, prefix):
            return ("on interfaces", name) if prefix else ("on interface", name)
        case None:
            return ("unknown",)


def _without_numbers(fragment: MemoryFragment) -> frozenset[tuple[object, ...]]:
    """Leave ids and slots out; an endpoint that is in two slots of a set counts twice."""
    things: list[str] = []
    for key, value in fragment.own.items():
        match key, value:
            case ("frontend", *where), Front():
                things.append(f"{where} {value.local_pod} {value.node} {value.outside} {value.restricted}")
            case ("slot", _, scope, _), endpoint:
                things.append(f"slot {scope} {endpoint}")
            case (kind, _, *rest), _:
                things.append(f"{kind} {rest} {value}")
    return frozenset((thing, things.count(thing)) for thing in things)


def _lines(objects: Mapping[Key, Value]) -> str:
    return "\n".join(sorted(f"{' '.join(map(str, key))} = {value}" for key, value in objects.items()))
