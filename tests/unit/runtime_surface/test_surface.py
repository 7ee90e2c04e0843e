"""What a running daemon shows over HTTP: health, each Service's health, metrics, mode; and how it gets its addresses."""

import os
import re
import socket
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from attrs import evolve, frozen

from kproxy_core.model.addresses import parse_address
from kproxy_core.model.changes import Change, Replaced
from kproxy_core.model.objects import TrafficPolicy
from kproxy_core.model.snapshot import Kind
from kproxy_core.model.state import NodeContext
from kproxy_core.runtime import daemon as daemon_module
from kproxy_core.runtime.http_listeners import ListenAddress
from kproxy_core.runtime.surface import health_addresses
from kproxy_core.testing.faults import FailKeys, no_faults
from kproxy_core.testing.memory_backend import MemoryKernel
from kproxy_core.testing.sketch import gone, listed, node, put, service, slice_of

from .daemons import LOOPBACK, Shown, balanced, free_port, get, listens, local_slice, shown, wait_until

HERE = node("127.0.0.1")
WEB = service("shop/web", "10.96.0.10")
START = listed(HERE, WEB, slice_of("shop/web", "10.244.1.1"))
REFUSED_FOR_NOW = FailKeys(lambda _: True, retryable=True, message="busy")


@frozen(kw_only=True)
class Watch:
    """A watch as a source tells of it."""

    listed: bool = True
    silence: float | None = 1.5
    problem: str = ""
    relists: int = 2
    requests: int = 5


def test_before_the_lists_it_is_healthy_and_no_family_is_told() -> None:
    with shown() as daemon:
        assert daemon.health().status == 200
        assert daemon.health("/livez").status == 200
        assert daemon.health().json["status"] == {}


def test_after_the_first_sync_both_families_are_told() -> None:
    with shown(START) as daemon:
        daemon.wait_synced()
        health = daemon.health()
        assert health.status == 200
        assert health.headers["Content-Type"] == "application/json"
        assert health.headers["X-Content-Type-Options"] == "nosniff"
        assert {family: each["healthy"] for family, each in health.json["status"].items()} == {"IPv4": True, "IPv6": True}
        assert health.json["lastUpdated"] == health.json["currentTime"]


def test_an_update_that_waits_too_long_makes_it_unhealthy_until_it_is_done() -> None:
    kernel = MemoryKernel()
    with shown(START, kernel=kernel, sync_period=0.05) as daemon:
        daemon.wait_synced()
        kernel.fault = REFUSED_FOR_NOW
        daemon.put(put(slice_of("shop/web", "10.244.1.2")))
        wait_until(lambda: daemon.health("/livez").status == 503, "it is unhealthy")
        told = daemon.health()
        assert (told.status, told.json["healthy"], told.json["nodeEligible"]) == (503, False, True)
        assert told.json["lastUpdated"] < told.json["currentTime"]
        kernel.fault = no_faults
        wait_until(lambda: daemon.health("/livez").status == 200, "it is healthy again")
        codes = daemon.metrics()
        assert codes['kubeproxy_proxy_livez_total{code="503"}'] >= 1
        assert codes['kubeproxy_proxy_healthz_total{code="503"}'] == 1
        assert codes['kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"}'] >= 1


def test_o13_the_node_decides_over_healthz_but_not_over_livez() -> None:
    changes: list[tuple[Iterable[Change], int]] = [
        (put(evolve(HERE, eligible=False)), 503),
        (put(HERE), 200),
        ((Replaced(kind=Kind.NODE, objects=()),), 503),
        (put(HERE), 200),
    ]
    with shown(START, needs_node=True) as daemon:
        daemon.wait_synced()
        assert daemon.health().status == 200
        for change, expected in changes:
            daemon.put(change)
            wait_until(partial(_says, daemon, expected), f"/healthz says {expected}")
            assert daemon.health().json["nodeEligible"] is (expected == 200)
            assert daemon.health("/livez").status == 200


