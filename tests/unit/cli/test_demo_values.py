"""The pure parts of the demo: manifests that kproxy reads without complaint, fair picks told from unfair ones, the report."""

import json
import random
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import attrs
import pytest

from kproxy_core.cli.demo.manifests import (
    DemoEndpoint,
    ManifestFolder,
    node_manifest,
    service_cidr_manifest,
    service_manifest,
    slice_manifests,
)
from kproxy_core.cli.demo.report import Expectation, Report, evenly, report_document
from kproxy_core.cli.demo.services import CART, MAIL, NODE, SERVICES, WEB, DemoService
from kproxy_core.cli.demo.show import own_command
from kproxy_core.cli.demo.traffic import Counts, sum_of
from kproxy_core.cli.demo.view import BAR, bar
from kproxy_core.model.addresses import parse_address
from kproxy_core.model.changes import Replaced
from kproxy_core.model.objects import EndpointSlice, Service, ServiceType, TrafficPolicy
from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.manifests import ManifestSource
from kproxy_core.testing.lab import AddressPair

ENDPOINTS = (
    DemoEndpoint(pod="x-1", node=NODE, addresses=AddressPair(ipv4="10.244.1.2", ipv6="fd00:244::2")),
    DemoEndpoint(pod="x-2", node="node2", addresses=AddressPair(ipv4="10.244.2.2", ipv6="fd00:244::3"), terminating=True),
)


def read(folder: Path) -> dict[Kind, Replaced]:
    """What the daemon makes of a folder of manifests."""
    source = ManifestSource(str(folder))
    try:
        changes = source.load()
    finally:
        source.close()
    lists = {change.kind: change for change in changes if isinstance(change, Replaced)}
    assert len(lists) == len(changes)
    return lists


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_the_manifests_are_read_without_a_complaint(service: DemoService, tmp_path: Path) -> None:
    ManifestFolder(tmp_path).write(service.name, (service_manifest(service), *slice_manifests(service, ENDPOINTS)))
    found = read(tmp_path)
    assert [change.diagnostics for change in found.values()] == [()] * len(found)
    (made,) = found[Kind.SERVICE].objects
    assert isinstance(made, Service)
    assert made.type is ServiceType(service.type)
    assert made.cluster_ips == (parse_address(service.cluster.ipv4), parse_address(service.cluster.ipv6))
    assert (made.ports[0].port, made.ports[0].node_port, made.ports[0].protocol) == (
        service.port,
        service.node_port,
        service.protocol,
    )
    assert (made.external_policy is TrafficPolicy.LOCAL) == service.local
    assert (made.affinity_timeout is not None) == service.sticky
    assert len(made.ingress) == (2 if service.load_balancer else 0)
    slices = [one for one in found[Kind.ENDPOINT_SLICE].objects if isinstance(one, EndpointSlice)]
    assert [len(one.endpoints) for one in slices] == [2, 2]
    assert [one.ports[0].port for one in slices] == [service.target_port] * 2
    assert [(e.ready, e.serving, e.terminating) for e in slices[0].endpoints] == [(True, True, False), (False, True, True)]


def test_the_node_is_read_without_a_complaint(tmp_path: Path) -> None:
    node = node_manifest(NODE, AddressPair(ipv4="172.18.0.2", ipv6="fd00:18::2"), ("10.244.1.0/24", "fd00:244:0:1::/64"))
    service = service_manifest(SERVICES[0])
    ManifestFolder(tmp_path).write("node", [node, service_cidr_manifest(("10.96.0.0/16", "fd00:96::/112")), service])
    found = read(tmp_path)
    assert [change.diagnostics for change in found.values()] == [()] * len(found)
    assert [str(one.name) for one in found[Kind.NODE].objects] == [NODE]
    assert len(found[Kind.SERVICE_CIDR].objects) == 1


def test_a_manifest_is_replaced_in_one_step_and_leaves_nothing_else(tmp_path: Path) -> None:
    folder = ManifestFolder(tmp_path)
    folder.write("web", [service_manifest(WEB)])
    folder.write("web", [service_manifest(WEB), *slice_manifests(WEB, ())])
    assert [path.name for path in tmp_path.iterdir()] == ["web.yaml"]
    assert "&id" not in (tmp_path / "web.yaml").read_text()


