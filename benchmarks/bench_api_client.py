"""API bytes to objects: the kubernetes source beside the official client's models, on the same answers of the same server."""

import gc
import itertools
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.measure import Table, peak_memory

SERVICES = 10_000
ENDPOINTS = 10
EVENTS = 20_000
PEER_EVENTS = 4_000
BATCH = 500
PATIENCE = 300.0

THRESHOLDS = (50_000, 20, 100)
"""Of the garbage collector, as kproxy's daemon sets them."""

Figures = dict[str, float]
Client = Callable[[str, Connection, int], None]


def run() -> list[Table]:
    """List 10,000 Services and their EndpointSlices, then watch changes of slices, by each client in a process of its own.

    kproxy runs with the garbage collector's thresholds that its daemon sets; the official client with Python's own, and with
    kproxy's.
    """
    from kproxy_core.testing.fake_api import Cluster, FakeApi, User, write_kubeconfig

    size = f"{SERVICES} Services + {SERVICES} EndpointSlices x {ENDPOINTS} endpoints"
    decoding = Table(f"decoding of {size}, bytes in memory -> objects")
    listing = Table(f"list of {size}: API server -> objects, the client's whole process")
    watching = Table("watch: changed EndpointSlices -> objects, the client's whole process")
    with tempfile.TemporaryDirectory() as directory, FakeApi(tls=False) as api:
        api.apply_all(_services())
        api.apply_all(_slice(index, 0) for index in range(SERVICES))
        config = str(write_kubeconfig(Path(directory) / "kubeconfig", Cluster(server=api.url), User(token="secret")))
        for name, decode in DECODERS.items():
            decoding.rows.append(_row(name, _in_process(decode, config, 0, lambda: None), ("cpu s",)))
        for name, (client, events, streams) in CLIENTS.items():
            api.faults.streaming_lists = streams
            figures = _in_process(client, config, events, lambda: _change(api, events))  # noqa: B023 - called at once
            listing.rows.append(_row(name, figures, ("cpu s", "wall s", "peak MiB")))
            watching.rows.append(_row(name, figures, ("events", "cpu us per event", "events per cpu second")))
    for table, column in ((decoding, "cpu s"), (listing, "cpu s"), (watching, "cpu us per event")):
        peer = next(float(row[column]) for row in table.rows if row["client"] == OFFICIAL)
        for row in table.rows:
            row["times less cpu"] = round(peer / float(row[column]), 1)
    return [decoding, listing, watching]


def _row(client: str, figures: Figures, names: Iterable[str]) -> dict[str, str | float | int]:
    return {"client": client, **{name: round(figures[name], 3) for name in names}}