def _says(daemon: Shown, status: int) -> bool:
    return daemon.health().status == status


def test_a_node_that_was_not_looked_for_yet_is_not_missing() -> None:
    services, slices = (change for change in START if change.kind is not Kind.NODE)
    with shown([services, slices], needs_node=True, kinds=frozenset(Kind) - {Kind.SERVICE_CIDR}) as daemon:
        assert daemon.health().status == 200
        daemon.put([Replaced(kind=Kind.NODE, objects=())])
        wait_until(lambda: daemon.health().status == 503, "the Node is known to be missing")


def test_sources_without_nodes_need_none() -> None:
    with shown([change for change in START if change.kind is not Kind.NODE]) as daemon:
        daemon.wait_synced()
        assert daemon.health().status == 200


def test_the_silence_of_the_api_server_is_told_and_decides_nothing() -> None:
    with shown(START) as daemon:
        daemon.source.lives = {Kind.SERVICE: Watch(silence=3600.0, problem="nobody listens"), Kind.NODE: Watch(silence=None)}
        daemon.wait_synced()
        health = daemon.health()
        assert health.status == 200
        assert health.json["watches"]["Service"]["problem"] == "nobody listens"
        metrics = daemon.metrics()
        assert metrics['kproxy_watch_silence_seconds{resource="Service"}'] == 3600.0
        assert 'kproxy_watch_silence_seconds{resource="Node"}' not in metrics
        assert metrics['kproxy_watch_failing{resource="Service"}'] == 1
        assert metrics['kproxy_watch_failing{resource="Node"}'] == 0
        assert metrics['kproxy_watch_requests_total{resource="Node"}'] == 5
        assert metrics['kproxy_watch_relists_total{resource="Node"}'] == 2


def test_paths() -> None:
    with shown(START) as daemon:
        for path in ("/", "/metrics", "/proxyMode", "/healthzz"):
            assert daemon.health(path).status == 404, path
        assert get(daemon.metrics_port, "/proxyMode").body == b"nftables"
        for path in ("/healthz", "/healthz/ping"):
            assert get(daemon.metrics_port, path).body == b"ok"
        assert get(daemon.metrics_port, "/livez").status == 404
        assert get(daemon.metrics_port, "/metrics?x=y").headers["Content-Type"].startswith("text/plain; version=0.0.4")
        head = get(daemon.healthz_port, "/healthz", method="HEAD")
        assert (head.status, head.body) == (200, b"")


# -- metrics


def names(metrics: dict[str, float]) -> set[str]:
    return {re.sub(r"_(bucket|count|sum)$", "", name.partition("{")[0]) for name in metrics}


def test_metrics_have_kube_proxys_names_and_labels() -> None:
    with shown(START) as daemon:
        daemon.wait_synced()
        daemon.put(put(slice_of("shop/web", "10.244.1.2", at=time.time())))
        programmed = 'kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"}'
        wait_until(lambda: programmed in daemon.metrics(), "the change is programmed")
        metrics = daemon.metrics()
    sync = "kubeproxy_sync_proxy_rules"
    assert {name for name in names(metrics) if name.startswith("kubeproxy_")} == {
        f"{sync}_duration_seconds",
        "kubeproxy_sync_full_proxy_rules_duration_seconds",
        "kubeproxy_sync_partial_proxy_rules_duration_seconds",
        f"{sync}_last_timestamp_seconds",
        f"{sync}_last_queued_timestamp_seconds",
        "kubeproxy_network_programming_duration_seconds",
        f"{sync}_endpoint_changes_pending",
        f"{sync}_endpoint_changes_total",
        f"{sync}_service_changes_pending",
        f"{sync}_service_changes_total",
        f"{sync}_no_local_endpoints_total",
        f"{sync}_nftables_sync_failures_total",
        f"{sync}_nftables_cleanup_failures_total",
        "kubeproxy_conntrack_reconciler_deleted_entries_total",
        "kubeproxy_proxy_healthz_total",
        "kubeproxy_proxy_livez_total",
    }
    assert not any(name.endswith("_created") for name in names(metrics))
    assert metrics[f"{sync}_endpoint_changes_total"] == 2
    assert metrics[f"{sync}_service_changes_total"] == 1
    assert metrics[f"{sync}_endpoint_changes_pending"] == 0
    assert metrics['kproxy_service_ports{ip_family="IPv4"}'] == 1
    assert metrics['kproxy_service_ports{ip_family="IPv6"}'] == 0
    assert metrics[f'{sync}_last_timestamp_seconds{{ip_family="IPv6"}}'] == pytest.approx(time.time(), abs=60)
    assert (
        metrics[f'{sync}_last_queued_timestamp_seconds{{ip_family="IPv4"}}']
        <= metrics[f'{sync}_last_timestamp_seconds{{ip_family="IPv4"}}']
    )
    assert metrics['kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"}'] == 1
    assert metrics['kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family="IPv4"}'] == 1
    assert 'kubeproxy_network_programming_duration_seconds_count{ip_family="IPv6"}' not in metrics
    assert metrics["kproxy_kernel_operations_total"] > 0
    assert 'kproxy_sync_phase_seconds_total{phase="apply"}' in metrics


