"""ChangeTracker: turns changes of the cluster's objects into the next state and the Service ports that differ in it."""

from collections.abc import Iterable

from attrs import frozen

from kproxy_core.config.settings import Settings
from kproxy_core.engine.settled import SettledServices
from kproxy_core.engine.watched import Pending, WatchedObjects
from kproxy_core.model.addresses import Address
from kproxy_core.model.changes import Change
from kproxy_core.model.diagnostics import Diagnostic
from kproxy_core.model.flows import FrontendKey
from kproxy_core.model.names import ObjectName, ServicePortKey
from kproxy_core.model.objects import Node
from kproxy_core.model.snapshot import NEEDED_BEFORE_FIRST_SYNC, ClusterSnapshot, Kind
from kproxy_core.model.state import NodeContext, NodeState
from kproxy_core.resolve.frontends import is_proxied
from kproxy_core.resolve.node import node_context, node_diagnostics
from kproxy_core.resolve.resolve import ResolvedService, relevant, resolve_service


@frozen(kw_only=True)
class Resolution:
    """The state that is wanted now, and how it differs from the previous one.

    ``dirty`` are the Service ports that are new, differ or are gone; exactly those. ``node_changed`` says that the NodeContext
    differs (always so the first time), so the scaffold must be rendered again. ``trigger_times`` are those of the EndpointSlices
    that changed, in seconds since the epoch, in no particular order; a first list brings old ones. ``gone_frontends`` are UDP
    frontends that no Service port has any more.
    """

    state: NodeState
    dirty: frozenset[ServicePortKey] = frozenset()
    node_changed: bool = False
    trigger_times: tuple[float, ...] = ()
    gone_frontends: frozenset[FrontendKey] = frozenset()


class ChangeTracker:
    """Keeps the cluster's objects and the decisions about them; a changed EndpointSlice costs one Service's decision.

    ``node_ports_everywhere`` is the mode's default for ``nodePortAddresses``; ``needed`` are the kinds that must have been listed
    before anything is written: add those that the sources deliver. Mutable, without I/O; what it hands out never changes.

    Law: ``resolve().state`` equals :func:`~kproxy_core.resolve.resolve.resolve` of ``snapshot()`` and the node's context,
    whatever changes led there and in whatever order.
    """

    def __init__(
        self, settings: Settings, node_ports_everywhere: bool = False, needed: frozenset[Kind] = NEEDED_BEFORE_FIRST_SYNC
    ) -> None:
        self._settings = settings
        self._node_ports_everywhere = node_ports_everywhere
        self._needed = needed
        self._interfaces: tuple[Address, ...] = ()
        self._watched = WatchedObjects(settings.node_name)
        self._settled: SettledServices | None = None
        self._node_told: tuple[Diagnostic, ...] = ()

    @property
    def synced(self) -> bool:
        """Whether every needed kind has been listed; before that the cluster is only half seen."""
        return self._needed <= self._watched.synced

    @property
    def listed(self) -> frozenset[Kind]:
        """The kinds whose complete list has been delivered."""
        return self._watched.synced

    @property
    def pending(self) -> bool:
        """Whether ``resolve`` may give another state than last time."""
        return bool(self._watched.pending)

    def apply(self, changes: Iterable[Change]) -> bool:
        """Take in changes; return whether any of them matters (a heartbeat, or an object of no concern, does not)."""
        earlier = self._watched.pending
        fresh = self._watched.pending = Pending()
        for change in changes:
            self._watched.apply(change)
        earlier.extend(fresh)
        self._watched.pending = earlier
        return bool(fresh)

    def set_interface_addresses(self, addresses: Iterable[Address]) -> bool:
        """Take in the addresses of the node's interfaces, all of them; return whether that matters."""
        self._interfaces = tuple(addresses)
        matters = self._settled is None or self._node_context() != self._settled.state.node
        self._watched.pending.node |= matters
        return matters

    @property
    def node(self) -> Node | None:
        """The proxy's own Node, None while it is unknown or gone."""
        return self._watched.view().node

    def snapshot(self) -> ClusterSnapshot:
        """The objects so far, as a value."""
        return self._watched.snapshot()

    def node_context(self) -> NodeContext:
        """What is known of the node now."""
        return self._node_context()

    def resolve(self) -> Resolution:
        """Bring the state up to date and tell what differs since the last call."""
        pending, self._watched.pending = self._watched.pending, Pending()
        if self._settled is not None and not pending:
            return Resolution(state=self._settled.state)
        first = self._settled is None
        settled = self._settled = self._settled or SettledServices(self._node_context())
        touched = pending.services
        node_changed = first
        if pending.node:
            moved = self._move(settled)
            node_changed |= moved is not None
            touched = touched | (moved or frozenset())
        for before, after in pending.retold:
            settled.diagnostics.replace(before, after)
        for name in touched:
            settled.put(name, self._decide(name, settled.state.node))
        dirty, gone = settled.settle()
        return Resolution(
            state=settled.state,
            dirty=dirty,
            node_changed=node_changed,
            trigger_times=tuple(time for owner, time in pending.trigger_times if owner in settled),
            gone_frontends=gone,
        )

    def _move(self, settled: SettledServices) -> frozenset[ObjectName] | None:
        """Take over the node as it is now; return the Services to decide again, or None when it is as before."""
        node, before = self._node_context(), settled.state.node
        told = node_diagnostics(self._watched.view(), node, self._settings)
        settled.diagnostics.replace(self._node_told, told)
        self._node_told = told
        if node == before:
            return None
        settled.move_to(node)
        return frozenset(self._watched.service_names()) if relevant(node) != relevant(before) else frozenset()

    def _decide(self, name: ObjectName, node: NodeContext) -> ResolvedService | None:
        service = self._watched.service(name)
        if service is None or not is_proxied(service):
            return None
        return resolve_service(service, self._watched.slices(name), node, self._settings)

    def _node_context(self) -> NodeContext:
        return node_context(
            self._watched.view(), self._interfaces, self._settings, node_ports_everywhere=self._node_ports_everywhere
        )
