"""A kernel that is a dictionary: keeps tables, fails wherever it is told to, lets packets through its tables and counts them."""

from collections.abc import Callable

from attrs import Factory, define, field, frozen

from kproxy_core.model.addresses import Address
from kproxy_core.model.packet import Delivered, Packet, Target, Untouched, Verdict
from kproxy_core.plugin.backend import Drift, Failure, Traffic
from kproxy_core.testing.faults import Fault, no_faults
from kproxy_core.testing.memory_lookup import front_of, lookup
from kproxy_core.testing.memory_objects import TABLE, Key, Objects, Value

Watcher = Callable[[Drift], object]


@frozen
class Operation:
    """One kernel operation. ``verb`` is add, set or delete."""

    verb: str
    key: Key
    value: Value = None


@define
class MemoryKernel:
    """The kernel's side: tables by owner. It outlives dataplanes, as a kernel outlives processes.

    Packets meet the tables of ``hooks`` in that order, and ``addresses`` are its own. ``operations`` counts what was asked of it,
    refusals included; ``history`` holds the sizes of the plans that were applied. ``fault`` is asked before each operation,
    in a table of ``faults`` the one there. ``unreadable``, if not empty, is why nothing can be read now.
    """

    tables: dict[str, Objects] = Factory(dict)
    operations: int = 0
    history: list[int] = Factory(list)
    reads: int = 0
    fault: Fault = no_faults
    unreadable: str = ""
    hooks: tuple[str, ...] = (TABLE,)
    addresses: tuple[Address, ...] = ()
    faults: dict[str, Fault] = Factory(dict)
    traffic: dict[tuple[str, object], dict[tuple[Address, int], Traffic]] = Factory(dict)
    """What each endpoint has got, by table and Service id."""
    _watchers: list[tuple[str, Watcher]] = field(factory=list, init=False)

    @property
    def ours(self) -> Objects:
        """Our objects. To change them as somebody else would, use :meth:`meddle`."""
        return self.tables.setdefault(TABLE, {})

    def meddle(self, change: Callable[[Objects], object], culprit: str = "somebody (pid 1)", table: str = TABLE) -> None:
        """Change the objects of a table behind its owner's back."""
        change(self.tables.setdefault(table, {}))
        for watched, tell in self._watchers:
            if watched == table:
                tell(Drift(culprit=culprit))

    def operate(self, table: str, objects: Objects, operation: Operation) -> Failure | None:
        """Carry out one operation on a table, strictly: what is added must not be there, what is changed or deleted must."""
        self.operations += 1
        failure = self.faults.get(table, self.fault)(self.operations, operation.key)
        if failure is not None:
            return failure
        if (operation.key in objects) is (operation.verb == "add"):
            message = "exists already" if operation.verb == "add" else "no such object"
            return Failure(message=f"{operation.verb} {operation.key}: {message}", keys=(operation.key,))
        if operation.verb == "delete":
            del objects[operation.key]
            if operation.key[0] == "service":
                self.traffic.pop((table, operation.key[1]), None)
        else:
            objects[operation.key] = operation.value
        return None

    def pass_through(self, packet: Packet) -> Verdict:
        """Say what becomes of the first packet of a connection: the first table that does not let it pass decides.

        Raises ``KeyError`` as :func:`~kproxy_core.testing.memory_lookup.lookup`.
        """
        verdicts = (lookup(self.tables.get(table, {}), packet, self.addresses) for table in self.hooks)
        return next((verdict for verdict in verdicts if verdict != Untouched()), Untouched())

    def connect(self, packet: Packet, sent: int = 0, received: int = 0) -> Target | Verdict:
        """Make a connection that carries so many bytes to the endpoint and back; return the endpoint, or why there is none.

        It goes to the endpoint that has had the fewest through this Service port.
        """
        for table in self.hooks:
            objects = self.tables.get(table, {})
            verdict = lookup(objects, packet, self.addresses)
            front = front_of(objects, packet, self.addresses)
            if isinstance(verdict, Delivered) and front is not None:
                counts = self.traffic.setdefault((table, front.service), {})
                nothing = Traffic(connections=0, bytes_to_endpoint=0, bytes_to_client=0)
                target = min(verdict.targets, key=lambda each: (counts.get(_place(each), nothing).connections, _place(each)))
                before = counts.get(_place(target), nothing)
                counts[_place(target)] = Traffic(
                    connections=before.connections + 1,
                    bytes_to_endpoint=(before.bytes_to_endpoint or 0) + sent,
                    bytes_to_client=(before.bytes_to_client or 0) + received,
                )
                return target
            if verdict != Untouched():
                return verdict
        return Untouched()

    def watch(self, table: str, tell: Watcher) -> None:
        """Tell somebody of what others change in a table."""
        self._watchers.append((table, tell))

    def unwatch(self, tell: Watcher) -> None:
        """Stop telling."""
        self._watchers = [(table, other) for table, other in self._watchers if other != tell]


def _place(target: Target) -> tuple[Address, int]:
    return target.address, target.port