def test_buckets_are_kube_proxys() -> None:
    with shown(START) as daemon:
        daemon.wait_synced()
        daemon.put(put(slice_of("shop/web", "10.244.1.2", at=time.time())))
        programmed = 'kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"}'
        wait_until(lambda: programmed in daemon.metrics(), "the change is programmed")
        found = daemon.metrics()

    def bounds(name: str) -> list[float]:
        pattern = re.compile(re.escape(name) + r'_bucket\{ip_family="IPv4",le="([^"]+)"\}')
        return [float(match[1]) for each in found if (match := pattern.fullmatch(each))][:-1]

    assert bounds("kubeproxy_sync_proxy_rules_duration_seconds") == pytest.approx([0.001 * 2**power for power in range(15)])
    programming = bounds("kubeproxy_network_programming_duration_seconds")
    assert programming == [0.25, 0.5, *range(1, 60), *range(60, 116, 5), *range(120, 301, 30)]


def test_what_happened_before_the_start_is_no_latency() -> None:
    with shown(listed(HERE, WEB, slice_of("shop/web", "10.244.1.1", at=time.time() - 3600))) as daemon:
        daemon.wait_synced()
        assert not any("network_programming" in name for name in daemon.metrics() if not name.startswith("#"))


def test_changes_wait_while_the_kernel_refuses() -> None:
    kernel = MemoryKernel()
    with shown(START, kernel=kernel) as daemon:
        daemon.wait_synced()
        before = daemon.metrics()
        kernel.fault = REFUSED_FOR_NOW
        daemon.put([*put(slice_of("shop/web", "10.244.1.2")), *put(service("shop/other", "10.96.0.11"))])
        pending = "kubeproxy_sync_proxy_rules_{}_changes_pending"
        wait_until(lambda: daemon.metrics()[pending.format("endpoint")] == 1, "the change waits")
        assert daemon.metrics()[pending.format("service")] == 1
        queued = 'kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"}'
        assert daemon.metrics()[queued] > before[queued]
        kernel.fault = no_faults
        wait_until(lambda: daemon.metrics()[pending.format("endpoint")] == 0, "nothing waits any more")
        assert daemon.metrics()[pending.format("service")] == 0


def test_a15_what_does_not_matter_does_not_wait() -> None:
    with shown(START) as daemon:
        daemon.wait_synced()
        daemon.put(put(slice_of("shop/web", "10.244.1.1", at=time.time())))
        total, pending = (f"kubeproxy_sync_proxy_rules_endpoint_changes_{end}" for end in ("total", "pending"))
        wait_until(lambda: daemon.metrics()[total] == 2, "it is seen")
        assert daemon.metrics()[pending] == 0


