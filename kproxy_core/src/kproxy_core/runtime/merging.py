"""Merges what several sources deliver: to the engine they are one."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from attrs import define, field

from kproxy_core.model.changes import Change, Deleted, Replaced, Upserted, WatchedObject
from kproxy_core.model.diagnostics import Diagnostic
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Node, Service, ServiceCIDR
from kproxy_core.model.snapshot import Kind
from kproxy_core.plugin.source import Source
from kproxy_core.runtime.logs import LOGGER

log = logging.getLogger(LOGGER)

_KINDS: Mapping[type[WatchedObject], Kind] = {
    Service: Kind.SERVICE,
    EndpointSlice: Kind.ENDPOINT_SLICE,
    Node: Kind.NODE,
    ServiceCIDR: Kind.SERVICE_CIDR,
}

Told = tuple[Diagnostic, ...]


@define(eq=False)
class _Listing:
    """What one source has delivered of one kind."""

    source: Source
    awaited: bool
    objects: dict[ObjectName, WatchedObject] = field(factory=dict)
    told: dict[str, Told] = field(factory=dict)

    def replace(self, change: Replaced) -> None:
        self.awaited = False
        self.objects = {_name(each): each for each in change.objects}
        self.told = {}
        for diagnostic in change.diagnostics:
            self.tell(diagnostic.subject, (*self.told.get(diagnostic.subject, ()), diagnostic))

    def tell(self, subject: str, told: Told) -> None:
        if told:
            self.told[subject] = told
        else:
            self.told.pop(subject, None)


class Merger:
    """Turns the changes of each source into changes of the whole.

    A kind is listed once all sources that name it have listed it: what the kernel has from before a restart would be lost
    otherwise. An object that two sources deliver is the one of the source that is named first, until that lets go of it.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._first = sources[0] if sources else None
        self._listings = {kind: [_Listing(source, kind in source.kinds) for source in sources] for kind in Kind}
        self._clashes: set[tuple[Kind, ObjectName]] = set()

    def merge(self, source: Source, changes: Iterable[Change]) -> tuple[Change, ...]:
        """Take in what a source has delivered; return what that changes."""
        return tuple(merged for change in changes for merged in self._merge(source, change))

    @property
    def awaited(self) -> tuple[str, ...]:
        """The sources, by name, that have not listed all their kinds."""
        late = (listing.source.name for listings in self._listings.values() for listing in listings if listing.awaited)
        return tuple(dict.fromkeys(late))

    def do_without(self) -> tuple[Change, ...]:
        """Wait no more for any source but the first; return what that makes complete. A source may still deliver later."""
        changes: list[Change] = []
        for kind, listings in self._listings.items():
            for listing in listings:
                if listing.awaited and listing.source is not self._first:
                    changes += self._replaced(kind, listing, Replaced(kind=kind, objects=()))
        return tuple(changes)

    def _merge(self, source: Source, change: Change) -> Iterable[Change]:
        kind = _KINDS[type(change.object)] if isinstance(change, Upserted) else change.kind
        listing = next(listing for listing in self._listings[kind] if listing.source is source)
        match change:
            case Replaced():
                return self._replaced(kind, listing, change)
            case Upserted(object=new, diagnostics=told):
                listing.objects[_name(new)] = new
                listing.tell(new.subject, told)
                return self._changed(kind, _name(new), told)
            case Deleted(name=name, diagnostics=told):
                listing.objects.pop(name, None)
                listing.tell(f"{kind.value} {name}", told)
                return self._changed(kind, name, told)

    def _replaced(self, kind: Kind, listing: _Listing, change: Replaced) -> Iterable[Change]:
        listing.replace(change)
        if not self._is_complete(kind):
            return ()
        listings = self._listings[kind]
        objects: dict[ObjectName, WatchedObject] = {}
        for each in listings:
            for name, found in each.objects.items():
                if name in objects:
                    self._clash(kind, name)
                else:
                    objects[name] = found
        told = tuple(diagnostic for each in listings for of_subject in each.told.values() for diagnostic in of_subject)
        return (Replaced(kind=kind, objects=tuple(objects.values()), diagnostics=told),)

    def _changed(self, kind: Kind, name: ObjectName, told: Told) -> Iterable[Change]:
        if not self._is_complete(kind):
            return ()
        holders = [listing for listing in self._listings[kind] if name in listing.objects]
        if not holders:
            return (Deleted(kind=kind, name=name, diagnostics=told),)
        if len(holders) > 1:
            self._clash(kind, name)
        chosen = holders[0].objects[name]
        return (Upserted(object=chosen, diagnostics=holders[0].told.get(chosen.subject, ())),)

    def _is_complete(self, kind: Kind) -> bool:
        return not any(listing.awaited for listing in self._listings[kind])

    def _clash(self, kind: Kind, name: ObjectName) -> None:
        if (kind, name) in self._clashes:
            return
        self._clashes.add((kind, name))
        holders = ", ".join(listing.source.name for listing in self._listings[kind] if name in listing.objects)
        log.warning("%s %s is delivered by several sources, the first of which counts: %s", kind.value, name, holders)


def _name(each: WatchedObject) -> ObjectName:
    return each.name if isinstance(each.name, ObjectName) else ObjectName("", each.name)
