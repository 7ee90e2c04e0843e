"""What the daemon shows over HTTP: its health, each Service's health, metrics and its mode."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from kproxy_core.engine.events import AddressesSeen, ChangesArrived, Event
from kproxy_core.engine.machine import Engine
from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.changes import Change, Deleted, Replaced, Upserted
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Service
from kproxy_core.model.snapshot import Kind
from kproxy_core.model.state import NodeContext, NodeState, ServiceHealth
from kproxy_core.plugin.backend import SyncReport
from kproxy_core.plugin.errors import UnsupportedError
from kproxy_core.runtime import health_answers
from kproxy_core.runtime.health_answers import NodeHealth
from kproxy_core.runtime.http_listeners import Answer, HttpListeners, ListenAddress
from kproxy_core.runtime.http_messages import Request, Response
from kproxy_core.runtime.logs import LOGGER
from kproxy_core.runtime.metrics import CONTENT_TYPE, Current, Metrics
from kproxy_core.runtime.watches import watch_lives

log = logging.getLogger(LOGGER)

RETRY_PERIOD: Final = 5.0
"""Seconds after which an address that was taken is tried again, as in kube-proxy."""

_ANY: Final = {Family.IPV4: Address(bytes(4)), Family.IPV6: Address(bytes(16))}
_IPV6_INTERFACES: Final = Path("/proc/net/if_inet6")
_COUNTED: Final = {Kind.ENDPOINT_SLICE: "endpoint", Kind.SERVICE: "service"}
_NOT_FOUND: Final = Response(status=HTTPStatus.NOT_FOUND, body=b"404 page not found\n")


@frozen(kw_only=True)
class SurfaceOptions:
    """Where to listen; None listens nowhere.

    With ``hard_fail`` a taken address ends the daemon at once, else it is tried again. ``needs_node``: the sources deliver the
    own Node, so that its absence makes the node ineligible for traffic.
    """

    mode: str
    sync_period: float
    healthz: ListenAddress | None = None
    metrics: ListenAddress | None = None
    hard_fail: bool = False
    needs_node: bool = False

    def without(self, *, healthz: bool, metrics: bool) -> "SurfaceOptions":
        """Return the same without one or both of the servers; the health ports of Services stay."""
        return evolve(self, healthz=None if healthz else self.healthz, metrics=None if metrics else self.metrics)


class Surface:
    """The daemon's listeners; its methods are for the daemon's thread, the answers come from another.

    Raises ``UnsupportedError`` when an address is taken and ``hard_fail`` says that this is the end.
    """

    def __init__(self, options: SurfaceOptions, engine: Engine, sources: Sequence[object] = ()) -> None:
        self._options = options
        self._engine = engine
        self._sources = tuple(sources)
        self._started = time.time()
        self.metrics = Metrics(options.mode, self._current)
        self._pending: Mapping[str, int] = {}
        self._shown: NodeState | None = None
        self._health: Mapping[ObjectName, ServiceHealth] = {}
        self._services: dict[ListenAddress, Answer] = {}
        self._told: Mapping[ListenAddress, str] = {}
        self._listeners = HttpListeners()
        failures = self.listen()
        if failures and options.hard_fail:
            self.close()
            reasons = "; ".join(f"{where}: {reason}" for where, reason in failures.items())
            raise UnsupportedError(f"cannot listen ({reasons}), and bindAddressHardFail is set")

    def close(self) -> None:
        """Stop listening."""
        self._listeners.close()

    def listen(self) -> Mapping[ListenAddress, str]:
        """Bring the listeners up to date; return those that cannot be had, each told once in the log."""
        wanted = dict(self._services)
        if self._options.healthz is not None:
            wanted[self._options.healthz] = self._answer_health
        if self._options.metrics is not None:
            wanted[self._options.metrics] = self._answer_metrics
        failures = self._listeners.serve(wanted)
        for where, reason in failures.items():
            if self._told.get(where) != reason:
                log.error("cannot listen at %s: %s; trying again every %g seconds", where, reason, RETRY_PERIOD)
        for where in self._told.keys() - failures.keys():
            if where in wanted:
                log.info("listening at %s now", where)
        self._told = failures
        return failures

    # -- what happens to the engine

    def told(self, event: Event) -> None:
        """Take notice of an event that the engine has been told."""
        if isinstance(event, ChangesArrived):
            counts = Counter(name for change in event.changes for name in _counted(change))
            for name, count in counts.items():
                self.metrics.changed(name, count)
            self._pending = Counter(self._pending) + counts
        if not self._engine.is_busy:
            self._pending = {}
        elif isinstance(event, ChangesArrived | AddressesSeen):
            self.metrics.queued(time.time())

    def state_resolved(self, state: NodeState) -> None:
        """Take notice of a state that is about to be programmed."""
        gone = [name for name, health in self._health.items() if health.local_ready and not _is_ready(state, name)]
        if gone:
            # Load balancers should know this as soon as we do. What is better than before has to be in the kernel first.
            self._show_health(state, {**self._health, **{name: state.health[name] for name in gone if name in state.health}})

    def sync_finished(self, report: SyncReport) -> None:
        """Record a sync, and serve the health ports of the state that the kernel has now."""
        self.metrics.sync_finished(report)
        if report.error:
            return
        self._pending = {}
        # What happened before this process began says nothing of how quick it is.
        times = [time for time in report.trigger_times if time >= self._started]
        state = self._engine.state
        families = {key.family for key in state.ports} if state is not None and times else set()
        self.metrics.synced(time.time(), times, families, report.unserved)
        if state is not None and (state.health is not self._health or self._shown is None or state.node is not self._shown.node):
            self._show_health(state, state.health)

    def _show_health(self, state: NodeState, health: Mapping[ObjectName, ServiceHealth]) -> None:
        self._shown, self._health = state, health
        services: dict[ListenAddress, Answer] = {}
        for name, each in sorted(health.items()):
            for address in health_addresses(state.node):
                services.setdefault(ListenAddress(address=address, port=each.port), partial(self._answer_service, name))
        self._services = services
        self.listen()

    # -- answers, from other threads: they only read values that are replaced as a whole

    def _node_health(self) -> NodeHealth:
        now, monotonic = time.time(), time.monotonic()
        health = self._engine.health
        node = self._engine.node
        limit = 2 * self._options.sync_period
        return NodeHealth(
            now=now,
            updated={family: now - (monotonic - last) for family, last in health.last_sync.items()},
            healthy={family: monotonic - health.pending_since.get(family, monotonic) <= limit for family in Family},
            eligible=node.eligible if node is not None else not self._is_node_missing,
            watches=watch_lives(self._sources),
        )

    @property
    def _is_node_missing(self) -> bool:
        """While it has not been looked for, as while the API server is away at the start, the rules of before go on serving."""
        return self._options.needs_node and Kind.NODE in self._engine.listed

    def _current(self) -> Current:
        return Current(
            state=self._engine.state,
            refused=len(self._engine.quarantine.refusals),
            drift_repairs=self._engine.drift_count,
            pending=self._pending,
            watches=watch_lives(self._sources),
        )

    def _answer_health(self, request: Request) -> Response:
        answers: dict[str, Callable[[NodeHealth], Response]] = {
            "/healthz": health_answers.healthz,
            "/livez": health_answers.livez,
        }
        if request.path not in answers:
            return _NOT_FOUND
        response = answers[request.path](self._node_health())
        self.metrics.answered(request.path, response.status)
        return response

    def _answer_metrics(self, request: Request) -> Response:
        match request.path:
            case "/metrics":
                return Response(body=self.metrics.text(), content_type=CONTENT_TYPE)
            case "/healthz" | "/healthz/ping":
                return Response(body=b"ok")
            case "/proxyMode":
                return Response(body=self._options.mode.encode())
            case _:
                return _NOT_FOUND

    def _answer_service(self, name: ObjectName, request: Request) -> Response:
        del request  # any path does: cloud providers probe different ones
        health = self._health.get(name)
        if health is None:
            return _NOT_FOUND
        return health_answers.service_health(health, self._node_health().all_healthy)


def health_addresses(node: NodeContext) -> tuple[Address, ...]:
    """Return where healthCheckNodePorts listen: where NodePorts are served."""
    if not node.node_port_any:
        return node.node_port_addresses
    return (_ANY[Family.IPV6 if _IPV6_INTERFACES.exists() else Family.IPV4],)


def _counted(change: Change) -> Iterator[str]:
    """Say what a change counts as, once for each object in it."""
    match change:
        case Replaced(kind=kind, objects=objects):
            yield from [_COUNTED[kind]] * len(objects) if kind in _COUNTED else ()
        case Upserted(object=EndpointSlice()) | Deleted(kind=Kind.ENDPOINT_SLICE):
            yield "endpoint"
        case Upserted(object=Service()) | Deleted(kind=Kind.SERVICE):
            yield "service"


def _is_ready(state: NodeState, name: ObjectName) -> bool:
    health = state.health.get(name)
    return health is not None and bool(health.local_ready)
