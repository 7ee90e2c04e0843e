"""Stale UDP flows are told from the state; whatever is not surely ours and wrong is left alone."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.model.addresses import Address, Family, parse_address
from kproxy_core.model.flows import FrontendKey, UdpFlow
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import EndpointSlice, LoadBalancerIngress, ServicePortSpec, SlicePort, TrafficPolicy
from kproxy_core.model.snapshot import ClusterSnapshot
from kproxy_core.model.state import NodeContext, ServicePort
from kproxy_core.resolve.conntrack import stale_flows, udp_places
from kproxy_core.resolve.resolve import resolve

Make = Callable[..., Any]


def place(text: str) -> tuple[Address, int]:
    host, _, port = text.rpartition(":")
    return parse_address(host.strip("[]")), int(port)


def flow(destination: str, reply: str) -> UdpFlow:
    return UdpFlow(parse_address("10.244.0.99"), 40000, *place(destination), *place(reply))


def serving(port: ServicePort) -> Iterable[tuple[Address, int]]:
    return [(endpoint.address, endpoint.port) for endpoint in port.serving]


@pytest.fixture
def stale(make_service: Make, make_slice: Make, node: NodeContext, udp_port: ServicePortSpec) -> Callable[..., bool]:
    """Whether a flow is stale, for a Service on port 53 with frontends of all kinds, also over TCP."""

    def tell(destination: str, reply: str, endpoints: Iterable[str] = (), gone: Iterable[FrontendKey] = (), **given: Any) -> bool:
        ports = (
            ServicePortSpec(name="dns", protocol=Protocol.UDP, port=53, node_port=30053),
            ServicePortSpec(name="web", port=80),
        )
        service = make_service(
            ports=ports,
            external_ips=(parse_address("198.51.100.1"),),
            ingress=(LoadBalancerIngress(address=parse_address("203.0.113.1")),),
            **given,
        )
        names = (SlicePort(name="dns", protocol=Protocol.UDP, port=5353), SlicePort(name="web", port=8080))
        slices: list[EndpointSlice] = [make_slice(*endpoints, ports=names)] if endpoints else []
        snapshot = ClusterSnapshot(services={service.name: service}, slices={service.name: {s.name: s for s in slices}})
        state = resolve(snapshot, node, Settings(node_name="here"))
        candidate = flow(destination, reply)
        found = list(stale_flows(state, serving, gone, [candidate]))
        assert found in ([], [candidate])
        if found:
            assert (candidate.destination, candidate.destination_port) in udp_places(state, gone)
        return bool(found)

    return tell


FRONTENDS = ["10.96.0.10:53", "198.51.100.1:53", "203.0.113.1:53", "192.0.2.1:30053"]


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize(
    ("reply", "endpoints", "expected"),
    [
        pytest.param("10.244.0.1:5353", ["10.244.0.1", "10.244.0.2"], False, id="s48: a good flow stays, whatever happened"),
        pytest.param("10.244.0.9:5353", ["10.244.0.1"], True, id="the endpoint is gone"),
        pytest.param("10.244.0.1:53", ["10.244.0.1"], True, id="another port of an endpoint"),
        pytest.param("10.244.0.1:5353", ["10.244.0.1 terminating"], False, id="a terminating one may still answer"),
        pytest.param("10.244.0.1:5353", ["10.244.0.1 dead", "10.244.0.2"], True, id="one that no longer serves may not"),
        pytest.param("10.244.0.1:5353", [], True, id="s44: scaled to zero"),
    ],
)
def test_translated_flows(frontend: str, reply: str, endpoints: list[str], expected: bool, stale: Callable[..., bool]) -> None:
    assert stale(frontend, reply, endpoints) is expected


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("endpoints", [["10.244.0.1"], []])
def test_s46_flows_from_before_the_service_are_stale(frontend: str, endpoints: list[str], stale: Callable[..., bool]) -> None:
    assert stale(frontend, frontend, endpoints)


@pytest.mark.parametrize(
    "destination",
    [
        pytest.param("192.0.2.1:4789", id="o9: another port of the node, such as VXLAN"),
        pytest.param("203.0.113.1:4789", id="o9: another port of a load balancer's address"),
        pytest.param("10.96.0.10:80", id="s50: a port that is served over TCP only"),
        pytest.param("10.96.0.10:30053", id="a NodePort at a cluster address"),
        pytest.param("192.0.2.77:30053", id="a NodePort at another host"),
        pytest.param("10.244.0.1:5353", id="straight to an endpoint"),
    ],
)
def test_flows_elsewhere_are_left_alone(destination: str, stale: Callable[..., bool]) -> None:
    assert not stale(destination, "10.244.0.9:5353", ["10.244.0.1"])
    assert not stale(destination, destination, ["10.244.0.1"])


def test_endpoints_of_all_scopes_may_answer(stale: Callable[..., bool]) -> None:
    policy = {"external_policy": TrafficPolicy.LOCAL, "internal_policy": TrafficPolicy.LOCAL}
    assert not stale("198.51.100.1:53", "10.244.1.1:5353", ["10.244.1.1", "10.244.0.1 here"], **policy)


GONE = [
    FrontendKey(Family.IPV4, parse_address("10.96.0.77"), 53, Protocol.UDP),
    FrontendKey(Family.IPV4, None, 30099, Protocol.UDP),
    FrontendKey(Family.IPV4, parse_address("10.96.0.78"), 80, Protocol.TCP),
]


@pytest.mark.parametrize(
    ("destination", "reply", "expected"),
    [
        pytest.param("10.96.0.77:53", "10.244.0.1:5353", True, id="s45: translated"),
        pytest.param("192.0.2.1:30099", "10.244.0.1:5353", True, id="s45: by NodePort"),
        pytest.param("192.0.2.1:30099", "192.0.2.1:30099", False, id="a daemon that has the port now"),
        pytest.param("10.96.0.77:54", "10.244.0.1:5353", False, id="another port"),
        pytest.param("10.96.0.78:80", "10.244.0.1:8080", False, id="s50: it was TCP"),
    ],
)
def test_s45_flows_to_frontends_that_went_away(destination: str, reply: str, expected: bool, stale: Callable[..., bool]) -> None:
    assert stale(destination, reply, ["10.244.0.1"], GONE) is expected
    assert not stale(destination, reply, ["10.244.0.1"])


def test_an_heir_of_a_gone_frontend_counts(stale: Callable[..., bool]) -> None:
    gone = [FrontendKey(Family.IPV4, parse_address("10.96.0.10"), 53, Protocol.UDP)]
    assert not stale("10.96.0.10:53", "10.244.0.1:5353", ["10.244.0.1"], gone)
    assert stale("10.96.0.10:53", "10.244.0.9:5353", ["10.244.0.1"], gone)


def test_an_address_of_the_node_wins_over_a_node_port(make_service: Make, node: NodeContext) -> None:
    def service(name: str, **given: Any) -> Any:
        return make_service(name=ObjectName("shop", name), cluster_ips=(parse_address("10.96.0.1"),), **given)

    port = ServicePortSpec(protocol=Protocol.UDP, port=53, node_port=30053)
    edge = ServicePortSpec(protocol=Protocol.UDP, port=30053)
    services = [service("a", ports=(port,)), service("edge", ports=(edge,), external_ips=(parse_address("192.0.2.1"),))]
    state = resolve(ClusterSnapshot(services={s.name: s for s in services}), node, Settings(node_name="here"))
    asked: list[str] = []

    def replies(port: ServicePort) -> list[tuple[Address, int]]:
        asked.append(port.name.name)
        return []

    assert list(stale_flows(state, replies, (), [flow("192.0.2.1:30053", "10.244.0.1:53")]))
    assert asked == ["edge"]


def test_valid_replies_are_asked_for_once_a_port_and_only_where_there_are_flows(make_service: Make, node: NodeContext) -> None:
    services = [
        make_service(
            name=ObjectName("shop", f"s{n}"),
            cluster_ips=(parse_address(f"10.96.0.{n}"),),
            ports=(ServicePortSpec(protocol=Protocol.UDP, port=53),),
        )
        for n in range(1, 50)
    ]
    state = resolve(ClusterSnapshot(services={s.name: s for s in services}), node, Settings(node_name="here"))
    asked: list[str] = []

    def replies(port: ServicePort) -> list[tuple[Address, int]]:
        asked.append(port.name.name)
        return []

    flows = [flow("10.96.0.7:53", "10.244.0.1:53"), flow("10.96.0.7:53", "10.244.0.2:53"), flow("10.96.9.9:53", "10.244.0.1:53")]
    assert list(stale_flows(state, replies, (), flows)) == flows[:2]
    assert asked == ["s7"]
