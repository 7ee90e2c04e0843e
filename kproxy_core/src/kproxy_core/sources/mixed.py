"""Puts together the objects of several texts: opens Lists, settles equal names, lets Endpoints yield to EndpointSlices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen

from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Node, Service, ServiceCIDR
from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.decode import CODECS, Decoded, decode_data
from kproxy_core.sources.spelling import misspelt

DEEPEST_LIST = 4
"""Lists in Lists."""

_KINDS: Mapping[type[WatchedObject], Kind] = {
    Service: Kind.SERVICE,
    EndpointSlice: Kind.ENDPOINT_SLICE,
    Node: Kind.NODE,
    ServiceCIDR: Kind.SERVICE_CIDR,
}


_LISTS = frozenset({"List", *(f"{kind}List" for _, kind in CODECS)})


@frozen(kw_only=True)
class Origin:
    """The objects of one text; ``name`` is the file's, for people."""

    name: str
    decoded: tuple[Decoded, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


@frozen
class Place:
    """Where an object is written: its file, its line (0: unknown), and its path within the document, for items of Lists."""

    file: str = ""
    line: int = 0
    path: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}, {self.path}" if where and self.path else where or self.path


_NOWHERE = Place()


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


def decode_document(data: object, place: Place = _NOWHERE, item_lines: Sequence[int] = ()) -> Iterator[Decoded]:
    """Decode one document; a List, of mixed kinds or of one, gives each of its items.

    What is told names ``place``; ``item_lines`` are the lines at which the items of a List begin, where these are known. A List
    that YAML aliases repeat is opened once: the same objects again would only be in each other's way, and aliases of aliases make
    billions of them out of a few lines.
    """
    for found, where in _opened(data, place, item_lines, 0, set()):
        decoded = found if isinstance(found, Decoded) else _with_spelling(decode_data(found), found)
        yield evolve(decoded, place=str(where), diagnostics=tuple(evolve(d, place=str(where)) for d in decoded.diagnostics))


def _opened(
    data: object, place: Place, item_lines: Sequence[int], depth: int, opened: set[int]
) -> Iterator[tuple[object, Place]]:
    """The objects of a document and where they are; a Decoded in place of a List that cannot be opened."""
    kind = data.get("kind") if isinstance(data, dict) else None
    items = data.get("items") if isinstance(data, dict) else None
    is_list = isinstance(kind, str) and kind.endswith("List") and (isinstance(items, list) or kind in _LISTS)
    if not (isinstance(data, dict) and isinstance(kind, str) and is_list):
        yield data, place
        return
    if depth == DEEPEST_LIST:
        yield _list_fault(kind, "nested too deeply; left out", "write one flat List"), place
    elif items is not None and not isinstance(items, list):
        yield _list_fault(kind, "items is no list; left out", "write a list of objects"), place
    elif id(items) not in opened:
        opened.add(id(items))
        for index, item in enumerate(items or ()):
            line = item_lines[index] if index < len(item_lines) else 0
            path = f"{place.path}.items[{index}]".removeprefix(".")
            where = Place(place.file, line) if line else Place(place.file, place.line, path)
            yield from _opened(_with_kind(item, data, kind), where, (), depth + 1, opened)


def _with_kind(item: object, parent: Mapping[Any, Any], kind: str) -> object:
    """Items of a typed list, as the API server gives them, do not repeat their kind."""
    if kind == "List" or not isinstance(item, dict) or "kind" in item:
        return item
    return {"apiVersion": parent.get("apiVersion"), "kind": kind.removesuffix("List"), **item}


def _list_fault(kind: str, message: str, remedy: str) -> Decoded:
    return Decoded(diagnostics=(Diagnostic(severity=Severity.ERROR, subject=kind, message=message, remedy=remedy),))


def _with_spelling(decoded: Decoded, data: object) -> Decoded:
    """Add the fields that are none: only here, because nobody types what comes from an API server."""
    kind = data.get("kind") if isinstance(data, dict) else None
    version = data.get("apiVersion") if isinstance(data, dict) else None
    if not (isinstance(kind, str) and isinstance(version, str) and (version, kind) in CODECS):
        return decoded
    subject = decoded.meta.subject if decoded.meta else decoded.diagnostics[0].subject if decoded.diagnostics else kind
    found = tuple(misspelt(data, kind, subject))
    return evolve(decoded, diagnostics=(*decoded.diagnostics, *found)) if found else decoded


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
                    endpoints.append((decoded.place or origin.name, found))
                else:
                    _collect(collected[_KINDS[type(found)]], found, decoded.place or origin.name)
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
            place=place,
        )
    )
