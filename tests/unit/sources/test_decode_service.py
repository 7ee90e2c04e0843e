"""Decoding Services: what the API server would have refused costs only itself, and is told by object and field."""

import json
from typing import Any

import pytest

from kproxy_core.model.addresses import parse_address, parse_network
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import LoadBalancerIngress, Service, ServicePortSpec, ServiceType, TrafficPolicy
from kproxy_core.sources.decode import SERVICES, decode_data, decode_object

PORT = {"name": "http", "protocol": "TCP", "port": 80, "targetPort": "web"}


def manifest(spec: Any = None, *, status: Any = None, **metadata: Any) -> dict[str, Any]:
    spec = spec if spec is not None else {}
    if isinstance(spec, dict):
        spec = {"clusterIPs": ["10.96.0.10"], "ports": [PORT], **spec}
    found = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop", **metadata}, "spec": spec}
    return found if status is None else {**found, "status": status}


def decode(*args: Any, **given: Any) -> tuple[Service, tuple[Diagnostic, ...]]:
    """Decode plain data and, which must give the same, its JSON."""
    data = manifest(*args, **given)
    found = decode_data(data)
    assert decode_object(json.dumps(data).encode(), SERVICES) == found
    (service,) = found.objects
    assert isinstance(service, Service)
    for diagnostic in found.diagnostics:
        assert diagnostic.subject == "Service shop/web"
    return service, found.diagnostics


def fields(told: tuple[Diagnostic, ...]) -> list[str]:
    return [diagnostic.field for diagnostic in told]


def test_everything_that_a_proxy_reads() -> None:
    service, told = decode(
        {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.10",
            "clusterIPs": ["10.96.0.10", "fd00:96::10"],
            "ipFamilies": ["IPv4", "IPv6"],
            "ports": [PORT, {"name": "dns", "protocol": "UDP", "port": 53, "nodePort": 30053}],
            "externalIPs": ["198.51.100.1"],
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "externalTrafficPolicy": "Local",
            "internalTrafficPolicy": "Local",
            "loadBalancerSourceRanges": ["192.0.2.0/24"],
            "healthCheckNodePort": 32000,
            "selector": {"app": "web"},
        },
        status={"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}, {"ip": "203.0.113.2", "ipMode": "Proxy"}]}},
        uid="u-1",
        creationTimestamp="2026-01-01T00:00:00Z",
        annotations={"kproxy.dev/weights": "*=2", "kproxy.dev/scheduler": "mh"},
        managedFields=[{"fieldsV1": {"f:spec": {}}}],
    )
    assert told == ()
    assert service == Service(
        name=ObjectName("shop", "web"),
        uid="u-1",
        created=1767225600.0,
        type=ServiceType.LOAD_BALANCER,
        cluster_ips=(parse_address("10.96.0.10"), parse_address("fd00:96::10")),
        external_ips=(parse_address("198.51.100.1"),),
        ingress=(
            LoadBalancerIngress(address=parse_address("203.0.113.1")),
            LoadBalancerIngress(address=parse_address("203.0.113.2"), proxied=True),
        ),
        ports=(
            ServicePortSpec(name="http", port=80),
            ServicePortSpec(name="dns", protocol=Protocol.UDP, port=53, node_port=30053),
        ),
        affinity_timeout=60,
        internal_policy=TrafficPolicy.LOCAL,
        external_policy=TrafficPolicy.LOCAL,
        source_ranges=(parse_network("192.0.2.0/24"),),
        health_check_node_port=32000,
        weights={"*": 2},
        scheduler="mh",
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {}, {"affinity_timeout": None, "source_ranges": None, "type": ServiceType.CLUSTER_IP}, id="what is not there"
        ),
        pytest.param({"sessionAffinity": "None"}, {"affinity_timeout": None}, id="no affinity"),
        pytest.param({"sessionAffinity": "ClientIP"}, {"affinity_timeout": 10800}, id="s22: the default, in seconds"),
        pytest.param({"loadBalancerSourceRanges": []}, {"source_ranges": None}, id="no ranges"),
        pytest.param(
            {"loadBalancerSourceRanges": [" 192.0.2.0/24 "]}, {"source_ranges": (parse_network("192.0.2.0/24"),)}, id="blanks"
        ),
        pytest.param(
            {"clusterIPs": None, "clusterIP": "10.96.0.9"}, {"cluster_ips": (parse_address("10.96.0.9"),)}, id="the old field"
        ),
        pytest.param({"clusterIPs": ["010.096.000.009"]}, {"cluster_ips": (parse_address("10.96.0.9"),)}, id="leading zeros"),
        pytest.param({"clusterIPs": ["FD00:96:0::9"]}, {"cluster_ips": (parse_address("fd00:96::9"),)}, id="not canonical"),
        pytest.param({"clusterIPs": ["None"]}, {"cluster_ips": (), "headless": True}, id="headless"),
        pytest.param(
            {"clusterIPs": None, "clusterIP": "None"}, {"cluster_ips": (), "headless": True}, id="headless, the old field"
        ),
        pytest.param({"clusterIPs": [], "clusterIP": ""}, {"cluster_ips": (), "headless": False}, id="not allocated yet"),
        pytest.param({"ports": None}, {"ports": ()}, id="null is nothing"),
        pytest.param({"healthCheckNodePort": 0}, {"health_check_node_port": 0}, id="port 0 is none"),
    ],
)
def test_defaults_and_lenient_spellings_are_no_faults(spec: dict[str, Any], expected: dict[str, Any]) -> None:
    service, told = decode(spec)
    assert told == ()
    assert {name: getattr(service, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"service.kubernetes.io/service-proxy-name": "other"}, {"proxy_name": "other"}),
        ({"service.kubernetes.io/service-proxy-name": ""}, {"proxy_name": ""}),
        ({"service.kubernetes.io/headless": ""}, {"headless": True}),
        ({"app": "web"}, {"proxy_name": None, "headless": False}),
        (None, {"proxy_name": None, "headless": False}),
    ],
)
def test_s56_labels_tell_what_is_not_ours(labels: Any, expected: dict[str, Any]) -> None:
    service, told = decode(labels=labels)
    assert told == ()
    assert {name: getattr(service, name) for name in expected} == expected


