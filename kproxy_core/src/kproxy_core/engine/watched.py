"""WatchedObjects: what the sources have delivered so far, and which Services an event concerns."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from attrs import define, field

from kproxy_core.model.changes import Change, Deleted, Replaced, Upserted, WatchedObject
from kproxy_core.model.diagnostics import Diagnostic
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Node, Service, ServiceCIDR
from kproxy_core.model.snapshot import ClusterSnapshot, Kind
from kproxy_core.resolve.frontends import is_proxied
from kproxy_core.resolve.guard import API_SERVER_SERVICE

Named = TypeVar("Named", Service, ServiceCIDR)
Told = tuple[Diagnostic, ...]


@define
class Pending:
    """What has changed since the last resolve.

    ``services`` need a new decision; ``node`` says that the NodeContext may differ; ``retold`` are pairs of a source's earlier
    and present Diagnostics about one object; ``trigger_times`` belong to changed EndpointSlices, by owner.
    """

    services: set[ObjectName] = field(factory=set)
    node: bool = False
    retold: list[tuple[Told, Told]] = field(factory=list)
    trigger_times: list[tuple[ObjectName, float]] = field(factory=list)

    def __bool__(self) -> bool:
        return bool(self.services or self.node or self.retold)

    def extend(self, later: "Pending") -> None:
        """Add what came after."""
        self.services |= later.services
        self.node |= later.node
        self.retold += later.retold
        self.trigger_times += later.trigger_times


def same_endpoints(one: EndpointSlice, other: EndpointSlice) -> bool:
    """Whether two versions of a slice mean the same; a new trigger time alone does not count."""
    return one is other or (
        one.endpoints == other.endpoints
        and one.ports == other.ports
        and one.service == other.service
        and one.family is other.family
    )


class WatchedObjects:
    """The objects of the cluster, updated change by change. Mutable; :meth:`snapshot` gives a value."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name
        self._services: dict[ObjectName, Service] = {}
        self._slices: dict[ObjectName, dict[ObjectName, EndpointSlice]] = {}
        self._owners: dict[ObjectName, ObjectName] = {}
        self._node: Node | None = None
        self._service_cidrs: dict[str, ServiceCIDR] = {}
        self._synced: frozenset[Kind] = frozenset()
        self._told: dict[Kind, dict[str, Told]] = {kind: {} for kind in Kind}
        self.pending = Pending(node=True)

    @property
    def synced(self) -> frozenset[Kind]:
        """The kinds whose complete list has been delivered."""
        return self._synced

    def service(self, name: ObjectName) -> Service | None:
        """The Service of that name."""
        return self._services.get(name)

    def service_names(self) -> Iterable[ObjectName]:
        """The names of all Services."""
        return self._services.keys()

    def slices(self, service: ObjectName) -> Iterable[EndpointSlice]:
        """The EndpointSlices of a Service."""
        return self._slices.get(service, {}).values()

    def view(self) -> ClusterSnapshot:
        """The objects as they are, not copied: to be read at once and not kept."""
        return ClusterSnapshot(
            services=self._services,
            slices=self._slices,
            node=self._node,
            service_cidrs=self._service_cidrs,
            synced=self._synced,
        )

    def snapshot(self) -> ClusterSnapshot:
        """The objects as a value, with the sources' Diagnostics."""
        return ClusterSnapshot(
            services=dict(self._services),
            slices={owner: dict(parts) for owner, parts in self._slices.items()},
            node=self._node,
            service_cidrs=dict(self._service_cidrs),
            synced=self._synced,
            diagnostics=tuple(sorted(d for subjects in self._told.values() for told in subjects.values() for d in told)),
        )

    def apply(self, change: Change) -> None:
        """Take in one change; what it makes necessary is added to ``pending``."""
        match change:
            case Replaced(kind=kind, objects=objects, diagnostics=told):
                self._replace(kind, objects)
                self._retell_all(kind, told)
            case Upserted(object=new, diagnostics=told):
                self._put(new)
                self._retell(_kind(new), new.subject, told)
            case Deleted(kind=kind, name=name, diagnostics=told):
                self._remove(kind, name)
                self._retell(kind, f"{kind.value} {name}", told)

    def _replace(self, kind: Kind, objects: Iterable[WatchedObject]) -> None:
        """Make ``objects`` all there is of a kind."""
        stale = set(self._names(kind))
        for new in objects:
            self._put(new)
            stale.discard(_name(new))
        for name in stale:
            self._remove(kind, name)
        if kind not in self._synced:
            self._synced |= {kind}
            self.pending.node = True

    def _names(self, kind: Kind) -> Iterable[ObjectName]:
        match kind:
            case Kind.SERVICE:
                return self._services
            case Kind.ENDPOINT_SLICE:
                return self._owners
            case Kind.NODE:
                return [ObjectName("", self._node.name)] if self._node else []
            case Kind.SERVICE_CIDR:
                return [ObjectName("", name) for name in self._service_cidrs]

    def _put(self, new: WatchedObject) -> None:
        match new:
            case EndpointSlice():
                self._put_slice(new)
            case Service():
                self._touch_service(self._services.get(new.name), new)
                self._services[new.name] = new
            case Node():
                if new.name == self._node_name:
                    self.pending.node |= new != self._node
                    self._node = new
            case ServiceCIDR():
                self.pending.node |= new != self._service_cidrs.get(new.name)
                self._service_cidrs[new.name] = new

    def _remove(self, kind: Kind, name: ObjectName) -> None:
        match kind:
            case Kind.SERVICE:
                self._touch_service(self._services.pop(name, None), None)
            case Kind.ENDPOINT_SLICE:
                self._remove_slice(name)
            case Kind.NODE:
                if self._node is not None and self._node.name == name.name:
                    self._node = None
                    self.pending.node = True
            case Kind.SERVICE_CIDR:
                self.pending.node |= self._service_cidrs.pop(name.name, None) is not None

    def _touch_service(self, old: Service | None, new: Service | None) -> None:
        """A Service of no concern before and after needs no decision, nor does one that says the same again."""
        if old is new or old == new:
            return
        for version in (old, new):
            if version is not None and is_proxied(version):
                self.pending.services.add(version.name)

    def _put_slice(self, new: EndpointSlice) -> None:
        owner = self._owners.get(new.name)
        old = self._slices[owner][new.name] if owner is not None else None
        if old is not None and not same_endpoints(old, new):
            self._touch_owner(old)
        if old is None or not same_endpoints(old, new):
            self._touch_owner(new)
            if new.trigger_time is not None:
                self.pending.trigger_times.append((new.service, new.trigger_time))
        if owner is not None and owner != new.service:
            self._forget_slice(new.name)
        self._owners[new.name] = new.service
        self._slices.setdefault(new.service, {})[new.name] = new

    def _remove_slice(self, name: ObjectName) -> None:
        if name in self._owners:
            self._touch_owner(self._slices[self._owners[name]][name])
            self._forget_slice(name)

    def _forget_slice(self, name: ObjectName) -> None:
        owner = self._owners.pop(name)
        parts = self._slices[owner]
        del parts[name]
        if not parts:
            del self._slices[owner]

    def _touch_owner(self, part: EndpointSlice) -> None:
        """Slices of a Service that is unknown, or of no concern, change nothing, save those of the API server."""
        service = self._services.get(part.service)
        if service is not None and is_proxied(service):
            self.pending.services.add(part.service)
        if part.service == API_SERVER_SERVICE:
            self.pending.node = True

    def _retell_all(self, kind: Kind, told: Told) -> None:
        by_subject: dict[str, list[Diagnostic]] = {}
        for diagnostic in told:
            by_subject.setdefault(diagnostic.subject, []).append(diagnostic)
        for subject in self._told[kind].keys() - by_subject.keys():
            self._retell(kind, subject, ())
        for subject, diagnostics in by_subject.items():
            self._retell(kind, subject, tuple(diagnostics))

    def _retell(self, kind: Kind, subject: str, told: Told) -> None:
        subjects = self._told[kind]
        before = subjects.get(subject, ())
        if before == told:
            return
        self.pending.retold.append((before, told))
        if told:
            subjects[subject] = told
        else:
            del subjects[subject]


_KINDS: Mapping[type[WatchedObject], Kind] = {
    Service: Kind.SERVICE,
    EndpointSlice: Kind.ENDPOINT_SLICE,
    Node: Kind.NODE,
    ServiceCIDR: Kind.SERVICE_CIDR,
}


def _kind(watched: WatchedObject) -> Kind:
    return _KINDS[type(watched)]


def _name(watched: WatchedObject) -> ObjectName:
    return ObjectName("", watched.name) if isinstance(watched, Node | ServiceCIDR) else watched.name
