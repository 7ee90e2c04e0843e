"""SettledServices: the decisions about all Services, kept up to date Service by Service."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from attrs import evolve

from kproxy_core.model.diagnostics import Diagnostic
from kproxy_core.model.flows import FrontendKey
from kproxy_core.model.names import ObjectName, Protocol, ServicePortKey
from kproxy_core.model.state import NodeContext, NodeState, ServiceHealth, ServicePort
from kproxy_core.resolve.claims import ClaimBook, claims_of, frontend_key, overlaps, settle
from kproxy_core.resolve.resolve import EXTERNAL, INTERNAL, ResolvedService


class SortedDiagnostics:
    """Diagnostics in order, each as often as it was told; the work per change is a search, not a sort."""

    def __init__(self) -> None:
        self._all: list[Diagnostic] = []
        self._value: tuple[Diagnostic, ...] = ()
        self._stale = False

    def replace(self, before: Iterable[Diagnostic], after: Iterable[Diagnostic]) -> None:
        """Take some away and add others."""
        for diagnostic in before:
            del self._all[bisect_left(self._all, diagnostic)]
            self._stale = True
        for diagnostic in after:
            insort(self._all, diagnostic)
            self._stale = True

    @property
    def value(self) -> tuple[Diagnostic, ...]:
        """All of them."""
        if self._stale:
            self._value = tuple(self._all)
            self._stale = False
        return self._value


class SettledServices:
    """Holds the resolved Services and settles their rival claims. Mutable; the states it hands out never change.

    ``put`` what was resolved anew, then ``settle``: only Service ports that these concern are looked at.
    """

    def __init__(self, node: NodeContext) -> None:
        self._services: dict[ObjectName, ResolvedService] = {}
        self._wanted: dict[ServicePortKey, ServicePort] = {}
        self._book = ClaimBook(node)
        self._affected: set[ServicePortKey] = set()
        self._claims_moved = True
        self._overlaps: tuple[Diagnostic, ...] = ()
        self._lost: dict[ServicePortKey, tuple[Diagnostic, ...]] = {}
        self._health: dict[ObjectName, ServiceHealth] = {}
        self._without_local: dict[str, set[ServicePortKey]] = {INTERNAL: set(), EXTERNAL: set()}
        self._state = NodeState(node=node, without_local={INTERNAL: frozenset(), EXTERNAL: frozenset()})
        self.diagnostics = SortedDiagnostics()

    @property
    def state(self) -> NodeState:
        """The state as of the last ``settle``."""
        return self._state

    def __contains__(self, name: ObjectName) -> bool:
        return name in self._services

    def move_to(self, node: NodeContext) -> None:
        """Take over a changed NodeContext; the Services that depend on the difference must be put again."""
        self._state = evolve(self._state, node=node)
        self._book.move_to(node)
        self._claims_moved = True

    def put(self, name: ObjectName, new: ResolvedService | None) -> None:
        """Replace what is known of one Service; None when it is gone."""
        old = self._services.pop(name, None)
        old_ports = old.ports if old else ()
        new_ports = new.ports if new else ()
        for port in old_ports:
            del self._wanted[port.key]
        for port in new_ports:
            self._wanted[port.key] = port
        if new is not None:
            self._services[name] = new
        self._affected.update(port.key for port in (*old_ports, *new_ports))
        self._claim(old, new)
        self._count(old, new)
        self.diagnostics.replace(old.diagnostics if old else (), new.diagnostics if new else ())

    def _claim(self, old: ResolvedService | None, new: ResolvedService | None) -> None:
        before = list(claims_of(old.ports, old.created)) if old else []
        after = list(claims_of(new.ports, new.created)) if new else []
        if before == after:
            return
        self._affected |= self._book.withdraw(before)
        self._affected |= self._book.enter(after)
        self._claims_moved = True

    def _count(self, old: ResolvedService | None, new: ResolvedService | None) -> None:
        if old is not None:
            self._health.pop(old.name, None)
            for policy, key in old.without_local:
                self._without_local[policy].discard(key)
        if new is not None:
            if new.health is not None:
                self._health[new.name] = new.health
            for policy, key in new.without_local:
                self._without_local[policy].add(key)

    def settle(self) -> tuple[frozenset[ServicePortKey], frozenset[FrontendKey]]:
        """Bring the state up to date; return the Service ports that differ, and the UDP frontends that nobody has any more."""
        if self._claims_moved:
            found = overlaps(self._book)
            self.diagnostics.replace(self._overlaps, found)
            self._overlaps = found
            self._claims_moved = False
        before = self._state.ports
        changed = self._settled_changes(before)
        self._state = NodeState(
            node=self._state.node,
            ports=_patched(before, changed),
            health=_unless_equal(self._state.health, self._health),
            without_local=self._shared_without_local(),
            diagnostics=self.diagnostics.value,
        )
        return frozenset(changed), self._gone(before[key] for key in changed if key in before)

    def _settled_changes(self, before: Mapping[ServicePortKey, ServicePort]) -> dict[ServicePortKey, ServicePort | None]:
        changed: dict[ServicePortKey, ServicePort | None] = {}
        for key in self._affected:
            wanted = self._wanted.get(key)
            port, lost = settle(wanted, self._book) if wanted is not None else (None, ())
            if port != before.get(key):
                changed[key] = port
            told = self._lost.pop(key, ())
            if lost:
                self._lost[key] = lost
            if told != lost:
                self.diagnostics.replace(told, lost)
        self._affected = set()
        return changed

    def _shared_without_local(self) -> Mapping[str, frozenset[ServicePortKey]]:
        before = self._state.without_local
        if all(before[policy] == keys for policy, keys in self._without_local.items()):
            return before
        return {policy: frozenset(keys) for policy, keys in self._without_local.items()}

    def _gone(self, ports: Iterable[ServicePort]) -> frozenset[FrontendKey]:
        keys = {frontend_key(p, rule.frontend) for p in ports if p.name.protocol is Protocol.UDP for rule in p.rules}
        return frozenset(key for key in keys if self._book.winner(key) is None)


def _patched(
    before: Mapping[ServicePortKey, ServicePort], changed: Mapping[ServicePortKey, ServicePort | None]
) -> Mapping[ServicePortKey, ServicePort]:
    """A copy with the changes; the same mapping when there are none, because it was handed out and must stay as it is."""
    if not changed:
        return before
    after = dict(before)
    for key, port in changed.items():
        if port is None:
            del after[key]
        else:
            after[key] = port
    return after


def _unless_equal(
    before: Mapping[ObjectName, ServiceHealth], now: Mapping[ObjectName, ServiceHealth]
) -> Mapping[ObjectName, ServiceHealth]:
    return before if before == now else dict(now)
