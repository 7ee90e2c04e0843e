"""The small promises of the values: keys order and print well, and Services know how far they reach."""

import pytest
from attrs import evolve

from kproxy_core.model.addresses import Family, parse_address, parse_network
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.flows import FrontendKey, UdpFlow
from kproxy_core.model.names import ObjectName, Protocol, ServicePortKey, ServicePortName
from kproxy_core.model.objects import (
    EndpointSlice,
    LoadBalancerIngress,
    Node,
    Service,
    ServiceCIDR,
    ServicePortSpec,
    ServiceType,
)
from kproxy_core.model.packet import Packet
from kproxy_core.model.state import (
    Drop,
    Endpoint,
    EndpointScope,
    EndpointSets,
    Forward,
    Frontend,
    FrontendKind,
    FrontendRule,
    Masquerade,
    Origin,
    Reject,
    ServicePort,
)

V4, V6 = parse_address("10.96.0.1"), parse_address("fd00::1")
NAME = ServicePortName("shop", "web", "http", Protocol.TCP)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ObjectName("shop", "web"), "shop/web"),
        (ObjectName("", "node-1"), "node-1"),
        (NAME, "shop/web:http/TCP"),
        (ServicePortName("shop", "web", "", Protocol.SCTP), "shop/web/SCTP"),
        (ServicePortKey(Family.IPV6, NAME), "shop/web:http/TCP (IPv6)"),
        (Frontend(kind=FrontendKind.CLUSTER_IP, address=V4, port=80), "10.96.0.1:80"),
        (Frontend(kind=FrontendKind.CLUSTER_IP, address=V6, port=80), "[fd00::1]:80"),
        (Frontend(kind=FrontendKind.NODE_PORT, address=None, port=30080), "*:30080"),
        (Endpoint(address=V4, port=1), "10.96.0.1:1"),
        (Endpoint(address=V6, port=1), "[fd00::1]:1"),
        (FrontendKey(Family.IPV4, V4, 53, Protocol.UDP), "10.96.0.1:53/UDP"),
        (FrontendKey(Family.IPV6, V6, 53, Protocol.UDP), "[fd00::1]:53/UDP"),
        (FrontendKey(Family.IPV6, None, 30053, Protocol.UDP), "*:30053/UDP"),
        (parse_network("10.0.0.0/8"), "10.0.0.0/8"),
        (Diagnostic(severity=Severity.NOTE, subject="Service a/b", message="odd"), "Service a/b: odd"),
        (
            Diagnostic(severity=Severity.NOTE, subject="Service a/b", field="spec.x", message="odd", remedy="write y"),
            "Service a/b: spec.x: odd; write y",
        ),
    ],
)
def test_values_print_for_people(value: object, text: str) -> None:
    assert str(value) == text


def test_frontends_order_also_where_one_has_no_address() -> None:
    ordered = [
        Frontend(kind=FrontendKind.CLUSTER_IP, address=V4, port=80),
        Frontend(kind=FrontendKind.CLUSTER_IP, address=V4, port=443),
        Frontend(kind=FrontendKind.EXTERNAL_IP, address=V4, port=80),
        Frontend(kind=FrontendKind.LOAD_BALANCER, address=V4, port=80),
        Frontend(kind=FrontendKind.NODE_PORT, address=None, port=1),
        Frontend(kind=FrontendKind.NODE_PORT, address=None, port=2),
    ]
    backwards = [*reversed(ordered)]
    assert sorted(backwards) == ordered


def test_diagnostics_order_by_severity() -> None:
    severities = [Severity.ERROR, Severity.NOTE, Severity.WARNING]
    ordered = sorted(Diagnostic(severity=severity, subject="a", message="b") for severity in severities)
    assert [d.severity for d in ordered] == [Severity.NOTE, Severity.WARNING, Severity.ERROR]


SERVICE = Service(name=ObjectName("shop", "web"), cluster_ips=(V4,), ports=(ServicePortSpec(port=80),))


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        (SERVICE, False),
        (evolve(SERVICE, external_ips=(V4,)), True),
        (evolve(SERVICE, ingress=(LoadBalancerIngress(address=V4),)), True),
        (evolve(SERVICE, ports=(ServicePortSpec(port=80, node_port=30080),)), True),
        (evolve(SERVICE, type=ServiceType.NODE_PORT), True),
        (evolve(SERVICE, type=ServiceType.LOAD_BALANCER), True),
        (evolve(SERVICE, type=ServiceType.EXTERNAL_NAME), False),
    ],
)
def test_s10_what_can_be_reached_from_outside(service: Service, expected: bool) -> None:
    assert service.externally_accessible is expected


def test_subjects_name_kind_and_object() -> None:
    name = ObjectName("shop", "web")
    part = EndpointSlice(name=name, service=name, family=Family.IPV4)
    subjects = [found.subject for found in (SERVICE, part, Node(name="here"), ServiceCIDR(name="kubernetes"))]
    assert subjects == ["Service shop/web", "EndpointSlice shop/web", "Node here", "ServiceCIDR kubernetes"]


def test_a_rule_has_a_disposition_for_each_origin() -> None:
    forward = Forward(EndpointScope.LOCAL, Masquerade.ALWAYS)
    rule = FrontendRule(
        frontend=Frontend(kind=FrontendKind.NODE_PORT, address=None, port=1),
        from_local_pod=forward,
        from_node=Drop(),
        from_outside=Reject(),
    )
    assert [rule.disposition(origin) for origin in Origin] == [forward, Drop(), Reject()]


def test_scopes_choose_sets_and_ports_know_their_key() -> None:
    one, other = Endpoint(address=V4, port=1), Endpoint(address=V4, port=2)
    sets = EndpointSets(cluster=(one,), local=(other,), reachable=(one, other), any_in_cluster=True)
    assert (tuple(sets.of(EndpointScope.CLUSTER)), tuple(sets.of(EndpointScope.LOCAL))) == ((one,), (other,))
    assert ServicePort(name=NAME, family=Family.IPV4).key == ServicePortKey(Family.IPV4, NAME)
    assert NAME.service == ObjectName("shop", "web")


def test_a_packet_without_interface_is_the_nodes_own() -> None:
    packet = Packet(source=V4, destination=V4, protocol=Protocol.UDP, port=53)
    assert packet.from_this_node
    assert not evolve(packet, interface="eth0").from_this_node


def test_a_flow_is_in_zone_zero_unless_told() -> None:
    assert UdpFlow(V4, 1, V4, 2, V4, 3).zone == 0