def test_every_address_and_port_is_used_once() -> None:
    pairs = [*(service.cluster for service in SERVICES), *(s.load_balancer for s in SERVICES if s.load_balancer)]
    addresses = [address for pair in pairs for address in (pair.ipv4, pair.ipv6)]
    node_ports = [service.node_port for service in SERVICES if service.node_port]
    pods = [pod.name for service in SERVICES for pod in service.pods]
    for things in (addresses, node_ports, pods):
        assert len(set(things)) == len(things)
    assert MAIL.local
    assert CART.sticky


def picks(weights: Iterable[float], count: int, seed: int) -> list[int]:
    """How often each of some ways is picked at random."""
    weighted = list(weights)
    chosen = Counter(random.Random(seed).choices(range(len(weighted)), weighted, k=count))
    return [chosen[index] for index in range(len(weighted))]


@pytest.mark.parametrize("ways", [1, 2, 3, 10])
@pytest.mark.parametrize("count", [1, 20, 200, 5000])
def test_fair_picks_are_taken_for_fair(ways: int, count: int) -> None:
    assert all(evenly(picks([1.0] * ways, count, seed)) for seed in range(200))


@pytest.mark.parametrize("weights", [(1, 0), (2, 1, 1), (1, 1, 0), (3, 2)])
def test_unfair_picks_are_not(weights: tuple[float, ...]) -> None:
    assert not any(evenly(picks(weights, 2000, seed)) for seed in range(200))


def test_no_picks_are_no_fair_ones() -> None:
    assert not evenly([0, 0])
    assert not evenly([])


@pytest.mark.parametrize(("share", "drawn"), [(0, ""), (1, "█" * BAR), (2, "█" * BAR), (-1, ""), (0.5, "█" * (BAR // 2))])
def test_bars(share: float, drawn: str) -> None:
    assert bar(share) == drawn


def test_bars_grow_in_eighths() -> None:
    assert [bar(eighths / 8, 1) for eighths in range(9)] == ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"]


def test_counts_add_up_and_can_be_taken_apart() -> None:
    first = Counts(asked=5, failed=1, by_pod=Counter(a=3, b=1), slowest=0.5, failures=("x",))
    second = Counts(asked=2, by_pod=Counter(b=2), slowest=0.1)
    total = sum_of([first, second])
    assert (total.asked, total.failed, total.answered, total.slowest) == (7, 1, 6, 0.5)
    assert total.since(first) == attrs.evolve(second, slowest=0.5, failures=("x",))
    assert sum_of([]) == Counts()


def test_a_report_is_good_when_all_of_it_is() -> None:
    held = Expectation(name="a", ok=True, detail="")
    failed = Expectation(name="b", ok=False, detail="3 of 7")
    assert not Report(mode="m", seconds=1.0).ok
    assert Report(mode="m", seconds=1.0, expectations=[held]).ok
    report = Report(mode="m", seconds=1.0, expectations=[held, failed], measured={"x_seconds": 0.25})
    document = json.loads(json.dumps(report_document(report)))
    assert (document["ok"], document["mode"], document["measured"]) == (False, "m", {"x_seconds": 0.25})
    assert document["expectations"][1] == {"name": "b", "ok": False, "detail": "3 of 7"}


@pytest.mark.parametrize(
    ("started", "on_the_search_path", "called"),
    [
        ("{folder}/kproxy", True, "kproxy"),
        ("{folder}/kproxy", False, "{folder}/kproxy"),
        ("main.py", False, "{folder}/kproxy"),
        ("main.py", True, "kproxy"),
        ("elsewhere/kproxy", True, "elsewhere/kproxy"),
    ],
)
def test_people_are_told_a_command_that_works_for_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: str, on_the_search_path: bool, called: str
) -> None:
    """``main.py`` is how the demo starts itself again in a user namespace."""
    (tmp_path / "kproxy").touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [started.format(folder=tmp_path)])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path) if on_the_search_path else "/no/such/folder")
    assert own_command() == called.format(folder=tmp_path)
