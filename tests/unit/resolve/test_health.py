"""healthCheckNodePort: how many local ready addresses a load balancer may count on."""

from collections.abc import Callable
from typing import Any

import pytest

from kproxy_core.model.addresses import parse_address
from kproxy_core.model.objects import ServicePortSpec, ServiceType, SlicePort, TrafficPolicy

Make = Callable[..., Any]
GIVEN = {"type": ServiceType.LOAD_BALANCER, "external_policy": TrafficPolicy.LOCAL, "health_check_node_port": 32000}


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        pytest.param(["10.244.0.1 here", "10.244.0.2 here", "10.244.1.1"], {"10.244.0.1", "10.244.0.2"}, id="s19: local ones"),
        pytest.param(["10.244.0.1 terminating here"], set(), id="s13: the fallback does not count"),
        pytest.param(["10.244.0.1 notready here"], set(), id="not ready"),
        pytest.param([], set(), id="none"),
        pytest.param(["127.0.0.1 here"], set(), id="what the guard leaves out does not count"),
    ],
)
def test_s19_local_ready_addresses(
    endpoints: list[str], expected: set[str], make_service: Make, make_slice: Make, decide: Make
) -> None:
    health = decide(make_service(**GIVEN), [make_slice(*endpoints)]).health
    assert (health.port, set(map(str, health.local_ready))) == (32000, expected)


def test_an_address_with_two_ports_counts_once_and_both_families_count(
    make_service: Make, make_slice: Make, decide: Make
) -> None:
    service = make_service(
        cluster_ips=(parse_address("10.96.0.10"), parse_address("fd00:96::10")),
        ports=(ServicePortSpec(name="a", port=80), ServicePortSpec(name="b", port=81)),
        **GIVEN,
    )
    ports = (SlicePort(name="a", port=8080), SlicePort(name="b", port=8081))
    slices = [make_slice("10.244.0.1 here", ports=ports), make_slice("fd00:244::1 here", ports=ports)]
    assert set(map(str, decide(service, slices).health.local_ready)) == {"10.244.0.1", "fd00:244::1"}


@pytest.mark.parametrize(
    "given",
    [{"type": ServiceType.NODE_PORT}, {"external_policy": TrafficPolicy.CLUSTER}, {"health_check_node_port": 0}],
)
def test_other_services_have_none(given: dict[str, Any], make_service: Make, decide: Make) -> None:
    assert decide(make_service(**{**GIVEN, **given})).health is None