def test_a_refused_service_port_is_counted_and_leaves_the_proxy_healthy() -> None:
    kernel = MemoryKernel(fault=FailKeys(lambda key: key[0] == "frontend"))
    with shown(START, kernel=kernel) as daemon:
        wait_until(lambda: daemon.metrics()["kproxy_refused_service_ports"] == 1, "it is refused")
        assert daemon.health().status == 200
        assert 'kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"}' in daemon.metrics()


def test_services_without_local_endpoints_are_counted() -> None:
    web = evolve(WEB, internal_policy=TrafficPolicy.LOCAL)
    with shown(listed(HERE, web, slice_of("shop/web", "10.244.1.1"))) as daemon:
        daemon.wait_synced()
        name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total"
        assert {key: value for key, value in daemon.metrics().items() if key.startswith(name)} == {
            f'{name}{{ip_family="{family}",traffic_policy="{policy}"}}': float(family == "IPv4" and policy == "internal")
            for family in ("IPv4", "IPv6")
            for policy in ("internal", "external")
        }


# -- the health ports of Services


def health_of(port: int, host: str = "127.0.0.1", path: str = "/any/path") -> tuple[int, str, Any]:
    answer = get(port, path, host)
    return answer.status, answer.headers["X-Load-Balancing-Endpoint-Weight"], answer.json


def test_s18_s19_a_health_port_appears_answers_on_any_path_and_goes() -> None:
    port = free_port()
    web = balanced("shop/web", "10.96.0.10", port)
    with shown(listed(HERE)) as daemon:
        daemon.wait_synced()
        daemon.put([*put(web), *put(local_slice("shop/web", "10.244.1.1", "10.244.1.2"))])
        wait_until(lambda: listens(port), "the port is there")
        told = {"service": {"namespace": "shop", "name": "web"}, "localEndpoints": 2, "serviceProxyHealthy": True}
        for path in ("/", "/healthz", "/x?y=z"):
            assert health_of(port, path=path) == (200, "2", told)
        daemon.put(put(local_slice("shop/web", "10.244.9.9", here=False)))
        wait_until(lambda: health_of(port)[:2] == (503, "0"), "there is no endpoint here")
        daemon.put(put(local_slice("shop/web", "10.244.1.3")))
        wait_until(lambda: health_of(port)[:2] == (200, "1"), "there is one again")
        daemon.put(gone(web))
        wait_until(lambda: not listens(port), "the port is gone")


def test_two_ports_on_one_address_and_two_addresses_of_a_dual_stack_pod_count_once() -> None:
    port = free_port()
    slices = [
        local_slice("shop/web", "10.244.1.1"),
        local_slice("shop/web", "10.244.1.1", port=8081, suffix="-b"),
        local_slice("shop/web", "fd00::1"),
    ]
    web = evolve(balanced("shop/web", "10.96.0.10", port), cluster_ips=(parse_address("10.96.0.10"), parse_address("fd00:96::1")))
    with shown(listed(HERE, web, *slices)) as daemon:
        daemon.wait_synced()
        wait_until(lambda: listens(port), "the port is there")
        assert health_of(port)[1] == "1"


def test_the_nodes_eligibility_does_not_count_but_the_proxys_health_does() -> None:
    port, kernel = free_port(), MemoryKernel()
    start = listed(evolve(HERE, eligible=False), balanced("shop/web", "10.96.0.10", port), local_slice("shop/web", "10.244.1.1"))
    with shown(start, kernel=kernel, sync_period=0.05, needs_node=True) as daemon:
        daemon.wait_synced()
        wait_until(lambda: listens(port), "the port is there")
        assert daemon.health().status == 503
        assert health_of(port)[0] == 200
        kernel.fault = REFUSED_FOR_NOW
        daemon.put(put(slice_of("shop/other", "10.244.1.9"), service("shop/other", "10.96.0.12")))
        wait_until(lambda: health_of(port)[0] == 503, "the proxy is late")
        assert health_of(port)[2]["serviceProxyHealthy"] is False


