"""Prometheus metrics, with kube-proxy's names and meaning where it has them."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from attrs import field, frozen
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from kproxy_core.model.addresses import Family
from kproxy_core.model.state import NodeState
from kproxy_core.plugin.backend import SyncReport
from kproxy_core.runtime.watches import WatchLife

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_DURATIONS: Final = [0.001 * 2**power for power in range(15)]
_PROGRAMMING: Final = [0.25, 0.5, *map(float, range(1, 60)), *map(float, range(60, 120, 5)), *map(float, range(120, 301, 30))]
_SYNC: Final = "kubeproxy_sync_proxy_rules"

_FAILURES: Final = {
    "nftables": f"{_SYNC}_nftables_sync_failures",
    "iptables": f"{_SYNC}_iptables_restore_failures",
    "ipvs": f"{_SYNC}_iptables_restore_failures",
}
"""What kube-proxy calls failed syncs, by mode."""

# kube-proxy has no series that tell when another one was made.
disable_created_metrics()  # type: ignore[no-untyped-call]


@frozen(kw_only=True)
class Current:
    """What is looked up when somebody asks, rather than kept up to date.

    ``pending`` are the changes that wait for a sync, by what changed (``endpoint`` or ``service``).
    """

    state: NodeState | None = None
    refused: int = 0
    drift_repairs: int = 0
    pending: Mapping[str, int] = field(factory=dict)
    watches: Mapping[str, WatchLife] = field(factory=dict)


class Metrics:
    """The metrics of one daemon. Any thread may read and write. ``current`` is called with each reading."""

    def __init__(self, mode: str, current: Callable[[], Current] = Current) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.registry.register(_CurrentCollector(current))
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
        self._reconciling = self._histogram(
            "kubeproxy_conntrack_reconciler_sync_duration_seconds", "Time of a pass over conntrack's flows", _DURATIONS
        )
        self._reconciled = self._counter(
            "kubeproxy_conntrack_reconciler_deleted_entries", "Stale flows deleted from conntrack", "ip_family"
        )
        self._last = self._gauge(f"{_SYNC}_last_timestamp_seconds", "When the last good sync ended")
        self._queued = self._gauge(f"{_SYNC}_last_queued_timestamp_seconds", "When a sync was last asked for")
        self._failures = self._counter(_FAILURES.get(mode, "kproxy_sync_failures"), f"Failed syncs of mode {mode}", "ip_family")
        self._healthz = self._counter("kubeproxy_proxy_healthz", "Answers of /healthz", "code")
        self._livez = self._counter("kubeproxy_proxy_livez", "Answers of /livez", "code")
        self._changes = {
            kind: self._counter(f"{_SYNC}_{kind}_changes", f"Changes of {kind}s seen") for kind in ("endpoint", "service")
        }
        self._operations = self._counter("kproxy_kernel_operations", "Kernel operations carried out")
        self._phases = self._counter("kproxy_sync_phase_seconds", "Time that the phases of syncs took", "phase")
        self._begin_at_zero(mode)

    def _histogram(self, name: str, text: str, buckets: list[float]) -> Histogram:
        return Histogram(name, text, ["ip_family"], buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, ["ip_family"], registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _begin_at_zero(self, mode: str) -> None:
        """Show counters before there is anything to count: a rate needs a value to begin from."""
        for family in Family:
            self._failures.labels(family.label)
            self._reconciled.labels(family.label)
        for counter in (self._healthz, self._livez):
            for code in ("200", "503"):
                counter.labels(code)
        if mode == "nftables":
            # What is stale goes in the transaction that makes it so; there is nothing to fail afterwards.
            cleanup = self._counter(f"{_SYNC}_nftables_cleanup_failures", "Stale chains that would not go", "ip_family")
            for family in Family:
                cleanup.labels(family.label)

    def sync_finished(self, report: SyncReport) -> None:
        """Record one sync; both families are programmed in one, so it counts for both, but what is not served has failed."""
        seconds = max(0.0, report.finished - report.started)
        self._operations.inc(report.operations)
        for phase, spent in report.durations.items():
            self._phases.labels(phase).inc(spent)
        for family in Family:
            self._duration.labels(family.label).observe(seconds)
            (self._full if report.full else self._partial).labels(family.label).observe(seconds)
            if report.error or family in report.unserved:
                self._failures.labels(family.label).inc()

    def synced(
        self, wall_clock: float, trigger_times: Iterable[float], families: Collection[Family], unserved: Collection[Family] = ()
    ) -> None:
        """Record a good sync that ended at ``wall_clock`` (seconds since the epoch).

        It made changes of the ``trigger_times`` effective, in the ``families`` that have Service ports; the kernel refuses all
        that concerns the ``unserved`` ones.
        """
        latencies = [max(0.0, wall_clock - time) for time in trigger_times]
        for family in frozenset(Family) - frozenset(unserved):
            self._last.labels(family.label).set(wall_clock)
        for family in frozenset(families) - frozenset(unserved):
            for latency in latencies:
                self._programming.labels(family.label).observe(latency)

    def queued(self, wall_clock: float) -> None:
        """Record that a sync is wanted."""
        for family in Family:
            self._queued.labels(family.label).set(wall_clock)

    def changed(self, kind: str, count: int) -> None:
        """Count changes of ``endpoint`` or ``service`` that were seen."""
        self._changes[kind].inc(count)

    def reconciled(self, family: Family, seconds: float, deleted: int) -> None:
        """Record a pass over conntrack's flows of one family."""
        self._reconciling.labels(family.label).observe(seconds)
        self._reconciled.labels(family.label).inc(deleted)

    def answered(self, path: str, code: int) -> None:
        """Count an answer of /healthz or /livez."""
        (self._healthz if path == "/healthz" else self._livez).labels(str(code)).inc()

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class _CurrentCollector(Collector):
    """Looks at what is so just now. Counting a large state costs something, and so is done for those who ask only."""

    def __init__(self, current: Callable[[], Current]) -> None:
        self._current = current

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the names are known to be free."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of this moment."""
        current = self._current()
        yield GaugeMetricFamily("kproxy_refused_service_ports", "Service ports that the kernel refuses", current.refused)
        yield CounterMetricFamily("kproxy_drift_repairs", "Repairs of what others changed in the kernel", current.drift_repairs)
        for kind in ("endpoint", "service"):
            name, text = f"{_SYNC}_{kind}_changes_pending", f"Changes of {kind}s that wait for a sync"
            yield GaugeMetricFamily(name, text, current.pending.get(kind, 0))
        yield from _of_state(current.state)
        yield from _of_watches(current.watches)