def _change(api: Any, events: int) -> None:
    """Change slices, in batches, without waiting for anybody."""
    for start in range(0, events, BATCH):
        api.apply_all(_slice(index % SERVICES, 1 + index // SERVICES) for index in range(start, min(start + BATCH, events)))


def _in_process(client: Client, config: str, events: int, change: Callable[[], None]) -> Figures:
    """Run a client in a fresh process: it says when it watches, is sent the changes, and tells its figures."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=client, args=(config, theirs, events))
    process.start()
    theirs.close()  # so that its end is seen here
    try:
        if not ours.poll(PATIENCE):
            raise RuntimeError(f"{client.__name__} does not get its lists")
        ours.recv()
        change()
        if not ours.poll(PATIENCE):
            raise RuntimeError(f"{client.__name__} does not get its events")
        figures: Figures = ours.recv()
    finally:
        process.join(10)
        process.kill()
    return figures


@contextmanager
def _told(pipe: Connection, events: int) -> Iterator[tuple[Callable[[], None], Figures]]:
    """Measure the lists up to a call of the first value, and the events from there to the end of the body."""
    figures: Figures = {}
    cpu, wall = time.process_time(), time.perf_counter()

    def listed() -> None:
        nonlocal cpu
        figures["cpu s"] = time.process_time() - cpu
        figures["wall s"] = time.perf_counter() - wall
        figures["peak MiB"] = peak_memory()
        cpu = time.process_time()
        pipe.send("listed")

    yield listed, figures
    spent = time.process_time() - cpu
    figures |= {"events": events, "cpu us per event": spent / events * 1e6, "events per cpu second": events / spent}
    pipe.send(figures)


def _kproxy(config: str, pipe: Connection, events: int) -> None:
    from kproxy_core.model.changes import Change, Replaced
    from kproxy_core.model.snapshot import Kind
    from kproxy_core.sources.kubernetes import ApiAccess, KubernetesSource

    gc.set_threshold(*THRESHOLDS)
    access = ApiAccess.from_kubeconfig(config)
    missing = {Kind.SERVICE, Kind.ENDPOINT_SLICE}
    is_listed, is_done = threading.Event(), threading.Event()

    class Counting:
        """An inbox that keeps what is listed and counts what changes."""

        kept: list[Change]
        changed = 0

        def __init__(self) -> None:
            self.kept = []

        def put(self, changes: Iterable[Change], /) -> None:
            for change in changes:
                if isinstance(change, Replaced):
                    self.kept.append(change)
                    missing.discard(change.kind)
                    if not missing:
                        is_listed.set()
                else:
                    self.changed += 1
                    if self.changed == events:
                        is_done.set()

        def fileno(self) -> int:
            return -1

        def take(self) -> tuple[Change, ...]:
            return ()

        def close(self) -> None:
            pass

    source = KubernetesSource(access, "")
    with _told(pipe, events) as (listed, _):
        source.start(Counting())
        is_listed.wait(PATIENCE)
        listed()
        is_done.wait(PATIENCE)
    source.stop()


def _official(config: str, pipe: Connection, events: int) -> None:
    from kubernetes import client, watch
    from kubernetes.config import load_kube_config

    load_kube_config(config)
    core, discovery = client.CoreV1Api(), client.DiscoveryV1Api()
    core.list_node()  # imports the models it needs before the time is taken
    with _told(pipe, events) as (listed, _):
        kept = [core.list_service_for_all_namespaces(resource_version="0")]
        slices = discovery.list_endpoint_slice_for_all_namespaces(resource_version="0")
        kept.append(slices)
        listed()
        version = slices.metadata.resource_version
        stream = watch.Watch().stream(discovery.list_endpoint_slice_for_all_namespaces, resource_version=version)
        for _ in itertools.islice(stream, events):
            pass


def _official_tuned(config: str, pipe: Connection, events: int) -> None:
    gc.set_threshold(*THRESHOLDS)
    _official(config, pipe, events)


def _bodies(config: str) -> dict[str, bytes]:
    """The two list bodies, by kind."""
    from kproxy_core.sources.kubernetes import ApiAccess, ApiConnection

    connection = ApiConnection(ApiAccess.from_kubeconfig(config))
    found = {}
    for kind, path in (("Service", "/api/v1/services"), ("EndpointSlice", "/apis/discovery.k8s.io/v1/endpointslices")):
        with connection.get(path, (("resourceVersion", "0"),)) as answer:
            found[kind] = answer.read()
    connection.close()
    return found


def _timed(pipe: Connection, decode: Callable[[], object]) -> None:
    """Tell the best of three runs: the first ones also fill caches."""
    spent = []
    for _ in range(3):
        gc.collect()
        started = time.process_time()
        kept = decode()
        spent.append(time.process_time() - started)
        del kept
    pipe.send("listed")
    pipe.send({"cpu s": min(spent)})


def _decode_structs(config: str, pipe: Connection, _: int) -> None:
    from kproxy_core.model.snapshot import Kind
    from kproxy_core.sources.decode import WATCHED
    from kproxy_core.sources.kubernetes.events import LIST

    gc.set_threshold(*THRESHOLDS)
    bodies = _bodies(config)

    def decode() -> object:
        return [
            WATCHED[Kind(kind)].decoder.decode(item) for kind, body in bodies.items() for item in LIST.decode(body).items or ()
        ]

    _timed(pipe, decode)


def _decode_values(config: str, pipe: Connection, _: int) -> None:
    from kproxy_core.model.snapshot import Kind
    from kproxy_core.sources.decode import WATCHED, decode_list

    gc.set_threshold(*THRESHOLDS)
    bodies = _bodies(config)
    _timed(pipe, lambda: [decode_list(body, WATCHED[Kind(kind)]) for kind, body in bodies.items()])


def _decode_official(config: str, pipe: Connection, _: int) -> None:
    from kubernetes.client import ApiClient, CoreV1Api, DiscoveryV1Api

    bodies = {kind: body.decode() for kind, body in _bodies(config).items()}
    client = ApiClient()
    CoreV1Api(client), DiscoveryV1Api(client)  # imports the models
    _timed(pipe, lambda: [client.deserialize(body, f"V1{kind}List", "application/json") for kind, body in bodies.items()])


def _decode_official_tuned(config: str, pipe: Connection, events: int) -> None:
    gc.set_threshold(*THRESHOLDS)
    _decode_official(config, pipe, events)


OFFICIAL = "official client's models"
TUNED = "official client's models, thresholds as kproxy's"
DECODERS: dict[str, Client] = {
    "kproxy, msgspec structs": _decode_structs,
    "kproxy, checked values with parsed addresses": _decode_values,
    OFFICIAL: _decode_official,
    TUNED: _decode_official_tuned,
}
CLIENTS: dict[str, tuple[Client, int, bool]] = {
    "kproxy, streaming list": (_kproxy, EVENTS, True),
    "kproxy, list at version 0": (_kproxy, EVENTS, False),
    OFFICIAL: (_official, PEER_EVENTS, True),
    TUNED: (_official_tuned, PEER_EVENTS, True),
}


def _services() -> Iterator[dict[str, Any]]:
    for index in range(SERVICES):
        managed: dict[str, Any] = {
            "f:spec": {"f:internalTrafficPolicy": {}, "f:ports": {".": {}, 'k:{"port":80,"protocol":"TCP"}': {".": {}}}}
        }
        yield {
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {
                "name": f"svc-{index}",
                "namespace": f"ns-{index % 50}",
                "labels": {"app": f"app-{index}"},
                "managedFields": [_manager("kubectl", managed)],
            },
            "spec": {
                "clusterIP": f"10.96.{index // 250}.{index % 250 + 1}",
                "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
                "selector": {"app": f"app-{index}"},
            },
        }


def _slice(index: int, change: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"f:addressType": {}, "f:endpoints": {}, "f:metadata": {"f:labels": {".": {}}}, "f:ports": {}}
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": f"svc-{index}-abcde",
            "namespace": f"ns-{index % 50}",
            "labels": {"app": f"app-{index}", "kubernetes.io/service-name": f"svc-{index}"},
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-31T12:00:00Z"},
            "managedFields": [_manager("kube-controller-manager", fields)],
        },
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": [_pod_address((change * SERVICES + index) * ENDPOINTS + number)],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "nodeName": f"node-{number}",
                "zone": f"zone-{number % 3}",
                "targetRef": {
                    "kind": "Pod",
                    "namespace": f"ns-{index % 50}",
                    "name": f"app-{index}-{number}",
                    "uid": f"uid-{number}",
                },
            }
            for number in range(ENDPOINTS)
        ],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }


def _pod_address(number: int) -> str:
    return f"10.{128 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def _manager(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"manager": name, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}