def test_worse_health_is_told_at_once_and_better_health_when_the_kernel_has_it() -> None:
    one, two, kernel = free_port(), free_port(), MemoryKernel()
    services = balanced("shop/one", "10.96.0.10", one), balanced("shop/two", "10.96.0.11", two)
    slices = local_slice("shop/one", "10.244.1.1"), local_slice("shop/two", "10.244.9.9", here=False)
    with shown(listed(HERE, *services, *slices), kernel=kernel) as daemon:
        daemon.wait_synced()
        wait_until(lambda: listens(two), "the ports are there")
        kernel.fault = REFUSED_FOR_NOW
        daemon.put(put(local_slice("shop/one"), local_slice("shop/two", "10.244.1.2")))
        wait_until(lambda: health_of(one)[0] == 503, "the one that lost its endpoint says so")
        assert health_of(two)[0] == 503
        kernel.fault = no_faults
        wait_until(lambda: health_of(two)[0] == 200, "the other one has its rules now")


def test_health_ports_are_where_node_ports_are() -> None:
    here = parse_address("192.0.2.1"), parse_address("2001:db8::1")
    assert health_addresses(NodeContext(node_port_addresses=here)) == here
    assert health_addresses(NodeContext()) == ()
    (everywhere,) = health_addresses(NodeContext(node_port_addresses=here, node_port_any=True))
    assert not any(everywhere)


def test_a_moved_health_port_is_followed() -> None:
    port, other = free_port(), free_port()
    with shown(listed(HERE, balanced("shop/web", "10.96.0.10", port), local_slice("shop/web", "10.244.1.1"))) as daemon:
        wait_until(lambda: listens(port), "the port is there")
        daemon.put(put(balanced("shop/web", "10.96.0.10", other)))
        wait_until(lambda: listens(other), "the port has moved")
        assert not listens(port)
        assert health_of(other)[0] == 200


# -- addresses that cannot be had


def test_o15_a_taken_address_is_told_once_and_tried_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", logger="kproxy")
    monkeypatch.setattr(daemon_module, "RETRY_PERIOD", 0.05)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = ListenAddress(address=LOOPBACK, port=other.getsockname()[1])
        with shown(START, healthz=taken) as daemon:
            wait_until(lambda: get(daemon.metrics_port, "/metrics").status == 200, "the other server works")
            time.sleep(0.3)
            other.close()
            wait_until(lambda: f"listening at {taken} now" in caplog.text, "it was tried again")
            assert get(taken.port, "/healthz").status == 200
    told = [record.getMessage() for record in caplog.records if "cannot listen" in record.getMessage()]
    assert told == [f"cannot listen at {taken}: {os.strerror(98)}; trying again every 5 seconds"]


def test_with_hard_fail_a_taken_address_is_the_end(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = ListenAddress(address=LOOPBACK, port=other.getsockname()[1])
        with shown(START, metrics=taken, hard_fail=True) as daemon:
            wait_until(lambda: daemon.status, "the daemon ends")
            assert daemon.status == [1]
    assert f"cannot listen ({taken}: " in caplog.text
    assert "bindAddressHardFail is set" in caplog.text


def test_a_taken_health_port_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port, good = other.getsockname()[1], free_port()
        services = balanced("shop/bad", "10.96.0.10", port), balanced("shop/good", "10.96.0.11", good)
        with shown(listed(HERE, *services, local_slice("shop/good", "10.244.1.1")), hard_fail=True) as daemon:
            daemon.wait_synced()
            wait_until(lambda: listens(good), "the good one is there")
            assert health_of(good)[0] == 200
            assert f":{port}: {os.strerror(98)}" in caplog.text


def test_nowhere_to_listen_is_fine() -> None:
    with shown(START, healthz=None) as daemon:
        wait_until(lambda: daemon.metrics().get("kproxy_kernel_operations_total"), "it has synced")
        assert not listens(daemon.healthz_port)
