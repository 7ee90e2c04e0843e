"""Makes a cluster in which something goes wrong as small as it can be and still go wrong."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import msgspec
from attrs import evolve, frozen

from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Service
from kproxy_core.model.snapshot import ClusterSnapshot
from kproxy_core.testing.oracle import Scene

_KEPT = frozenset({"name", "uid", "service", "family", "node_name", "cluster_ips", "mode"})
"""Fields by which things refer to one another, or which make them what they are."""


@frozen(kw_only=True)
class Story:
    """A scene, and the cluster that was there before it, if that matters; ``seed`` orders what differs."""

    scene: Scene
    before: ClusterSnapshot | None = None
    seed: int = 0


def shrunk(story: Story, goes_wrong: Callable[[Story], bool], seconds: float) -> Story:
    """The smallest story found within so many seconds that still goes wrong, taking away one thing at a time."""
    end = time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(story):
            if time.monotonic() > end:
                return story
            if goes_wrong(smaller):
                story, progress = smaller, True
                break
    return story


def _smaller(story: Story) -> Iterator[Story]:
    scene = story.scene
    if story.before is not None:
        yield evolve(story, before=None)
    for snapshot in _smaller_snapshots(scene.snapshot):
        yield evolve(story, scene=evolve(scene, snapshot=snapshot))
    for snapshot in _smaller_snapshots(story.before) if story.before is not None else ():
        yield evolve(story, before=snapshot)
    for settings in _simpler(scene.settings):
        yield evolve(story, scene=evolve(scene, settings=settings))


def _smaller_snapshots(snapshot: ClusterSnapshot) -> Iterator[ClusterSnapshot]:
    """Coarse steps first: whole Services with their slices, slices, then what is in them."""
    for name in snapshot.services:
        yield evolve(snapshot, services=_without(snapshot.services, name), slices=_without(snapshot.slices, name))
    pieces = [piece for owned in snapshot.slices.values() for piece in owned.values()]
    for piece in pieces:
        yield _with_slice(snapshot, piece, None)
    for number in snapshot.service_cidrs:
        yield evolve(snapshot, service_cidrs=_without(snapshot.service_cidrs, number))
    for piece in pieces:
        for fewer in _shorter(piece.endpoints):
            yield _with_slice(snapshot, piece, evolve(piece, endpoints=fewer))
    for name, service in snapshot.services.items():
        for simpler in _simpler_services(service):
            yield evolve(snapshot, services={**snapshot.services, name: simpler})
    for piece in pieces:
        for simpler_piece in _simpler_slices(piece):
            yield _with_slice(snapshot, piece, simpler_piece)
    for node in _simpler(snapshot.node) if snapshot.node is not None else ():
        yield evolve(snapshot, node=node)


def _simpler_services(service: Service) -> Iterator[Service]:
    yield from _simpler(service)
    for name in ("ports", "external_ips", "ingress", "cluster_ips"):
        for fewer in _shorter(getattr(service, name)):
            if fewer:
                yield _replaced(service, name, fewer)
    for index, port in enumerate(service.ports):
        for simpler in _simpler(port):
            yield evolve(service, ports=(*service.ports[:index], simpler, *service.ports[index + 1 :]))


def _simpler_slices(piece: EndpointSlice) -> Iterator[EndpointSlice]:
    yield from _simpler(piece)
    for fewer in _shorter(piece.ports):
        yield evolve(piece, ports=fewer)
    for index, entry in enumerate(piece.endpoints):
        for simpler in _simpler(entry):
            yield evolve(piece, endpoints=(*piece.endpoints[:index], simpler, *piece.endpoints[index + 1 :]))


def _shorter(things: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    for index in range(len(things)):
        yield (*things[:index], *things[index + 1 :])


def _simpler(thing: Any) -> Iterator[Any]:
    """The same with one field as it is by default."""
    for name, default in _defaults(type(thing)).items():
        if name not in _KEPT and getattr(thing, name) != default:
            yield _replaced(thing, name, default)


def _replaced(thing: Any, name: str, value: Any) -> Any:
    fields = {name: value}
    return msgspec.structs.replace(thing, **fields) if isinstance(thing, msgspec.Struct) else evolve(thing, **fields)


def _defaults(kind: Any) -> Mapping[str, Any]:
    if issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        return {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}
    return {
        field.name: field.default.factory() if isinstance(field.default, attrs.Factory) else field.default  # type: ignore[arg-type]
        for field in attrs.fields(kind)
        if field.default is not attrs.NOTHING
    }


def _with_slice(snapshot: ClusterSnapshot, old: EndpointSlice, new: EndpointSlice | None) -> ClusterSnapshot:
    owned: dict[ObjectName, EndpointSlice] = dict(snapshot.slices[old.service])
    if new is None:
        del owned[old.name]
    else:
        owned[old.name] = new
    return evolve(snapshot, slices={**snapshot.slices, old.service: owned})


def _without(mapping: Mapping[Any, Any], key: Any) -> dict[Any, Any]:
    return {name: value for name, value in mapping.items() if name != key}
