"""Why a Service port has no endpoints is told: as a note where that is normal, as a warning where the names of ports differ."""

from collections.abc import Callable
from typing import Any

import pytest

from kproxy_core.model.addresses import Family, parse_address
from kproxy_core.model.diagnostics import Severity
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import ServicePortSpec, SlicePort
from kproxy_core.resolve.endpointless import MOST_PORTS

Make = Callable[..., Any]
HTTP = ServicePortSpec(name="http", port=80)


def ports(*names: str, protocol: Protocol = Protocol.TCP) -> tuple[SlicePort, ...]:
    return tuple(SlicePort(name=name, port=8080 + number, protocol=protocol) for number, name in enumerate(names))


def told(resolved: Any) -> list[tuple[Severity, str]]:
    return [(diagnostic.severity, diagnostic.message) for diagnostic in resolved.diagnostics]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        pytest.param(ports("web"), "port web/TCP, not http/TCP", id="another name"),
        pytest.param(ports("a", "b"), "the ports a/TCP, b/TCP, not http/TCP", id="other names"),
        pytest.param(ports("http", protocol=Protocol.UDP), "port http/UDP, not http/TCP", id="another protocol"),
        pytest.param(ports(""), "port without a name/TCP, not http/TCP", id="no name"),
        pytest.param((), "no port, not http/TCP", id="no port"),
        pytest.param(ports(*map(str, range(7))), "4/TCP and 2 more, not http/TCP", id="many"),
    ],
)
def test_ready_endpoints_of_another_port_are_a_warning(
    make_service: Make, make_slice: Make, decide: Make, given: tuple[SlicePort, ...], why: str
) -> None:
    assert MOST_PORTS == 5
    resolved = decide(make_service(ports=(HTTP,)), [make_slice("10.1.0.1", ports=given)])
    ((severity, message),) = told(resolved)
    assert severity is Severity.WARNING
    assert message.startswith("port http: no endpoints; its EndpointSlices have ready ones, but for ")
    assert message.endswith(why)


def test_what_is_normal_in_a_cluster_is_a_note(make_service: Make, make_slice: Make, decide: Make) -> None:
    service = make_service(ports=(HTTP,))
    cases: list[tuple[list[Any], str]] = [
        ([], "no EndpointSlice names the Service"),
        ([make_slice(ports=ports("http"))], "its EndpointSlices hold none"),
        ([make_slice(ports=())], "its EndpointSlices hold none"),
        ([make_slice("10.1.0.1 notready", ports=ports("web"))], "its EndpointSlices hold none"),
        (
            [make_slice("10.1.0.1 dead", "10.1.0.2 dead", ports=ports("http"))],
            "none of 2 is ready, nor serves while it terminates",
        ),
        ([make_slice("fd00::1", ports=ports("http"))], "there is no EndpointSlice of type IPv4 for the Service"),
    ]
    for slices, why in cases:
        assert told(decide(service, slices)) == [(Severity.NOTE, f"port http: no endpoints; {why}")]


def test_nothing_is_told_where_somebody_answers(make_service: Make, make_slice: Make, decide: Make) -> None:
    service = make_service(ports=(HTTP,))
    for endpoint in ("10.1.0.1", "10.1.0.1 terminating"):
        slices = [
            make_slice(endpoint, ports=ports("http")),
            make_slice("10.1.0.2", name=ObjectName("shop", "w"), ports=ports("x")),
        ]
        assert told(decide(service, slices)) == []


def test_one_reason_is_told_once_for_all_ports_and_families(make_service: Make, make_slice: Make, decide: Make) -> None:
    both = (parse_address("10.96.0.10"), parse_address("fd00:96::10"))
    service = make_service(ports=(HTTP, ServicePortSpec(port=443)), cluster_ips=both)
    assert told(decide(service)) == [
        (
            Severity.NOTE,
            "ports http (IPv4), 443 (IPv4), http (IPv6), 443 (IPv6): no endpoints; no EndpointSlice names the Service",
        )
    ]
    slices = [make_slice("10.1.0.1", ports=ports("http", "")), make_slice(family=Family.IPV6, name=ObjectName("shop", "6"))]
    assert told(decide(service, slices)) == [
        (Severity.NOTE, "ports http (IPv6), 443 (IPv6): no endpoints; its EndpointSlices hold none")
    ]


@pytest.mark.parametrize("given", [{"headless": True}, {"proxy_name": "other"}, {"cluster_ips": ()}])
def test_services_of_no_concern_are_silent(make_service: Make, make_slice: Make, decide: Make, given: dict[str, Any]) -> None:
    resolved = decide(make_service(ports=(HTTP,), **given), [make_slice("10.1.0.1", ports=ports("web"))])
    assert resolved.diagnostics == ()