def test_s56_a_label_counts_even_if_its_value_is_malformed() -> None:
    service, told = decode(labels={"service.kubernetes.io/service-proxy-name": 1, "app": "web"})
    assert service.proxy_name == ""
    assert fields(told) == ["metadata.labels"]


@pytest.mark.parametrize(
    ("ingress", "addresses", "told_fields"),
    [
        pytest.param([{"hostname": "lb.example"}], [], [], id="o20: a host name only"),
        pytest.param([{"ip": "203.0.113.1", "hostname": "lb"}], ["203.0.113.1"], [], id="o20: both"),
        pytest.param([{"ip": ""}], [], [], id="empty"),
        pytest.param([{"ip": "lb.example"}], [], ["status.loadBalancer.ingress[0].ip"], id="no address"),
        pytest.param([{"ip": "203.0.113.1", "ipMode": "VIP"}], ["203.0.113.1"], [], id="s34: VIP"),
        pytest.param(
            [{"ip": "203.0.113.1", "ipMode": "Odd"}],
            ["203.0.113.1 proxied"],
            ["status.loadBalancer.ingress[0].ipMode"],
            id="unknown",
        ),
        pytest.param([7, {"ip": "203.0.113.1"}], ["203.0.113.1"], ["status.loadBalancer.ingress[0]"], id="no entry"),
        pytest.param("203.0.113.1", [], ["status.loadBalancer.ingress"], id="no list"),
    ],
)
def test_load_balancer_addresses(ingress: Any, addresses: list[str], told_fields: list[str]) -> None:
    service, told = decode(status={"loadBalancer": {"ingress": ingress}})
    assert [f"{entry.address}{' proxied' if entry.proxied else ''}" for entry in service.ingress] == addresses
    assert fields(told) == told_fields


