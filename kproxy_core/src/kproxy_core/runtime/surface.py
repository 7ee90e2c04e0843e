"""What the daemon shows over HTTP: its health, each Service's health, metrics and its mode."""

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from kproxy_core.engine.machine import Engine
from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.names import ObjectName
from kproxy_core.model.state import NodeContext, NodeState, ServiceHealth
from kproxy_core.plugin.backend import SyncReport
from kproxy_core.plugin.errors import UnsupportedError
from kproxy_core.runtime import health_answers
from kproxy_core.runtime.health_answers import NodeHealth
from kproxy_core.runtime.http_listeners import Answer, HttpListeners, ListenAddress, Request, Response
from kproxy_core.runtime.logs import LOGGER
from kproxy_core.runtime.metrics import CONTENT_TYPE, Metrics

log = logging.getLogger(LOGGER)

RETRY_PERIOD: Final = 5.0
"""Seconds after which an address that was taken is tried again, as in kube-proxy."""

_ANY: Final = {Family.IPV4: Address(bytes(4)), Family.IPV6: Address(bytes(16))}
_IPV6_INTERFACES: Final = Path("/proc/net/if_inet6")
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
    """The daemon's listeners; its methods are for the daemon's thread, the answers come from others.

    Raises ``UnsupportedError`` when an address is taken and ``hard_fail`` says that this is the end.
    """

    def __init__(self, options: SurfaceOptions, engine: Engine) -> None:
        self._options = options
        self._engine = engine
        self._started = time.time()
        self.metrics = Metrics(options.mode)
        self._health: Mapping[ObjectName, ServiceHealth] = {}
        self._services: dict[ListenAddress, Answer] = {}
        self._told: set[ListenAddress] = set()
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
            if where not in self._told:
                log.error("cannot listen at %s: %s; trying again every %g seconds", where, reason, RETRY_PERIOD)
        for where in self._told - failures.keys():
            log.info("listening at %s now", where)
        self._told = set(failures)
        return failures

    def state_resolved(self, state: NodeState) -> None:
        """Serve the health ports of this state's Services."""
        self.metrics.kproxy_state_resolved(state)
        if state.health is self._health:
            return
        self._health = state.health
        self._services = {
            ListenAddress(address=address, port=health.port): partial(self._answer_service, name)
            for name, health in sorted(state.health.items())
            for address in health_addresses(state.node)
        }
        self.listen()

    def sync_finished(self, report: SyncReport) -> None:
        """Record a sync."""
        self.metrics.kproxy_sync_finished(report)
        if report.ok:
            # What happened before this process began says nothing of how quick it is.
            times = [time for time in report.trigger_times if time >= self._started]
            self.metrics.synced(time.time(), times)

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
            eligible=node.eligible if node is not None else not self._options.needs_node,
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
