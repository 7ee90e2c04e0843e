"""What is known of the node: its addresses, where NodePorts answer, how local pods are told, and what is amiss."""

from typing import Any

import pytest
from attrs import evolve

from kproxy_core.config.settings import DetectLocalMode, NodePortScope, Settings
from kproxy_core.model.addresses import Family, parse_address, parse_network
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Node, ServiceCIDR, SliceEndpoint, SlicePort
from kproxy_core.model.snapshot import ClusterSnapshot, Kind
from kproxy_core.model.state import LocalByInterface, LocalByNetwork, NodeContext
from kproxy_core.resolve.node import node_context, node_diagnostics
from kproxy_core.resolve.resolve import relevant

INTERFACES = tuple(
    map(parse_address, ["127.0.0.1", "::1", "192.0.2.1", "2001:db8::1", "fe80::1", "172.17.0.1", "192.0.2.1", "169.254.20.10"])
)


def addresses(*texts: str) -> tuple[Any, ...]:
    return tuple(map(parse_address, texts))


def networks(*texts: str) -> tuple[Any, ...]:
    return tuple(map(parse_network, texts))


def texts(values: Any) -> list[str]:
    return list(map(str, values))


NODE = Node(
    name="here",
    internal_addresses=addresses("192.0.2.1", "192.0.2.2"),
    external_addresses=addresses("2001:db8::1", "203.0.113.5"),
)


def context(node: Node | None = NODE, *, everywhere: bool = False, snapshot: Any = None, **settings: Any) -> NodeContext:
    snapshot = snapshot or ClusterSnapshot(node=node)
    return node_context(snapshot, INTERFACES, Settings(node_name="here", **settings), node_ports_everywhere=everywhere)


def test_addresses_are_those_of_interfaces_and_node_without_loopback_and_what_comes_with_every_pod() -> None:
    assert sorted(texts(context().addresses)) == sorted(
        ["169.254.20.10", "172.17.0.1", "192.0.2.1", "192.0.2.2", "2001:db8::1", "203.0.113.5"]
    )


def test_the_order_of_interfaces_does_not_matter_with_a_node() -> None:
    reverse = node_context(ClusterSnapshot(node=NODE), INTERFACES[::-1], Settings(node_name="here"), node_ports_everywhere=False)
    assert reverse == context()


@pytest.mark.parametrize(
    ("node", "bind", "expected"),
    [
        pytest.param(NODE, None, ["192.0.2.1", "2001:db8::1"], id="the first of each family, internal before external"),
        pytest.param(NODE, "203.0.113.9", ["2001:db8::1", "203.0.113.9"], id="bindAddress overrides its family"),
        pytest.param(NODE, "0.0.0.0", ["192.0.2.1", "2001:db8::1"], id="an unspecified bindAddress says nothing"),
        pytest.param(Node(name="here", internal_addresses=addresses("192.0.2.2")), None, ["192.0.2.2"], id="one family only"),
        pytest.param(None, None, ["192.0.2.1", "2001:db8::1"], id="o1: without a Node the first of the interfaces"),
        pytest.param(None, "::", ["192.0.2.1", "2001:db8::1"], id="the same with an unspecified bindAddress"),
        pytest.param(NODE, "127.0.0.1", ["2001:db8::1"], id="loopback never answers"),
    ],
)
def test_primary_addresses_answer_on_node_ports(node: Node | None, bind: str | None, expected: list[str]) -> None:
    found = context(node, bind_address=parse_address(bind) if bind else None)
    assert sorted(texts(found.node_port_addresses)) == expected
    assert not found.node_port_any