@pytest.mark.parametrize(
    ("spec", "field", "left"),
    [
        pytest.param({"ports": [{**PORT, "port": 0}]}, "spec.ports[0].port", {"ports": ()}, id="port 0"),
        pytest.param({"ports": [{**PORT, "port": 65536}]}, "spec.ports[0].port", {"ports": ()}, id="port beyond"),
        pytest.param({"ports": [{**PORT, "port": -1}]}, "spec.ports[0].port", {"ports": ()}, id="port below"),
        pytest.param({"ports": [{**PORT, "port": "80"}]}, "spec.ports[0].port", {"ports": ()}, id="a port in quotes"),
        pytest.param({"ports": [{**PORT, "port": 80.5}]}, "spec.ports[0].port", {"ports": ()}, id="half a port"),
        pytest.param({"ports": [{**PORT, "port": True}]}, "spec.ports[0].port", {"ports": ()}, id="a boolean port"),
        pytest.param({"ports": [{"name": "x"}]}, "spec.ports[0].port", {"ports": ()}, id="no port"),
        pytest.param({"ports": ["80"]}, "spec.ports[0]", {"ports": ()}, id="no mapping"),
        pytest.param({"ports": PORT}, "spec.ports", {"ports": ()}, id="no list"),
        pytest.param({"ports": [{**PORT, "protocol": "tcp"}]}, "spec.ports[0].protocol", {"ports": ()}, id="lower case"),
        pytest.param({"ports": [{**PORT, "protocol": "ICMP"}]}, "spec.ports[0].protocol", {"ports": ()}, id="no transport"),
        pytest.param({"ports": [{**PORT, "name": 'a"b c'}]}, "spec.ports[0].name", {"ports": ()}, id="odd name"),
        pytest.param(
            {"ports": [{**PORT, "nodePort": 70000}]},
            "spec.ports[0].nodePort",
            {"ports": (ServicePortSpec(name="http", port=80),)},
            id="only the node port is lost",
        ),
        pytest.param(
            {"ports": [{**PORT, "nodePort": "30080"}]},
            "spec.ports[0].nodePort",
            {"ports": (ServicePortSpec(name="http", port=80),)},
            id="a node port in quotes",
        ),
        pytest.param(
            {"ports": [PORT, {**PORT, "port": 81}]},
            "spec.ports[1].name",
            {"ports": (ServicePortSpec(name="http", port=80),)},
            id="a second port of the same name",
        ),
        pytest.param({"clusterIPs": ["10.96.0.300"]}, "spec.clusterIPs[0]", {"cluster_ips": ()}, id="no address"),
        pytest.param(
            {"clusterIPs": ["fd00:96::10", "10.96.0.10"], "ipFamilies": ["IPv4"]},
            "spec.clusterIPs",
            {"cluster_ips": (parse_address("10.96.0.10"),)},
            id="a family that was not chosen",
        ),
        pytest.param(
            {"clusterIPs": ["10.96.0.10", "10.96.0.11"]},
            "spec.clusterIPs",
            {"cluster_ips": (parse_address("10.96.0.10"),)},
            id="two of one family",
        ),
        pytest.param(
            {"ipFamilies": ["IPv5", "IPv4"]}, "spec.ipFamilies[0]", {"cluster_ips": (parse_address("10.96.0.10"),)}, id="IPv5"
        ),
        pytest.param(
            {"externalIPs": ["x", "198.51.100.1"]},
            "spec.externalIPs[0]",
            {"external_ips": (parse_address("198.51.100.1"),)},
            id="x",
        ),
        pytest.param(
            {"externalIPs": [7, "198.51.100.1"]},
            "spec.externalIPs[0]",
            {"external_ips": (parse_address("198.51.100.1"),)},
            id="7",
        ),
        pytest.param({"type": "Odd"}, "spec.type", {"type": ServiceType.CLUSTER_IP}, id="unknown type"),
        pytest.param({"type": 7}, "spec.type", {"type": ServiceType.CLUSTER_IP}, id="malformed type"),
        pytest.param(
            {"externalTrafficPolicy": "local"},
            "spec.externalTrafficPolicy",
            {"external_policy": TrafficPolicy.CLUSTER},
            id="policy",
        ),
        pytest.param(
            {"internalTrafficPolicy": []}, "spec.internalTrafficPolicy", {"internal_policy": TrafficPolicy.CLUSTER}, id="list"
        ),
        pytest.param({"sessionAffinity": "Cookie"}, "spec.sessionAffinity", {"affinity_timeout": None}, id="unknown affinity"),
        pytest.param(
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}},
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            {"affinity_timeout": 10800},
            id="no time at all",
        ),
        pytest.param(
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}},
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            {"affinity_timeout": 10800},
            id="too long",
        ),
        pytest.param({"healthCheckNodePort": 99999}, "spec.healthCheckNodePort", {"health_check_node_port": 0}, id="health port"),
        pytest.param([1], "spec", {"ports": (), "cluster_ips": ()}, id="no spec at all"),
    ],
)
def test_a_malformed_field_costs_only_itself_and_is_told(spec: Any, field: str, left: dict[str, Any]) -> None:
    service, told = decode(spec)
    assert {name: getattr(service, name) for name in left} == left
    assert fields(told) == [field]
    assert told[0].message
    if isinstance(spec, dict) and not {"ports", "clusterIPs", "type"} & spec.keys():
        assert service.ports == (ServicePortSpec(name="http", port=80),), "the rest is served"


