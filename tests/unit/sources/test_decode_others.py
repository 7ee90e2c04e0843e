"""Decoding EndpointSlices, Endpoints, Nodes, ServiceCIDRs, lists, and what is none of them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.model.addresses import Family, parse_address, parse_network
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import EndpointSlice, Node, ServiceCIDR, SliceEndpoint, SlicePort
from kproxy_core.sources.decode import (
    CODECS,
    ENDPOINT_SLICES,
    NODES,
    SERVICE_CIDRS,
    SERVICES,
    WATCHED,
    ObjectMeta,
    UnreadableError,
    decode_data,
    decode_list,
    decode_object,
)

OWNER = {"kubernetes.io/service-name": "web"}


def slice_data(**given: Any) -> dict[str, Any]:
    metadata = {"name": "web-x", "namespace": "shop", "labels": OWNER, **given.pop("metadata", {})}
    defaults = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.244.0.1"]}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }
    return {**defaults, **given}


def one(data: dict[str, Any]) -> tuple[Any, tuple[Diagnostic, ...]]:
    """The only object of some data, or None; bytes must say the same."""
    found = decode_data(data)
    assert decode_object(json.dumps(data).encode(), CODECS[data["apiVersion"], data["kind"]]) == found
    assert len(found.objects) <= 1
    return (found.objects[0] if found.objects else None), found.diagnostics


def fields(told: tuple[Diagnostic, ...]) -> list[str]:
    return [diagnostic.field for diagnostic in told]


def test_everything_that_a_proxy_reads_of_a_slice() -> None:
    found, told = one(
        slice_data(
            metadata={"annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00.5Z"}},
            endpoints=[
                {
                    "addresses": ["10.244.0.1", "10.244.0.99"],
                    "conditions": {"ready": False, "serving": True, "terminating": True},
                    "nodeName": "here",
                    "zone": "east",
                    "targetRef": {"kind": "Pod"},
                    "hints": {"forZones": [{"name": "east"}, {"name": "west"}], "forNodes": [{"name": "here"}]},
                }
            ],
            ports=[{"name": "http", "port": 8080}, {"name": "dns", "protocol": "UDP", "port": 53}],
        )
    )
    assert told == ()
    assert found == EndpointSlice(
        name=ObjectName("shop", "web-x"),
        service=ObjectName("shop", "web"),
        family=Family.IPV4,
        endpoints=(
            SliceEndpoint(
                address=parse_address("10.244.0.1"),
                ready=False,
                serving=True,
                terminating=True,
                node_name="here",
                zone_hints=frozenset({"east", "west"}),
                node_hints=frozenset({"here"}),
            ),
        ),
        ports=(SlicePort(name="http", port=8080), SlicePort(name="dns", protocol=Protocol.UDP, port=53)),
        trigger_time=1767225600.5,
    )


@pytest.mark.parametrize("ready", [None, True, False])
@pytest.mark.parametrize("serving", [None, True, False])
@pytest.mark.parametrize("terminating", [None, True, False])
def test_s39_missing_conditions_mean_ready_serving_and_not_terminating(
    ready: bool | None, serving: bool | None, terminating: bool | None
) -> None:
    given = {"ready": ready, "serving": serving, "terminating": terminating}
    missing = {name: value for name, value in given.items() if value is not None}
    for conditions in (given, missing):
        found, told = one(slice_data(endpoints=[{"addresses": ["10.244.0.1"], "conditions": conditions}]))
        (endpoint,) = found.endpoints
        assert told == ()
        assert endpoint.ready is (True if ready is None else ready)
        assert endpoint.serving is (True if serving is None else serving)
        assert endpoint.terminating is bool(terminating)


@pytest.mark.parametrize(
    "endpoints", [[{"addresses": ["10.244.0.1"], "hints": h, "conditions": None}] for h in (None, {}, {"forZones": None})]
)
def test_null_is_nothing(endpoints: Any) -> None:
    found, told = one(slice_data(endpoints=endpoints))
    assert told == ()
    assert found.endpoints == (SliceEndpoint(address=parse_address("10.244.0.1")),)


@pytest.mark.parametrize(
    ("given", "told_fields"),
    [
        pytest.param({"addressType": "FQDN"}, [], id="host names"),
        pytest.param({"metadata": {"labels": {**OWNER, "service.kubernetes.io/headless": ""}}}, [], id="s56: headless"),
        pytest.param({"metadata": {"labels": None}}, ["metadata.labels[kubernetes.io/service-name]"], id="no owner"),
        pytest.param(
            {"metadata": {"labels": {"kubernetes.io/service-name": ""}}},
            ["metadata.labels[kubernetes.io/service-name]"],
            id="empty",
        ),
        pytest.param({"addressType": "IPv9"}, ["addressType"], id="unknown type"),
        pytest.param({"addressType": None}, ["addressType", "addressType"], id="no type"),
    ],
)
def test_slices_without_use_are_left_out_but_known_by_name(given: dict[str, Any], told_fields: list[str]) -> None:
    data = slice_data(**given)
    found, told = one(data)
    assert found is None
    assert fields(told) == told_fields
    assert decode_data(data).meta == ObjectMeta("EndpointSlice", ObjectName("shop", "web-x"))


GOOD = {"addresses": ["10.244.0.1"]}


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        pytest.param({"addresses": ["10.244.0.300"]}, "endpoints[1].addresses[0]", id="no address"),
        pytest.param({"addresses": ["fd00::1"]}, "endpoints[1].addresses[0]", id="of the other family"),
        pytest.param({"addresses": ["::ffff:10.0.0.1", "x"]}, "", id="an IPv4 address in disguise is one"),
        pytest.param({"addresses": []}, "endpoints[1].addresses[0]", id="none"),
        pytest.param({"addresses": [7]}, "endpoints[1].addresses[0]", id="a number"),
        pytest.param({"addresses": "10.244.0.2"}, "endpoints[1].addresses", id="no list"),
        pytest.param({}, "endpoints[1].addresses", id="missing"),
        pytest.param("10.244.0.2", "endpoints[1]", id="no mapping"),
    ],
)
def test_a_malformed_endpoint_costs_only_itself(bad: Any, field: str) -> None:
    found, told = one(slice_data(endpoints=[GOOD, bad, GOOD]))
    assert fields(told) == ([field] if field else [])
    assert len(found.endpoints) == (2 if field else 3)


@pytest.mark.parametrize(
    ("endpoint", "field"),
    [
        ({**GOOD, "conditions": {"ready": "yes"}}, "endpoints[0].conditions.ready"),
        ({**GOOD, "conditions": 7}, "endpoints[0].conditions"),
        ({**GOOD, "nodeName": 7}, "endpoints[0].nodeName"),
        ({**GOOD, "hints": {"forZones": "east"}}, "endpoints[0].hints.forZones"),
        ({**GOOD, "hints": {"forZones": [{"zone": "east"}]}}, "endpoints[0].hints.forZones[0].name"),
    ],
)
def test_a_malformed_optional_field_costs_only_itself(endpoint: Any, field: str) -> None:
    found, told = one(slice_data(endpoints=[endpoint]))
    assert fields(told) == [field]
    assert found.endpoints == (SliceEndpoint(address=parse_address("10.244.0.1")),)


@pytest.mark.parametrize(
    ("ports", "names", "told_fields"),
    [
        pytest.param([{"port": 80}], [""], [], id="no name is the empty name, as the API server has it"),
        pytest.param([{"name": None, "port": 80, "protocol": None}], [""], [], id="null"),
        pytest.param(
            [{"name": "a"}, {"name": "b", "port": None}, {"name": "c", "port": 0}], [], [], id="no port means all: ignored"
        ),
        pytest.param([{"name": "a", "port": 70000}], [], ["ports[0].port"], id="out of range"),
        pytest.param([{"name": "a", "port": 80, "protocol": "X"}], [], ["ports[0].protocol"], id="unknown protocol"),
        pytest.param([{"name": "a", "port": 80}, {"name": "a", "port": 81}], ["a"], ["ports[1].name"], id="twice"),
        pytest.param({"name": "a"}, [], ["ports"], id="no list"),
    ],
)
def test_ports_of_slices(ports: Any, names: list[str], told_fields: list[str]) -> None:
    found, told = one(slice_data(ports=ports))
    assert [port.name for port in found.ports] == names
    assert fields(told) == told_fields


@pytest.mark.parametrize("text", ["", "2026-01-01T00:00:00.123456789Z", "yesterday"])
def test_trigger_times(text: str) -> None:
    found, told = one(slice_data(metadata={"annotations": {"endpoints.kubernetes.io/last-change-trigger-time": text}}))
    expected = 1767225600.123456 if text.startswith("2026") else None
    assert found.trigger_time == expected
    assert [d.severity for d in told] == ([Severity.NOTE] if text == "yesterday" else [])


def test_strings_that_repeat_are_one_object() -> None:
    body = json.dumps(
        {"items": [slice_data(endpoints=[{**GOOD, "nodeName": "some-node", "hints": {"forZones": [{"name": "east"}]}}])] * 2}
    )
    first, second = decode_list(body.encode(), ENDPOINT_SLICES).objects
    assert isinstance(first, EndpointSlice)
    assert isinstance(second, EndpointSlice)
    assert first.endpoints[0].node_name is second.endpoints[0].node_name
    assert first.endpoints[0].zone_hints is second.endpoints[0].zone_hints
    assert first.service.name is second.service.name


def endpoints_data(**given: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web", "namespace": "shop"}, **given}


def test_endpoints_become_a_slice_for_each_subset_and_family() -> None:
    found = decode_data(
        endpoints_data(
            subsets=[
                {
                    "addresses": [{"ip": "10.244.0.1", "nodeName": "here"}, {"ip": "fd00:244::1"}],
                    "notReadyAddresses": [{"ip": "10.244.0.2"}],
                    "ports": [{"name": "http", "port": 8080}],
                },
                {"addresses": [{"ip": "10.244.0.3"}], "ports": [{"name": "http", "port": 9090}]},
            ]
        )
    )
    assert found.diagnostics == ()
    described = [
        (
            s.name.name,
            s.service.name,
            s.family.label,
            [(str(e.address), e.ready, e.node_name) for e in s.endpoints],
            s.ports[0].port,
        )
        for s in found.objects
        if isinstance(s, EndpointSlice)
    ]
    assert described == [
        ("web-endpoints-0-ipv4", "web", "IPv4", [("10.244.0.1", True, "here"), ("10.244.0.2", False, "")], 8080),
        ("web-endpoints-0-ipv6", "web", "IPv6", [("fd00:244::1", True, "")], 8080),
        ("web-endpoints-1-ipv4", "web", "IPv4", [("10.244.0.3", True, "")], 9090),
    ]


def test_malformed_endpoints_cost_only_themselves() -> None:
    subsets = [7, {"addresses": [{"ip": "x"}, {"ip": "10.244.0.1"}, {}], "ports": [{"port": 80, "protocol": "?"}]}]
    found = decode_data(endpoints_data(subsets=subsets))
    assert fields(found.diagnostics) == [
        "subsets[0]",
        "subsets[1].addresses[2].ip",
        "subsets[1].ports[0].protocol",
        "subsets[1].addresses[0].ip",
    ]
    (part,) = found.objects
    assert isinstance(part, EndpointSlice)
    assert [str(e.address) for e in part.endpoints] == ["10.244.0.1"]
    headless = {"name": "web", "labels": {"service.kubernetes.io/headless": ""}}
    assert decode_data(endpoints_data(metadata=headless, subsets=subsets[1:])).objects == ()


def node_data(**given: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here", **given.pop("metadata", {})}, **given}


def test_everything_that_a_proxy_reads_of_a_node() -> None:
    addresses = [("Hostname", "here"), ("ExternalIP", "203.0.113.5"), ("InternalIP", "192.0.2.1"), ("InternalIP", "2001:db8::1")]
    found, told = one(
        node_data(
            metadata={"labels": {"topology.kubernetes.io/zone": "east"}},
            spec={"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:244:1::/64"], "unschedulable": True},
            status={"addresses": [{"type": kind, "address": address} for kind, address in addresses]},
        )
    )
    assert told == ()
    assert found == Node(
        name="here",
        internal_addresses=(parse_address("192.0.2.1"), parse_address("2001:db8::1")),
        external_addresses=(parse_address("203.0.113.5"),),
        pod_cidrs=(parse_network("10.244.1.0/24"), parse_network("fd00:244:1::/64")),
        zone="east",
    )


@pytest.mark.parametrize(
    ("given", "eligible"),
    [
        ({}, True),
        ({"spec": {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable"}]}}, True),
        ({"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
    ],
)
def test_o13_a_node_that_is_about_to_go_is_not_eligible(given: dict[str, Any], eligible: bool) -> None:
    found, told = one(node_data(**given))
    assert (found.eligible, told) == (eligible, ())


def test_a_malformed_node_keeps_the_rest() -> None:
    addresses = [{"type": "InternalIP", "address": "x"}, {"type": "InternalIP", "address": "192.0.2.1"}, {"type": "InternalIP"}]
    found, told = one(node_data(status={"addresses": addresses}, spec={"podCIDRs": ["10.244.1.0/99", 7]}))
    assert found.internal_addresses == (parse_address("192.0.2.1"),)
    assert fields(told) == [
        "status.addresses[2].address",
        "spec.podCIDRs[1]",
        "status.addresses[0].address",
        "spec.podCIDRs[0]",
    ]


def test_service_cidrs() -> None:
    data = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"}}
    found, told = one({**data, "spec": {"cidrs": ["10.96.0.0/12", "x", "fd00:96::/112"]}})
    assert found == ServiceCIDR(name="kubernetes", cidrs=(parse_network("10.96.0.0/12"), parse_network("fd00:96::/112")))
    assert fields(told) == ["spec.cidrs[1]"]
    assert one(data) == (ServiceCIDR(name="kubernetes"), ())


@pytest.mark.parametrize(
    ("data", "subject", "severity"),
    [
        ({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}, "Deployment default/web", Severity.NOTE),
        ({"apiVersion": "v2", "kind": "Service", "metadata": {"name": "web"}}, "Service default/web", Severity.ERROR),
        ({"kind": "Service", "metadata": []}, "Service without a name", Severity.ERROR),
        ({"metadata": {"name": "web"}}, "object web", Severity.ERROR),
        ([1, 2], "object", Severity.ERROR),
        ("text", "object", Severity.ERROR),
        (None, "object", Severity.ERROR),
        ({"apiVersion": "v1", "kind": "Service"}, "Service without a name", Severity.ERROR),
        ({"apiVersion": "v1", "kind": "Service", "metadata": {"name": 7}}, "Service default/", Severity.ERROR),
        ({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a b"}}, "Service default/a b", Severity.ERROR),
        ({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "x/y"}}, "Service x/y/a", Severity.ERROR),
    ],
)
def test_what_is_no_object_of_ours_is_told(data: Any, subject: str, severity: Severity) -> None:
    found = decode_data(data)
    assert (found.objects, found.meta) == ((), None)
    assert {(d.subject, d.severity) for d in found.diagnostics} == {(subject, severity)}


def test_a_missing_namespace_is_default() -> None:
    found = decode_data({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "resourceVersion": "7", "uid": "u"}})
    assert found.meta == ObjectMeta("Service", ObjectName("default", "web"), "u", "7")


def test_a_list_body_with_one_malformed_object_keeps_the_others() -> None:
    items = [slice_data(), slice_data(ports="x"), slice_data(metadata={"name": "web-y"})]
    body = json.dumps({"kind": "EndpointSliceList", "metadata": {"resourceVersion": "77", "continue": "more"}, "items": items})
    found = decode_list(body.encode(), ENDPOINT_SLICES)
    assert (len(found.objects), found.resource_version, found.continue_token) == (3, "77", "more")
    assert fields(found.diagnostics) == ["ports"]


@pytest.mark.parametrize("items", [b"null", b"[]"])
def test_an_empty_list_is_a_list(items: bytes) -> None:
    found = decode_list(b'{"metadata":{"resourceVersion":"1"},"items":' + items + b"}", SERVICES)
    assert (found.objects, found.resource_version, found.continue_token) == ((), "1", "")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"metadata":{},"items":[',
        b'{"metadata":{},"items":[{"metadata":{"name":"a"}}',
        b'{"kind":"Status","status":"Failure","code":410}',
        b"[]",
        b"<html>",
        b'{"items":{}}',
        b"[" * 100_000,
    ],
)
def test_a_torn_or_foreign_body_is_never_an_empty_list(body: bytes) -> None:
    with pytest.raises(UnreadableError):
        decode_list(body, SERVICES)
    with pytest.raises(UnreadableError):
        decode_object(body[:-1] or b"{", SERVICES)


@pytest.mark.parametrize("number", [b"1e400", b"80.0", b"99999999999999999999999"])
def test_numbers_beyond_all_bounds_cost_their_entry_only(number: bytes) -> None:
    body = b'{"metadata":{"name":"web"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":%s},{"name":"b","port":81}]}}' % number
    found = decode_object(body, SERVICES)
    assert fields(found.diagnostics) == ["spec.ports[0].port"]
    assert [port.port for service in found.objects for port in service.ports] == [81]  # type: ignore[union-attr]


def test_broken_unicode_costs_its_object_only() -> None:
    body = b'{"items":[{"metadata":{"name":"\\ud800"}},{"metadata":{"name":"web","labels":{"x":"\\ud800"}}}]}'
    found = decode_list(body, SERVICES)
    assert [str(service.name) for service in found.objects] == ["default/web"]
    assert len(found.diagnostics) == 1


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["10.0.0.1", "TCP", "IPv4"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FULL: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"a": "b"}, "annotations": {"kproxy.dev/weights": "*=1"}},
        "spec": {
            "clusterIPs": ["10.96.0.1"],
            "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP"}],
            "externalIPs": ["198.51.100.1"],
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}},
            "loadBalancerSourceRanges": ["192.0.2.0/24"],
            "healthCheckNodePort": 1,
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1", "ipMode": "VIP"}]}},
    },
    slice_data(endpoints=[{**GOOD, "conditions": {"ready": True}, "hints": {"forZones": [{"name": "a"}]}, "nodeName": "n"}]),
    endpoints_data(subsets=[{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]}]),
    node_data(
        spec={"podCIDRs": ["10.0.0.0/8"], "taints": [{"key": "x"}]},
        status={"addresses": [{"type": "InternalIP", "address": "x"}]},
    ),
    {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "a"}, "spec": {"cidrs": ["10.0.0.0/8"]}},
]


@st.composite
def spoiled(draw: st.DrawFn) -> Any:
    """An object of ours with some parts replaced by anything."""
    data = json.loads(json.dumps(draw(st.sampled_from(FULL))))
    for _ in range(draw(st.integers(1, 4))):
        holder: Any = data
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(holder[key], dict | list) and holder[key] and draw(st.integers(0, 3)):
                holder = holder[key]
                continue
            holder[key] = draw(JUNK)
            break
    return data


@given(spoiled() | JUNK)
def test_data_never_raises_and_what_is_decoded_can_be_told(data: Any) -> None:
    found = decode_data(data)
    for diagnostic in found.diagnostics:
        assert diagnostic.subject
        assert diagnostic.message
        assert str(diagnostic)
    body = json.dumps({"items": [data]}, allow_nan=True).encode("utf-8", "surrogatepass")
    for codec in WATCHED.values():
        assert len(decode_list(body, codec).objects) <= 1


def test_the_watched_kinds_have_their_codecs() -> None:
    assert [codec.kind for codec in WATCHED.values()] == [kind.value for kind in WATCHED]
    assert {NODES, SERVICE_CIDRS} <= set(CODECS.values())
