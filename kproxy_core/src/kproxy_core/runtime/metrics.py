"""Prometheus metrics, with kube-proxy's names and meaning where it has them."""

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from kproxy_core.model.addresses import Family
from kproxy_core.model.state import NodeState
from kproxy_core.plugin.backend import SyncReport
from kproxy_core.plugin.hookspecs import hookimpl

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_DURATIONS: Final = [0.001 * 2**power for power in range(15)]
_PROGRAMMING: Final = [0.25, 0.5, *map(float, range(1, 60)), *map(float, range(60, 120, 5)), *map(float, range(120, 301, 30))]
_SYNC: Final = "kubeproxy_sync_proxy_rules"


class Metrics:
    """The metrics of one daemon. An observer: the daemon registers it with its plugins. Any thread may read."""

    def __init__(self, mode: str) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._duration = self._histogram(f"{_SYNC}_duration_seconds", "Time of one sync", _DURATIONS)
        self._full = self._histogram("kubeproxy_sync_full_proxy_rules_duration_seconds", "Time of full syncs", _DURATIONS)
        self._partial = self._histogram(
            "kubeproxy_sync_partial_proxy_rules_duration_seconds", "Time of partial syncs", _DURATIONS
        )
        self._programming = self._histogram(
            "kubeproxy_network_programming_duration_seconds",
            "From the change of an EndpointSlice's endpoints to rules in the kernel",
            _PROGRAMMING,
        )
        self._last = self._gauge(f"{_SYNC}_last_timestamp_seconds", "When the last good sync ended", "ip_family")
        self._queued = self._gauge(f"{_SYNC}_last_queued_timestamp_seconds", "When a sync was last asked for", "ip_family")
        self._no_local = self._gauge(
            f"{_SYNC}_no_local_endpoints_total",
            "Service ports with a Local policy and no endpoint on this node",
            "traffic_policy",
            "ip_family",
        )
        self._failures = self._counter(f"{_SYNC}_{mode}_sync_failures", f"Failed syncs of mode {mode}", "ip_family")
        self._operations = self._counter("kproxy_kernel_operations", "Kernel operations carried out")
        self._refused = self._gauge("kproxy_refused_service_ports", "Service ports that the kernel refuses")
        self._ports = self._gauge("kproxy_service_ports", "Service ports programmed", "ip_family")
        self._drift = self._counter("kproxy_drift_repairs", "Repairs of what somebody else changed in the kernel")
        self._healthz = self._counter("kubeproxy_proxy_healthz", "Answers of /healthz", "code")
        self._livez = self._counter("kubeproxy_proxy_livez", "Answers of /livez", "code")
        self.changes = {
            kind: self._counter(f"{_SYNC}_{kind}_changes", f"Changes of {kind}s seen") for kind in ("endpoint", "service")
        }

    def _histogram(self, name: str, text: str, buckets: list[float]) -> Histogram:
        return Histogram(name, text, ["ip_family"], buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    @hookimpl
    def kproxy_state_resolved(self, state: NodeState) -> None:
        """Count what the state says."""
        for family in Family:
            self._ports.labels(family.label).set(sum(1 for key in state.ports if key.family is family))
            for policy in ("internal", "external"):
                concerned = sum(1 for key in state.without_local.get(policy, ()) if key.family is family)
                self._no_local.labels(policy, family.label).set(concerned)

    @hookimpl
    def kproxy_sync_finished(self, report: SyncReport) -> None:
        """Record one sync; both families are programmed in one, so it counts for both."""
        seconds = max(0.0, report.finished - report.started)
        self._operations.inc(report.operations)
        self._refused.set(len(report.failed))
        for family in Family:
            self._duration.labels(family.label).observe(seconds)
            (self._full if report.full else self._partial).labels(family.label).observe(seconds)
            if report.error:
                self._failures.labels(family.label).inc()

    def synced(self, wall_clock: float, trigger_times: Iterable[float]) -> None:
        """Record a good sync that ended at ``wall_clock`` (seconds since the epoch) and made changes of these times effective."""
        latencies = [max(0.0, wall_clock - time) for time in trigger_times]
        for family in Family:
            self._last.labels(family.label).set(wall_clock)
            for latency in latencies:
                self._programming.labels(family.label).observe(latency)

    def queued(self, wall_clock: float) -> None:
        """Record that a sync is wanted."""
        for family in Family:
            self._queued.labels(family.label).set(wall_clock)

    def answered(self, path: str, code: int) -> None:
        """Count an answer of /healthz or /livez."""
        (self._healthz if path == "/healthz" else self._livez).labels(str(code)).inc()

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
