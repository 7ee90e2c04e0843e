"""What is written as a manifest decodes to the same objects."""

from collections.abc import Sequence
from typing import TypeVar

from attrs import evolve
from hypothesis import given, settings
from msgspec.structs import replace

from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.objects import EndpointSlice, Service, ServicePortSpec, SlicePort
from kproxy_core.model.snapshot import ClusterSnapshot
from kproxy_core.sources.documents import read_text
from kproxy_core.sources.mixed import decode_document
from kproxy_core.testing.manifests import manifests, objects_in
from kproxy_core.testing.strategies import snapshots


def decoded(text: str) -> list[WatchedObject]:
    documents = read_text(text.encode()).documents
    return [thing for document in documents for item in decode_document(document.data) for thing in item.objects]


P = TypeVar("P", ServicePortSpec, SlicePort)


def readable(thing: WatchedObject) -> WatchedObject:
    """Without what a decoder leaves out of an object: second ports of one name, addresses of another family, empty hints."""
    if isinstance(thing, Service):
        return evolve(thing, ports=first_of_each_name(thing.ports))
    if isinstance(thing, EndpointSlice):
        own = [entry for entry in thing.endpoints if entry.address.family is thing.family]
        endpoints = tuple(replace(e, zone_hints=e.zone_hints - {""}, node_hints=e.node_hints - {""}) for e in own)
        return evolve(thing, ports=first_of_each_name(thing.ports), endpoints=endpoints)
    return thing


def first_of_each_name(ports: Sequence[P]) -> tuple[P, ...]:
    return tuple({port.name: port for port in reversed(ports)}[name] for name in dict.fromkeys(port.name for port in ports))


@settings(max_examples=50)
@given(snapshots())
def test_objects_are_what_their_manifests_say(snapshot: ClusterSnapshot) -> None:
    objects = [readable(thing) for thing in objects_in(snapshot)]
    assert decoded(manifests(objects)) == objects
