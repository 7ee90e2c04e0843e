"""Puts together the objects of several texts: opens Lists, settles equal names, lets Endpoints yield to EndpointSlices."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import field, frozen

from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Node, Service, ServiceCIDR
from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.decode import Decoded, decode_data

DEEPEST_LIST = 4
"""Lists in Lists."""

_KINDS: Mapping[type[WatchedObject], Kind] = {
    Service: Kind.SERVICE,
    EndpointSlice: Kind.ENDPOINT_SLICE,
    Node: Kind.NODE,
    ServiceCIDR: Kind.SERVICE_CIDR,
}


@frozen(kw_only=True)
class Origin:
    """The objects of one text; ``name`` is the file's, for people."""

    name: str
    decoded: tuple[Decoded, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


@frozen(kw_only=True)
class Listing:
    """All objects of one kind, and what is to be told of them."""

    objects: tuple[WatchedObject, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.objects or self.diagnostics)


@frozen
class _Collected:
    objects: dict[ObjectName, WatchedObject] = field(factory=dict)
    places: dict[ObjectName, str] = field(factory=dict)
    told: list[Diagnostic] = field(factory=list)


def decode_document(data: object) -> Iterator[Decoded]:
    """Decode one document; a List, of mixed kinds or of one, gives each of its items.

    A List that YAML aliases repeat is opened once: the same objects again would only be in each other's way, and aliases of
    aliases make billions of them out of a few lines.
    """
    return _decode_opened(data, 0, set())


def _decode_opened(data: object, depth: int, opened: set[int]) -> Iterator[Decoded]:
    items = data.get("items") if isinstance(data, dict) else None
    kind = data.get("kind") if isinstance(data, dict) else None
    if not (isinstance(items, list) and isinstance(kind, str) and kind.endswith("List")):
        yield decode_data(data)
        return
    assert isinstance(data, dict)
    if depth == DEEPEST_LIST:
        yield Decoded(diagnostics=(_too_deep(kind),))
        return
    if id(items) in opened:
        return
    opened.add(id(items))
    for item in items:
        yield from _decode_opened(_with_kind(item, data, kind), depth + 1, opened)


def _with_kind(item: object, parent: Mapping[Any, Any], kind: str) -> object:
    """Items of a typed list, as the API server gives them, do not repeat their kind."""
    if kind == "List" or not isinstance(item, dict) or "kind" in item:
        return item
    return {"apiVersion": parent.get("apiVersion"), "kind": kind.removesuffix("List"), **item}


def _too_deep(kind: str) -> Diagnostic:
    return Diagnostic(severity=Severity.ERROR, subject=kind, message="nested too deeply; left out", remedy="write one flat List")


def combine(origins: Iterable[Origin]) -> dict[Kind, Listing]:
    """Put the objects of several texts together, by kind; all four kinds are there.

    Where two texts have an object of one name, the first text wins and the other is told. Endpoints count only for Services that
    have no EndpointSlice anywhere: a cluster's dump has both, and they say the same. What concerns no single object is told among
    the Services.
    """
    collected = {kind: _Collected() for kind in Kind}
    endpoints: list[tuple[str, EndpointSlice]] = []
    for origin in origins:
        collected[Kind.SERVICE].told.extend(origin.diagnostics)
        for decoded in origin.decoded:
            mirrored = decoded.meta is not None and decoded.meta.kind == "Endpoints"
            for found in decoded.objects:
                if mirrored and isinstance(found, EndpointSlice):
                    endpoints.append((origin.name, found))
                else:
                    _collect(collected[_KINDS[type(found)]], found, origin.name)
            collected[_told_with(decoded)].told.extend(decoded.diagnostics)
    slices = collected[Kind.ENDPOINT_SLICE]
    served = {part.service for part in slices.objects.values() if isinstance(part, EndpointSlice)}
    for place, part in endpoints:
        if part.service not in served:
            _collect(slices, part, place)
    return {
        kind: Listing(objects=tuple(found.objects.values()), diagnostics=tuple(found.told)) for kind, found in collected.items()
    }


def _told_with(decoded: Decoded) -> Kind:
    if decoded.meta is None or decoded.meta.kind == "Endpoints":
        return Kind.ENDPOINT_SLICE if decoded.meta else Kind.SERVICE
    return Kind(decoded.meta.kind)


def _collect(into: _Collected, found: WatchedObject, place: str) -> None:
    name = ObjectName("", found.name) if isinstance(found, Node | ServiceCIDR) else found.name
    if name not in into.objects:
        into.objects[name] = found
        into.places[name] = place
        return
    into.told.append(
        Diagnostic(
            severity=Severity.ERROR,
            subject=found.subject,
            message=f"the one in {place} is left out: {into.places[name]} has it already",
            remedy="keep one of them",
        )
    )
