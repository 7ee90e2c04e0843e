"""Recorded answers of kube-apiserver, and answers made up in the same form, for tests of the machine."""

import json
from pathlib import Path
from typing import Any

from kproxy_core.model.changes import Change, Replaced, Upserted
from kproxy_core.model.objects import EndpointSlice, Service
from kproxy_core.sources.kubernetes.events import Refusal
from kproxy_core.sources.kubernetes.machine import WatchMachine
from kproxy_core.sources.kubernetes.pace import Pace
from kproxy_core.sources.kubernetes.resources import SERVICES, WatchedResource

RECORDINGS = Path(__file__).with_name("recordings")
USUAL = Pace()


def recording(name: str) -> bytes:
    """The body of a recorded answer."""
    head, _, body = (RECORDINGS / f"{name}.http").read_bytes().partition(b"\n\n")
    assert head.startswith(b"> ")
    return body


def service(name: str, version: int, **more: Any) -> dict[str, Any]:
    """A Service as the API server sends it."""
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)},
        "spec": {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "ports": [{"port": 80, "protocol": "TCP"}], **more},
    }


def line(event: str, obj: dict[str, Any]) -> bytes:
    """One event of a watch."""
    return json.dumps({"type": event, "object": obj}).encode() + b"\n"


def bookmark(version: int, *, end: bool = False) -> bytes:
    """A bookmark; ``end`` makes it the one that ends a streaming list."""
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if end else {}
    return line("BOOKMARK", {"kind": "Service", "apiVersion": "v1", "metadata": {"resourceVersion": str(version), **annotations}})


def expired() -> bytes:
    """The 410 that arrives within a stream."""
    return recording("services-watch-too-old")


def machine(resource: WatchedResource = SERVICES, chance: float = 1.0, pace: Pace = USUAL) -> WatchMachine:
    """A machine whose chance is always the same."""
    return WatchMachine(resource, pace, lambda: chance)


def listed(version: int = 100, *services: dict[str, Any]) -> WatchMachine:
    """A machine that has its list from a streaming list at a version, and goes on reading the stream."""
    made = machine()
    made.next_request()
    made.accepted()
    made.receive(b"".join(line("ADDED", each) for each in services) + bookmark(version, end=True))
    assert made.position == str(version)
    return made


def query(made: WatchMachine) -> dict[str, str]:
    """The parameters of the next request."""
    return dict(made.next_request().query)


def names(changes: list[Change]) -> list[str]:
    """The names of the objects of some changes, in order."""
    found: list[str] = []
    for change in changes:
        if isinstance(change, Replaced):
            found.extend(str(each.name) for each in change.objects)
        else:
            found.append(str(change.object.name if isinstance(change, Upserted) else change.name))
    return found


def service_of(change: Change) -> Service:
    """The Service that was upserted."""
    assert isinstance(change, Upserted)
    assert isinstance(change.object, Service)
    return change.object


def slice_of(change: Change) -> EndpointSlice:
    """The EndpointSlice that was upserted."""
    assert isinstance(change, Upserted)
    assert isinstance(change.object, EndpointSlice)
    return change.object


def services_of(change: Change) -> dict[str, Service]:
    """The Services of a list by name."""
    assert isinstance(change, Replaced)
    return {each.name.name: each for each in change.objects if isinstance(each, Service)}


def list_body(version: int | str, *items: dict[str, Any], continued: str = "") -> bytes:
    metadata = {"resourceVersion": str(version), **({"continue": continued} if continued else {})}
    return json.dumps({"kind": "ServiceList", "apiVersion": "v1", "metadata": metadata, "items": items}).encode()


def plain_list_next() -> Any:
    """A machine whose server refused the streaming list."""
    made = machine()
    made.next_request()
    made.refused(Refusal(code=422, reason="Invalid"))
    made.ended(0.0)
    return made
