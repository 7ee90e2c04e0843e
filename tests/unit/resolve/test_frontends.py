"""Which addresses and ports lead to a Service, which are refused, and who is asked for source ranges."""

from collections.abc import Callable
from typing import Any

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.model.addresses import Family, parse_address, parse_network
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import LoadBalancerIngress, Service, ServicePortSpec, ServiceType
from kproxy_core.model.state import FrontendKind
from kproxy_core.resolve.resolve import ResolvedService

Make = Callable[..., Any]
addresses = parse_address


def ingress(*texts: str) -> tuple[LoadBalancerIngress, ...]:
    """``ADDRESS`` or ``ADDRESS proxied``."""
    return tuple(LoadBalancerIngress(address=parse_address(text.split()[0]), proxied=text.endswith("proxied")) for text in texts)


def frontends(resolved: ResolvedService) -> list[str]:
    return [f"{rule.frontend.kind.value} {rule.frontend}" for port in resolved.ports for rule in port.rules]


def told(resolved: ResolvedService) -> list[Diagnostic]:
    """What is said of frontends: not that there are no endpoints, which is so for most Services here."""
    return [diagnostic for diagnostic in resolved.diagnostics if diagnostic.field != "spec.ports"]


def external(*texts: str) -> dict[str, Any]:
    return {"external_ips": tuple(map(parse_address, texts))}


def test_every_kind_of_frontend_sorted(make_service: Make, decide: Make) -> None:
    service = make_service(
        cluster_ips=(parse_address("10.96.0.10"), parse_address("fd00:96::10")),
        ports=(ServicePortSpec(port=80, node_port=30080),),
        **external("198.51.100.2", "198.51.100.1", "2001:db8:1::1"),
        ingress=ingress("203.0.113.1"),
    )
    assert frontends(decide(service)) == [
        "ClusterIP 10.96.0.10:80",
        "ExternalIP 198.51.100.1:80",
        "ExternalIP 198.51.100.2:80",
        "LoadBalancer 203.0.113.1:80",
        "NodePort *:30080",
        "ClusterIP [fd00:96::10]:80",
        "ExternalIP [2001:db8:1::1]:80",
        "NodePort *:30080",
    ]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"proxy_name": "other"}, id="another proxy's"),
        pytest.param({"proxy_name": ""}, id="any value of the label"),
        pytest.param({"headless": True}, id="headless"),
        pytest.param({"type": ServiceType.EXTERNAL_NAME}, id="ExternalName with a left-over cluster address"),
        pytest.param({"cluster_ips": ()}, id="no cluster address"),
    ],
)
def test_s56_services_of_no_concern_are_silently_ignored(
    given: dict[str, Any], make_service: Make, make_slice: Make, decide: Make
) -> None:
    service = make_service(**{**external("127.0.0.1"), **given})
    assert decide(service, [make_slice("127.0.0.1")]) == ResolvedService(name=service.name)


def test_s34_addresses_with_ip_mode_proxy_are_left_alone(make_service: Make, decide: Make) -> None:
    service = make_service(ingress=ingress("203.0.113.1", "203.0.113.2 proxied"))
    assert frontends(decide(service)) == ["ClusterIP 10.96.0.10:80", "LoadBalancer 203.0.113.1:80"]


def test_addresses_of_a_family_without_cluster_address_are_left_out_and_told(make_service: Make, decide: Make) -> None:
    service = make_service(**external("2001:db8:1::1"), ingress=ingress("2001:db8:2::1", "2001:db8:3::1 proxied"))
    resolved = decide(service)
    assert frontends(resolved) == ["ClusterIP 10.96.0.10:80"]
    assert [(d.severity, d.field, d.message.split()[0]) for d in told(resolved)] == [
        (Severity.WARNING, "spec.externalIPs", "2001:db8:1::1"),
        (Severity.WARNING, "status.loadBalancer.ingress", "2001:db8:2::1"),
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({**external("203.0.113.1"), "ingress": ingress("203.0.113.1")}, FrontendKind.EXTERNAL_IP),
        ({**external("10.96.0.10"), "ingress": ingress("10.96.0.10")}, FrontendKind.CLUSTER_IP),
        ({"ingress": ingress("203.0.113.1", "203.0.113.1")}, FrontendKind.LOAD_BALANCER),
    ],
)
def test_an_address_that_is_there_twice_is_one_rule_and_keeps_its_filter(
    given: dict[str, Any], expected: FrontendKind, make_service: Make, decide: Make
) -> None:
    resolved = decide(make_service(source_ranges=(parse_network("192.0.2.128/25"),), **given))
    restricted = [rule.frontend.kind for rule in resolved.ports[0].rules if rule.restricted]
    assert restricted == [expected]
    texts = [str(rule.frontend) for rule in resolved.ports[0].rules]
    assert len(texts) == len(set(texts))
    assert told(resolved) == []


