"""What an endpoint takes in memory on its way from the API's bytes to the kernel: counted at two sizes, and the difference taken.

A cluster has some ten times as many endpoints as Services. An object for each of them, anywhere on the way, shows here.
"""

import gc
import struct
import tracemalloc
from collections.abc import Callable, Iterator

import msgspec
import pytest
from attrs import frozen

from kproxy_core.config.settings import Settings
from kproxy_core.engine.changes import ChangeTracker
from kproxy_core.engine.compile import compile_ports
from kproxy_core.model.addresses import parse_address, parse_network
from kproxy_core.model.changes import Replaced, WatchedObject
from kproxy_core.model.snapshot import Kind
from kproxy_core.program.delta import diff_programs
from kproxy_core.program.program import Program, link
from kproxy_core.sources.decode import ENDPOINT_SLICES, SERVICES, AnyCodec, decode_object
from kproxy_nftables import numbered, plan
from kproxy_nftables.backend import NftablesBackend
from kproxy_nftables.objects import Key, Value

COUNT = 200
"""Services."""
FEW, MANY = 10, 60
"""Endpoints of each."""

ENTRY = 60
"""Bytes that one more endpoint may take for good: its address in the slice, in the state and in the kernel's rows, and what kind
of endpoint it is. As objects it took 400."""
SERVICE = 6000
"""Bytes that one more Service may take for good, with ten endpoints; they were 8,900."""
MESSAGE = 120
"""Bytes that one more endpoint may take while it is on its way into the kernel, those included; they were 560."""


@frozen
class Cost:
    """Bytes, and objects that the garbage collector visits."""

    kept: int
    visited: int
    peak: int


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Fill what is made once: caches, tables of names."""
    for count in (FEW, MANY):
        load(2 * COUNT, count)


def load(services: int, endpoints: int) -> object:
    """Everything a process keeps of a cluster."""
    tracker = ChangeTracker(Settings(node_name="node-1", cluster_cidrs=(parse_network("10.128.0.0/9"),)))
    tracker.set_interface_addresses([parse_address("192.0.2.1")])
    made = (decoded(SERVICES, map(service, range(services))), decoded(ENDPOINT_SLICES, slices(services, endpoints)))
    kinds = (Kind.SERVICE, Kind.ENDPOINT_SLICE)
    tracker.apply([Replaced(kind=kind, objects=objects) for kind, objects in zip(kinds, made, strict=True)])
    del made
    state = tracker.resolve().state
    backend = NftablesBackend()
    compiled = compile_ports(backend, state, state.ports, {}, 1)
    assert not compiled.broken
    fragments = {port: fragment for port, fragment in compiled.updates.items() if fragment}
    program: Program[Key, Value] = link(fragments, backend.scaffold(state.node))
    assert len(backend.plan(Program(), diff_programs(Program(), program))) > 10
    return tracker, program


def cost(make: Callable[[], object]) -> Cost:
    """Measure what something takes."""
    gc.collect()
    visited = len(gc.get_objects())
    tracemalloc.start()
    try:
        kept = make()
        gc.collect()
        size, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    found = Cost(size, len(gc.get_objects()) - visited, peak)
    del kept
    return found


def test_an_endpoint_more_is_a_few_bytes_more_and_no_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_PIECE", 64)  # as small beside what there is as in a large cluster
    few, many = (cost(lambda count=count: load(COUNT, count)) for count in (FEW, MANY))  # type: ignore[misc]
    more = COUNT * (MANY - FEW)
    assert (many.kept - few.kept) / more < ENTRY
    assert (many.visited - few.visited) / more < 0.01
    assert (many.peak - few.peak) / more < MESSAGE


def test_a_service_more_is_a_few_kilobytes_more() -> None:
    one, two = (cost(lambda count=count: load(count, FEW)) for count in (COUNT, 2 * COUNT))  # type: ignore[misc]
    assert (two.kept - one.kept) / COUNT < SERVICE


def test_what_is_read_back_is_never_there_element_by_element() -> None:
    def elements() -> Iterator[tuple[bytes, bytes]]:
        for slot in range(FEW):
            for identity in range(10 * COUNT):
                yield struct.pack("=II", identity, slot), struct.pack("=II", identity, slot)

    assert cost(lambda: numbered.gathered(elements())).peak / (10 * COUNT * FEW) < 60


# -- the cluster, as the API server tells it


def decoded(codec: AnyCodec, documents: Iterator[object]) -> tuple[WatchedObject, ...]:
    return tuple(found for each in documents for found in decode_object(msgspec.json.encode(each), codec).objects)


def service(number: int) -> object:
    return {
        "metadata": {"name": f"service-{number}", "namespace": "bench", "uid": f"{number:036}", "resourceVersion": f"{number}"},
        "spec": {"clusterIP": f"10.96.{number >> 8}.{number & 255}", "ports": [{"name": "http", "port": 80}]},
    }


def slices(services: int, endpoints: int) -> Iterator[object]:
    for number in range(services):
        name = f"service-{number}"
        labels = {"kubernetes.io/service-name": name}
        yield {
            "metadata": {"name": f"{name}-abcde", "namespace": "bench", "labels": labels, "resourceVersion": f"{number}"},
            "addressType": "IPv4",
            "endpoints": [
                {
                    "addresses": [f"10.{128 + place}.{number >> 8}.{number & 255}"],
                    "conditions": {"ready": True},
                    "nodeName": f"node-{place}",
                }
                for place in range(endpoints)
            ],
            "ports": [{"name": "http", "port": 8080}],
        }