def _of_state(state: NodeState | None) -> Iterable[Metric]:
    ports = GaugeMetricFamily("kproxy_service_ports", "Service ports wanted", labels=["ip_family"])
    no_local = GaugeMetricFamily(
        f"{_SYNC}_no_local_endpoints_total",
        "Service ports with a Local policy and no endpoint on this node",
        labels=["traffic_policy", "ip_family"],
    )
    keys = tuple(state.ports) if state is not None else ()
    without = state.without_local if state is not None else {}
    for family in Family:
        ports.add_metric([family.label], sum(key.family is family for key in keys))
        for policy in ("internal", "external"):
            no_local.add_metric([policy, family.label], sum(key.family is family for key in without.get(policy, ())))
    return ports, no_local


def _of_watches(watches: Mapping[str, WatchLife]) -> Iterable[Metric]:
    silence = GaugeMetricFamily(
        "kproxy_watch_silence_seconds", "Time since the last sign of life from the API server", labels=["resource"]
    )
    failing = GaugeMetricFamily("kproxy_watch_failing", "Whether the watch does not work at present", labels=["resource"])
    requests = CounterMetricFamily("kproxy_watch_requests", "Requests to list or watch", labels=["resource"])
    relists = CounterMetricFamily("kproxy_watch_relists", "Lists that became necessary again", labels=["resource"])
    for name, life in watches.items():
        if life.silence is not None:
            silence.add_metric([name], life.silence)
        failing.add_metric([name], bool(life.problem))
        requests.add_metric([name], life.requests)
        relists.add_metric([name], life.relists)
    return silence, failing, requests, relists
