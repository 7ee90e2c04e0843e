"""The JSON of a state leaves nothing out and has the documented form."""

import json
from typing import Any

import attrs
import msgspec

from kproxy_core.cli.state_document import state_document
from kproxy_core.model.addresses import Family, parse_address, parse_network
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.names import ObjectName, Protocol, ServicePortKey, ServicePortName
from kproxy_core.model.state import (
    Drop,
    Endpoint,
    EndpointScope,
    EndpointSets,
    Forward,
    Frontend,
    FrontendKind,
    FrontendRule,
    LocalByInterface,
    LocalByNetwork,
    LocalDetector,
    Masquerade,
    NodeContext,
    NodeState,
    Reject,
    ServiceHealth,
    ServicePort,
)

WEB = ServicePortName("default", "web", "http", Protocol.TCP)
ENDPOINT = Endpoint(
    address=parse_address("10.1.0.2"),
    port=8080,
    ready=False,
    terminating=True,
    local=True,
    zone_hints=frozenset({"b", "a"}),
    node_hints=frozenset({"n"}),
    weight=7,
)
PORT = ServicePort(
    name=WEB,
    family=Family.IPV4,
    rules=(
        FrontendRule(
            frontend=Frontend(kind=FrontendKind.LOAD_BALANCER, address=parse_address("192.0.2.1"), port=80),
            from_local_pod=Forward(EndpointScope.CLUSTER, Masquerade.HAIRPIN_ONLY),
            from_node=Drop(),
            from_outside=Reject(),
            restricted=True,
        ),
        FrontendRule(
            frontend=Frontend(kind=FrontendKind.NODE_PORT, address=None, port=30080),
            from_local_pod=Forward(EndpointScope.LOCAL, Masquerade.ALWAYS),
            from_node=Drop(),
            from_outside=Drop(),
        ),
    ),
    endpoints=EndpointSets(cluster=(ENDPOINT,), reachable=(ENDPOINT,), any_in_cluster=True),
    serving=(ENDPOINT,),
    affinity_timeout=600,
    source_ranges=(parse_network("203.0.113.0/24"),),
)


def state(detector: LocalDetector = None) -> NodeState:
    """A state with something of everything."""
    node = NodeContext(
        name="node-a",
        zone="z",
        addresses=(parse_address("10.0.0.1"), parse_address("fd00::1")),
        node_port_addresses=(parse_address("10.0.0.1"),),
        local_detector=detector,
        service_cidrs=(parse_network("10.96.0.0/16"),),
    )
    return NodeState(
        node=node,
        ports={PORT.key: PORT},
        health={WEB.service: ServiceHealth(service=WEB.service, port=30100, local_ready=frozenset({ENDPOINT.address}))},
        without_local={"external": frozenset({PORT.key})},
        diagnostics=(Diagnostic(severity=Severity.WARNING, subject="Service default/web", message="odd", remedy="mend it"),),
    )


def document(detector: LocalDetector = None) -> dict[str, Any]:
    """The document after a round trip through JSON."""
    made: dict[str, Any] = json.loads(json.dumps(state_document(state(detector), "nftables")))
    return made


def test_the_document_tells_what_happens_to_each_connection() -> None:
    (port,) = document()["service_ports"]
    assert [port[key] for key in ("namespace", "name", "port", "protocol", "family")] == ["default", "web", "http", "TCP", "IPv4"]
    assert port["rules"][0] == {
        "frontend": {"kind": "LoadBalancer", "address": "192.0.2.1", "port": 80},
        "restricted": True,
        "from_local_pod": {"action": "forward", "endpoints": "cluster", "masquerade": "hairpin only"},
        "from_node": {"action": "drop"},
        "from_outside": {"action": "reject"},
    }
    assert port["rules"][1]["frontend"] == {"kind": "NodePort", "address": None, "port": 30080}
    assert port["rules"][1]["from_local_pod"] == {"action": "forward", "endpoints": "local", "masquerade": "always"}
    assert (port["affinity_timeout"], port["source_ranges"]) == (600, ["203.0.113.0/24"])


def test_the_document_tells_of_each_endpoint() -> None:
    (port,) = document()["service_ports"]
    expected = {
        "address": "10.1.0.2",
        "port": 8080,
        "ready": False,
        "serving": True,
        "terminating": True,
        "local": True,
        "nodeless": False,
        "weight": 7,
        "zone_hints": ["a", "b"],
        "node_hints": ["n"],
    }
    assert port["endpoints"] == {"cluster": [expected], "local": [], "reachable": [expected], "any_in_cluster": True}
    assert port["serving"] == [expected]


def test_the_document_tells_of_health_and_of_what_is_odd() -> None:
    made = document()
    assert made["health"] == [{"service": "default/web", "port": 30100, "local_ready": ["10.1.0.2"]}]
    assert made["without_local"] == {"external": ["default/web:http/TCP (IPv4)"]}
    assert made["diagnostics"] == [
        {"severity": "warning", "subject": "Service default/web", "field": "", "message": "odd", "remedy": "mend it", "place": ""}
    ]


def test_the_document_tells_how_local_pods_are_known() -> None:
    networks = LocalByNetwork((parse_network("10.244.0.0/16"),))
    assert document(networks)["node"]["local_pods"] == {"networks": ["10.244.0.0/16"]}
    assert document(LocalByInterface("cbr0"))["node"]["local_pods"] == {"interface": "cbr0"}
    assert document(LocalByInterface("veth", prefix=True))["node"]["local_pods"] == {"interface_prefix": "veth"}
    assert document()["node"]["local_pods"] is None


def test_nothing_is_left_out() -> None:
    made = document()
    (port,) = made["service_ports"]

    def fields(value: type[attrs.AttrsInstance]) -> set[str]:
        return {field.name for field in attrs.fields(value)}

    assert set(port["endpoints"]["cluster"][0]) == set(Endpoint.__struct_fields__)
    assert set(port["endpoints"]) == fields(EndpointSets)
    assert set(port["rules"][0]) == fields(FrontendRule)
    assert set(port) - {"namespace", "port", "protocol"} == fields(ServicePort)
    # Where the API server answers is for the guard alone.
    assert set(made["node"]) - {"local_pods"} == fields(NodeContext) - {"local_detector", "api_servers"}
    assert set(made) - {"version", "mode", "service_ports"} == fields(NodeState) - {"ports"}


def test_service_ports_are_sorted() -> None:
    others = [attrs.evolve(PORT, name=msgspec.structs.replace(WEB, name=name)) for name in ("zebra", "ant")]
    ports = {ServicePortKey(port.family, port.name): port for port in (*others, PORT)}
    made = state_document(attrs.evolve(state(), ports=ports), "nftables")
    assert [port["name"] for port in made["service_ports"]] == ["ant", "web", "zebra"]
    assert ObjectName("default", "web") in state().health