def ranges(*texts: str) -> dict[str, Any]:
    return {"source_ranges": tuple(map(parse_network, texts))}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, None, id="no ranges"),
        pytest.param({"source_ranges": ()}, [], id="ranges given, none understood: nobody"),
        pytest.param(ranges("198.51.100.0/24"), ["198.51.100.0/24"], id="a range"),
        pytest.param(ranges("198.51.100.0/25", "198.51.100.128/25", "198.51.100.7/32"), ["198.51.100.0/24"], id="collapsed"),
        pytest.param(ranges("198.51.100.0/24", "0.0.0.0/0"), None, id="everybody"),
        pytest.param(ranges("2001:db8:9::/48"), None, id="of the other family only"),
        pytest.param(ranges("198.51.100.0/24", "::/0"), ["198.51.100.0/24"], id="everybody of the other family"),
        pytest.param(ranges("198.51.100.0/24", "192.0.3.0/24"), ["192.0.3.0/24", "198.51.100.0/24"], id="the node may not"),
        pytest.param(
            ranges("192.0.2.0/24"), ["192.0.2.0/24", "203.0.113.1/32", "203.0.113.2/32"], id="the node may, so its addresses may"
        ),
    ],
)
def test_source_ranges(given: dict[str, Any], expected: list[str] | None, make_service: Make, decide: Make) -> None:
    service = make_service(
        ingress=ingress("203.0.113.1", "203.0.113.2", "203.0.113.3 proxied"),
        ports=(ServicePortSpec(port=80, node_port=30080),),
        **given,
    )
    (port,) = decide(service).ports
    restricted = {rule.frontend.kind for rule in port.rules if rule.restricted}
    assert restricted == (set() if expected is None else {FrontendKind.LOAD_BALANCER})
    assert list(map(str, port.source_ranges)) == (expected or [])


def test_s32_ranges_hold_for_traffic_of_any_origin(make_service: Make, make_slice: Make, decide: Make) -> None:
    (port,) = decide(make_service(ingress=ingress("203.0.113.1"), **ranges("198.51.100.0/24")), [make_slice("10.244.0.1")]).ports
    (rule,) = (rule for rule in port.rules if rule.restricted)
    assert rule.from_local_pod == rule.from_node == rule.from_outside


def test_each_family_has_ranges_of_its_own(make_service: Make, decide: Make) -> None:
    service = make_service(
        cluster_ips=(parse_address("10.96.0.10"), parse_address("fd00:96::10")),
        ingress=ingress("203.0.113.1", "2001:db8:2::1"),
        **ranges("198.51.100.0/24", "2001:db8:9::/48"),
    )
    assert {port.family: list(map(str, port.source_ranges)) for port in decide(service).ports} == {
        Family.IPV4: ["198.51.100.0/24"],
        Family.IPV6: ["2001:db8:9::/48"],
    }


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.53", "169.254.1.1", "224.0.0.251"])
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (FrontendKind.CLUSTER_IP, "spec.clusterIPs"),
        (FrontendKind.EXTERNAL_IP, "spec.externalIPs"),
        (FrontendKind.LOAD_BALANCER, "status.loadBalancer.ingress"),
    ],
)
def test_x2_special_addresses_are_refused(address: str, kind: FrontendKind, field: str, make_service: Make, decide: Make) -> None:
    given: dict[FrontendKind, dict[str, Any]] = {
        FrontendKind.CLUSTER_IP: {
            "cluster_ips": (parse_address(address),),
            "ports": (ServicePortSpec(port=80, node_port=30080),),
        },
        FrontendKind.EXTERNAL_IP: external(address),
        FrontendKind.LOAD_BALANCER: {"ingress": ingress(address)},
    }
    resolved = decide(make_service(**given[kind]))
    assert f"{kind.value} {address}:80" not in frontends(resolved)
    assert len(frontends(resolved)) == 1, "the rest is served"
    (diagnostic,) = told(resolved)
    assert (diagnostic.severity, diagnostic.subject, diagnostic.field) == (Severity.ERROR, "Service shop/web", field)
    assert diagnostic.remedy


