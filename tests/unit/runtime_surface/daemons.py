"""A daemon in a thread, on the in-memory kernel, that shows its surface on free ports."""

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from attrs import define, evolve, frozen

from kproxy_core.config.settings import NodePortScope, Settings
from kproxy_core.model.addresses import parse_address
from kproxy_core.model.changes import Change
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Service, ServiceType, SliceEndpoint, SlicePort, TrafficPolicy
from kproxy_core.model.snapshot import NEEDED_BEFORE_FIRST_SYNC, Kind
from kproxy_core.runtime.control import Control
from kproxy_core.runtime.daemon import run_daemon
from kproxy_core.runtime.http_listeners import ListenAddress
from kproxy_core.runtime.options import DaemonOptions
from kproxy_core.runtime.sources import Inbox
from kproxy_core.runtime.surface import SurfaceOptions
from kproxy_core.runtime.watches import WatchLife
from kproxy_core.testing.memory_backend import MemoryBackend, MemoryKernel
from kproxy_core.testing.sketch import NODE, name_of, service

PATIENCE = 20.0
LOOPBACK = parse_address("127.0.0.1")


def wait_until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.005)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


@frozen(kw_only=True)
class Got:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def get(port: int, path: str, host: str = "127.0.0.1", method: str = "GET") -> Got:
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return Got(status=answer.status, headers=dict(answer.getheaders()), body=answer.read())


class Fed:
    """A source that a test feeds, and whose watches do as the test says."""

    name = "the test"

    def __init__(self, changes: Iterable[Change], kinds: frozenset[Kind]) -> None:
        self.kinds = kinds
        self.inbox = Inbox()
        self.inbox.put(changes)
        self.lives: Mapping[Kind, WatchLife] = {}

    def fileno(self) -> int:
        return self.inbox.fileno()

    def poll(self) -> tuple[Change, ...]:
        return self.inbox.take()

    def close(self) -> None:
        self.inbox.close()

    def liveness(self) -> Mapping[Kind, WatchLife]:
        return self.lives


@define
class Shown:
    """A daemon that is looked at from outside."""

    kernel: MemoryKernel
    source: Fed
    control: Control
    healthz_port: int
    metrics_port: int
    status: list[int]

    def put(self, changes: Iterable[Change]) -> None:
        self.source.inbox.put(changes)

    def health(self, path: str = "/healthz") -> Got:
        return get(self.healthz_port, path)

    def metrics(self) -> dict[str, float]:
        """All samples, by name and labels as they are written."""
        lines = get(self.metrics_port, "/metrics").body.decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def wait_synced(self) -> None:
        wait_until(lambda: self.health("/livez").json["status"], "the first sync has ended")


@contextlib.contextmanager
def shown(changes: Iterable[Change] = (), **options: Any) -> Iterator[Shown]:
    """Run a daemon; ``kernel`` and fields of SurfaceOptions and Settings may be given."""
    kernel = options.pop("kernel", None) or MemoryKernel()
    settings = Settings(
        node_name=NODE,
        node_port_addresses=options.pop("node_port_addresses", NodePortScope.ALL),
        bind_address=LOOPBACK,
        sync_period=options.pop("sync_period", 30.0),
    )
    kinds = options.pop("kinds", NEEDED_BEFORE_FIRST_SYNC)
    ports = free_port(), free_port()
    healthz, metrics = (ListenAddress(address=LOOPBACK, port=port) for port in ports)
    surface = SurfaceOptions(mode="nftables", sync_period=settings.sync_period, healthz=healthz, metrics=metrics)
    source, control, status = Fed(changes, kinds), Control(), list[int]()
    made = DaemonOptions(
        settings=settings,
        backend=MemoryBackend(kernel, atomic=True),
        sources=(source,),
        addresses=(LOOPBACK, parse_address("192.0.2.1")),
        lock_name=None,
        clean_conntrack=False,
        surface=evolve(surface, **options),
    )
    thread = threading.Thread(target=lambda: status.append(run_daemon(made, control)))
    thread.start()
    wait_until(lambda: listens(ports[1]) or status, "it listens, or has ended")
    try:
        yield Shown(kernel, source, control, *ports, status)
    finally:
        control.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def balanced(text: str, address: str, health_port: int) -> Service:
    """A Service of type LoadBalancer with external policy Local and a health port."""
    return evolve(
        service(text, address),
        type=ServiceType.LOAD_BALANCER,
        external_policy=TrafficPolicy.LOCAL,
        health_check_node_port=health_port,
    )


def local_slice(text: str, *addresses: str, here: bool = True, port: int = 8080, suffix: str = "") -> EndpointSlice:
    """The slice of a Service with endpoints on this node, or on another."""
    owner = name_of(text)
    family = parse_address(addresses[0] if addresses else "10.0.0.0").family
    ready = tuple(SliceEndpoint(address=parse_address(each), node_name=NODE if here else "other") for each in addresses)
    return EndpointSlice(
        name=ObjectName(owner.namespace, f"{owner.name}-{family.label.lower()}{suffix}"),
        service=owner,
        family=family,
        endpoints=ready,
        ports=(SlicePort(port=port),),
    )