@pytest.mark.parametrize(
    ("given", "everywhere", "expected"),
    [
        pytest.param(None, True, ["127.0.0.0/8", "::1/128"], id="the mode's default is everywhere"),
        pytest.param(None, False, [], id="it is the primary addresses"),
        pytest.param(NodePortScope.ALL, False, ["127.0.0.0/8", "::1/128"], id="all"),
        pytest.param(NodePortScope.PRIMARY, True, [], id="primary"),
        pytest.param(networks("192.0.2.0/24"), True, [], id="others"),
        pytest.param(networks("127.0.0.1/32", "::/0"), False, ["127.0.0.1/32", "::1/128"], id="what is in both"),
    ],
)
def test_loopback_addresses_that_are_chosen_for_node_ports(given: Any, everywhere: bool, expected: list[str]) -> None:
    found = context(everywhere=everywhere, node_port_addresses=given)
    assert [str(network) for network in found.loopback_node_ports] == expected


def test_a_primary_address_that_is_a_loopback_address() -> None:
    """An odd thing to choose, but where nothing else is chosen, nothing else answers."""
    found = context(bind_address=parse_address("127.0.0.1"), node_port_addresses=NodePortScope.PRIMARY)
    assert [str(network) for network in found.loopback_node_ports] == ["127.0.0.1/32"]


@pytest.mark.parametrize(
    ("given", "everywhere", "expected"),
    [
        pytest.param(None, True, None, id="the mode's default is everywhere"),
        pytest.param(NodePortScope.ALL, False, None, id="all"),
        pytest.param(NodePortScope.PRIMARY, True, ["192.0.2.1", "2001:db8::1"], id="primary beats the mode's default"),
        pytest.param(networks("172.16.0.0/12"), True, ["172.17.0.1"], id="ranges beat it too"),
        pytest.param(networks("192.0.2.0/24", "2001:db8::/32"), False, ["192.0.2.1", "2001:db8::1"], id="s58: both families"),
        pytest.param(networks("192.0.2.2/32"), False, [], id="an address that no interface has"),
        pytest.param(
            networks("0.0.0.0/0"), False, ["169.254.20.10", "172.17.0.1", "192.0.2.1"], id="a whole family, loopback aside"
        ),
        pytest.param(networks("127.0.0.0/8", "::1/128"), False, [], id="loopback never"),
    ],
)
def test_s58_node_port_addresses(given: Any, everywhere: bool, expected: list[str] | None) -> None:
    found = context(everywhere=everywhere, node_port_addresses=given)
    assert found.node_port_any is (expected is None)
    if expected is None:
        assert sorted(texts(found.node_port_addresses)) == ["169.254.20.10", "172.17.0.1", "192.0.2.1", "2001:db8::1"]
    else:
        assert sorted(texts(found.node_port_addresses)) == expected


@pytest.mark.parametrize(
    ("mode", "given", "pod_cidrs", "expected"),
    [
        (DetectLocalMode.CLUSTER_CIDR, {"cluster_cidrs": networks("10.0.0.0/8")}, (), LocalByNetwork(networks("10.0.0.0/8"))),
        (DetectLocalMode.CLUSTER_CIDR, {}, networks("10.244.1.0/24"), None),
        (
            DetectLocalMode.NODE_CIDR,
            {"cluster_cidrs": networks("10.0.0.0/8")},
            networks("10.244.1.0/24"),
            LocalByNetwork(networks("10.244.1.0/24")),
        ),
        (DetectLocalMode.NODE_CIDR, {}, (), None),
        (DetectLocalMode.BRIDGE_INTERFACE, {"bridge_interface": "cni0"}, (), LocalByInterface("cni0")),
        (DetectLocalMode.BRIDGE_INTERFACE, {}, (), None),
        (DetectLocalMode.INTERFACE_NAME_PREFIX, {"interface_name_prefix": "veth"}, (), LocalByInterface("veth", prefix=True)),
        (DetectLocalMode.INTERFACE_NAME_PREFIX, {}, (), None),
    ],
)
def test_local_detection(mode: DetectLocalMode, given: dict[str, Any], pod_cidrs: Any, expected: Any) -> None:
    node = evolve(NODE, pod_cidrs=pod_cidrs)
    settings = Settings(node_name="here", detect_local_mode=mode, **given)
    snapshot = ClusterSnapshot(node=node)
    found = node_context(snapshot, INTERFACES, settings, node_ports_everywhere=False)
    assert found.local_detector == expected
    told = node_diagnostics(snapshot, found, settings)
    assert bool(told) is (expected is None)