KUBERNETES = {"name": ObjectName("default", "kubernetes")}
API_SERVERS = frozenset({(parse_address("192.0.2.1"), 6443), (parse_address("192.0.2.9"), 6443)})


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        pytest.param({"ports": (ServicePortSpec(port=80, node_port=22),)}, "*:22", id="SSH by NodePort"),
        pytest.param(
            {"ports": (ServicePortSpec(port=22),), **external("192.0.2.1")}, "192.0.2.1:22", id="SSH by external address"
        ),
        pytest.param(
            {"ports": (ServicePortSpec(port=10250),), "ingress": ingress("192.0.2.1")}, "192.0.2.1:10250", id="the kubelet"
        ),
        pytest.param({"ports": (ServicePortSpec(port=6443),), **external("192.0.2.9")}, "192.0.2.9:6443", id="an API server"),
        pytest.param(
            {"ports": (ServicePortSpec(port=80, node_port=6443),)}, "*:6443", id="the API server of this node by NodePort"
        ),
        pytest.param(
            {"cluster_ips": (parse_address("192.0.2.9"),)}, "192.0.2.9:80", id="an API server's address as cluster address"
        ),
        pytest.param({"cluster_ips": (parse_address("192.0.2.1"),)}, "192.0.2.1:80", id="this node's address as cluster address"),
        pytest.param(
            {"ports": (ServicePortSpec(port=80, node_port=22),), **KUBERNETES},
            "*:22",
            id="SSH even by the API server's own Service",
        ),
        pytest.param({"ports": (ServicePortSpec(port=443),), **external("192.0.2.1")}, "", id="a node address on another port"),
        pytest.param({"ports": (ServicePortSpec(port=22),), **external("198.51.100.1")}, "", id="another address on port 22"),
        pytest.param({"ports": (ServicePortSpec(port=80, node_port=22, protocol=Protocol.UDP),)}, "", id="UDP is none of SSH's"),
        pytest.param(
            {"ports": (ServicePortSpec(port=6443),), **external("192.0.2.9"), **KUBERNETES}, "", id="the API server's own Service"
        ),
    ],
)
def test_frontends_that_would_cut_off_the_node_or_the_api_server_are_refused(
    given: dict[str, Any], refused: str, make_service: Make, decide: Make
) -> None:
    resolved = decide(make_service(**given), api_servers=API_SERVERS)
    assert [d.message.split()[1] for d in told(resolved)] == ([refused] if refused else [])
    assert [text for text in frontends(resolved) if text.endswith(f" {refused}")] == []
    expected = {address_count(make_service(**given)) - bool(refused)}
    assert {len(frontends(resolved))} == expected


def address_count(service: Service) -> int:
    return (
        len(service.cluster_ips)
        + len(service.external_ips)
        + len(service.ingress)
        + sum(bool(p.node_port) for p in service.ports)
    )


def test_the_protected_ports_are_the_operators(make_service: Make, decide: Make) -> None:
    service = make_service(ports=(ServicePortSpec(port=80, node_port=30022),))
    assert told(decide(service)) == []
    resolved = decide(service, (), Settings(node_name="here", protected_ports=frozenset({30022})))
    assert frontends(resolved) == ["ClusterIP 10.96.0.10:80"]
    assert "protected" in told(resolved)[0].message


def test_an_impossible_address_of_the_load_balancer_is_no_source_to_let_in(make_service: Make, decide: Make) -> None:
    service = make_service(ingress=ingress("203.0.113.1", "127.0.0.1"), **ranges("192.0.2.0/24"))
    (port,) = decide(service).ports
    assert list(map(str, port.source_ranges)) == ["192.0.2.0/24", "203.0.113.1/32"]


def test_an_api_server_of_the_other_family_is_not_in_the_way_of_a_node_port(make_service: Make, decide: Make) -> None:
    service = make_service(
        cluster_ips=(parse_address("10.96.0.10"), parse_address("fd00:96::10")), ports=(ServicePortSpec(port=80, node_port=6443),)
    )
    resolved = decide(service, api_servers=API_SERVERS)
    assert frontends(resolved) == ["ClusterIP 10.96.0.10:80", "ClusterIP [fd00:96::10]:80", "NodePort *:6443"]
    assert len(told(resolved)) == 1