def test_the_rest_of_a_list_keeps_its_numbers() -> None:
    ports = [{**PORT, "port": "x"}, PORT, {"name": "b", "port": "y"}, {"name": "c", "port": 0}]
    service, told = decode({"ports": ports})
    assert [port.name for port in service.ports] == ["http"]
    assert fields(told) == ["spec.ports[0].port", "spec.ports[2].port", "spec.ports[3].port"]


NOBODY_V4, NOBODY_V6 = parse_network("0.0.0.0/32"), parse_network("::/128")


@pytest.mark.parametrize(
    ("ranges", "expected", "told_fields"),
    [
        pytest.param(["x"], (), ["spec.loadBalancerSourceRanges[0]"], id="nothing understood: nobody"),
        pytest.param([7], (), ["spec.loadBalancerSourceRanges[0]"], id="not even text: nobody"),
        pytest.param("192.0.2.0/24", (), ["spec.loadBalancerSourceRanges"], id="no list: nobody"),
        pytest.param([None], (), [], id="null: nobody"),
        pytest.param(
            ["192.0.2.0/33", "192.0.2.0/24"],
            (parse_network("192.0.2.0/24"),),
            ["spec.loadBalancerSourceRanges[0]"],
            id="one slip",
        ),
        pytest.param(
            ["192.0.2.0/33", "2001:db8::/32"],
            (parse_network("2001:db8::/32"), NOBODY_V4),
            ["spec.loadBalancerSourceRanges[0]"],
            id="a slip must not open a family",
        ),
        pytest.param(
            [7, "192.0.2.0/24"],
            (parse_network("192.0.2.0/24"), NOBODY_V6),
            ["spec.loadBalancerSourceRanges[0]"],
            id="nor one whose family cannot be told",
        ),
    ],
)
def test_malformed_source_ranges_let_nobody_in(ranges: Any, expected: tuple[Any, ...], told_fields: list[str]) -> None:
    service, told = decode({"loadBalancerSourceRanges": ranges})
    assert service.source_ranges == expected
    assert fields(told) == told_fields


@pytest.mark.parametrize(
    ("text", "weights", "faults"),
    [
        ("*=1,10.0.0.5=3", {"*": 1, "10.0.0.5": 3}, 0),
        (" * = 1 , 2001:DB8::5=0 ", {"*": 1, "2001:db8::5": 0}, 0),
        ("010.0.0.5=1000", {"10.0.0.5": 1000}, 0),
        ("", {}, 0),
        ("10.0.0.5=1001", {}, 1),
        ("10.0.0.5=-1,*=2", {"*": 2}, 1),
        ("10.0.0.5=1.5", {}, 1),
        ("10.0.0.5", {}, 1),
        ("pod-1=3", {}, 1),
        ("=3", {}, 1),
        ("10.0.0.5=3,10.0.0.5=4", {"10.0.0.5": 3}, 1),
        ("10.0.0.5=\u0663", {}, 1),
        ('{"10.0.0.5": 3}', {}, 1),
        ('{"10.0.0.5": 3, "*": 1}', {}, 2),
    ],
)
def test_weights(text: str, weights: dict[str, int], faults: int) -> None:
    service, told = decode(annotations={"kproxy.dev/weights": text})
    assert service.weights == weights
    assert fields(told) == ["metadata.annotations[kproxy.dev/weights]"] * faults
    assert all(diagnostic.remedy for diagnostic in told)


def test_the_age_is_unknown_without_or_with_a_malformed_time() -> None:
    assert decode()[0].created == float("inf")
    service, told = decode(creationTimestamp="yesterday")
    assert service.created == float("inf")
    assert fields(told) == ["metadata.creationTimestamp"]
    assert decode(creationTimestamp="2026-01-01T01:00:00+01:00")[0].created == 1767225600.0


def test_a_faulty_object_says_how_bad_and_what_to_do() -> None:
    _, (diagnostic,) = decode({"ports": [{**PORT, "port": "80"}]})
    assert diagnostic.severity is Severity.ERROR
    assert str(diagnostic) == (
        "Service shop/web: spec.ports[0].port: expected int, got str; left out; write a whole number without quotes"
    )