def test_o21_the_missing_cluster_cidr_is_told() -> None:
    snapshot, settings = ClusterSnapshot(node=NODE), Settings(node_name="here")
    (diagnostic,) = node_diagnostics(snapshot, context(), settings)
    assert (diagnostic.subject, diagnostic.field) == ("configuration", "clusterCIDR")
    assert "masqueraded" in diagnostic.message
    assert diagnostic.remedy


def test_o1_a_missing_node_is_told_once_nodes_have_been_listed() -> None:
    settings = Settings(node_name="here", cluster_cidrs=networks("10.244.0.0/16"))
    found = node_context(ClusterSnapshot(), INTERFACES, settings, node_ports_everywhere=False)
    assert node_diagnostics(ClusterSnapshot(), found, settings) == ()
    (diagnostic,) = node_diagnostics(ClusterSnapshot(synced=frozenset({Kind.NODE})), found, settings)
    assert diagnostic.subject == "Node here"
    assert "hostnameOverride" in diagnostic.remedy


def test_ranges_that_hold_no_address_are_told() -> None:
    settings = Settings(
        node_name="here", cluster_cidrs=networks("10.244.0.0/16"), node_port_addresses=networks("198.51.100.0/24")
    )
    snapshot = ClusterSnapshot(node=NODE)
    found = node_context(snapshot, INTERFACES, settings, node_ports_everywhere=False)
    assert [d.field for d in node_diagnostics(snapshot, found, settings)] == ["nodePortAddresses"]


def test_zone_service_cidrs_and_masquerading_are_taken_over() -> None:
    cidrs = {
        name: ServiceCIDR(name=name, cidrs=networks(*ranges))
        for name, ranges in {"kubernetes": ("10.96.0.0/16", "fd00:96::/112"), "more": ("10.97.0.0/16",)}.items()
    }
    snapshot = ClusterSnapshot(node=evolve(NODE, zone="east"), service_cidrs=cidrs)
    found = context(snapshot=snapshot, masquerade_bit=3, masquerade_all=True)
    assert (found.name, found.zone, found.masquerade_bit, found.masquerade_all) == ("here", "east", 3, True)
    assert texts(found.service_cidrs) == ["10.96.0.0/15", "fd00:96::/112"]


def test_the_api_servers_are_the_endpoints_of_their_service() -> None:
    name = ObjectName("default", "kubernetes")
    part = EndpointSlice(
        name=name,
        service=name,
        family=Family.IPV4,
        endpoints=tuple(SliceEndpoint(address=a, ready=False) for a in addresses("192.0.2.10", "192.0.2.11")),
        ports=(SlicePort(name="https", port=6443),),
    )
    found = context(snapshot=ClusterSnapshot(slices={name: {name: part}}))
    assert found.api_servers == {(parse_address("192.0.2.10"), 6443), (parse_address("192.0.2.11"), 6443)}
    assert context(snapshot=ClusterSnapshot(slices={ObjectName("other", "kubernetes"): {name: part}})).api_servers == frozenset()


def test_what_only_the_scaffold_needs_is_of_no_concern_to_services() -> None:
    base = context()
    harmless: tuple[dict[str, Any], ...] = (
        {"service_cidrs": networks("10.96.0.0/12")},
        {"node_port_addresses": ()},
        {"node_port_any": True},
        {"loopback_node_ports": networks("127.0.0.0/8")},
        {"masquerade_bit": 1},
    )
    for change in harmless:
        assert relevant(evolve(base, **change)) == relevant(base)
    weighty: tuple[dict[str, Any], ...] = (
        {"name": "there"},
        {"zone": "west"},
        {"addresses": ()},
        {"masquerade_all": True},
        {"local_detector": LocalByInterface("cni0")},
        {"api_servers": frozenset({(parse_address("192.0.2.1"), 6443)})},
    )
    for change in weighty:
        assert relevant(evolve(base, **change)) != relevant(base)
