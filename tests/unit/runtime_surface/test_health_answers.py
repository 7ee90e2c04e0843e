"""What /healthz, /livez and the health ports of Services say, for every state of the proxy and the Node."""

import json
from typing import Any

import pytest
from attrs import evolve, frozen

from kproxy_core.model.addresses import Family, parse_address
from kproxy_core.model.names import ObjectName
from kproxy_core.model.state import ServiceHealth
from kproxy_core.runtime.health_answers import NodeHealth, healthz, livez, service_health
from kproxy_core.runtime.http_messages import Response

NOW = 1_800_000_000.25
SYNCED = NodeHealth(
    now=NOW,
    updated={Family.IPV4: NOW - 5, Family.IPV6: NOW - 7.5},
    healthy={Family.IPV4: True, Family.IPV6: True},
)


@frozen(kw_only=True)
class Watch:
    """A watch as a source tells of it."""

    listed: bool = True
    silence: float | None = 1.5
    problem: str = ""
    relists: int = 0
    requests: int = 1


def body(response: Response) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(response.body)
    return content


@pytest.mark.parametrize(
    ("health", "ready", "alive"),
    [
        (NodeHealth(now=NOW), 200, 200),
        (SYNCED, 200, 200),
        (evolve(SYNCED, eligible=False), 503, 200),
        (evolve(SYNCED, healthy={Family.IPV4: False, Family.IPV6: True}), 503, 503),
        (evolve(SYNCED, healthy={Family.IPV4: True, Family.IPV6: False}), 503, 503),
        (evolve(SYNCED, healthy={Family.IPV4: False, Family.IPV6: True}, eligible=False), 503, 503),
        (evolve(SYNCED, watches={"Service": Watch(problem="connection refused", silence=7200)}), 200, 200),
    ],
)
def test_codes(health: NodeHealth, ready: int, alive: int) -> None:
    assert (healthz(health).status, livez(health).status) == (ready, alive)


def test_the_body_of_a_healthy_proxy() -> None:
    assert healthz(SYNCED).content_type == "application/json"
    assert body(healthz(SYNCED)) == {
        "lastUpdated": "2027-01-15T08:00:00.250000Z",
        "currentTime": "2027-01-15T08:00:00.250000Z",
        "healthy": True,
        "nodeEligible": True,
        "status": {
            "IPv4": {"lastUpdated": "2027-01-15T07:59:55.250000Z", "healthy": True},
            "IPv6": {"lastUpdated": "2027-01-15T07:59:52.750000Z", "healthy": True},
        },
    }
    assert body(livez(SYNCED)) == {name: value for name, value in body(healthz(SYNCED)).items() if name != "nodeEligible"}


def test_the_body_of_a_late_proxy_tells_when_it_was_last_up_to_date() -> None:
    late = evolve(SYNCED, healthy={Family.IPV4: True, Family.IPV6: False}, eligible=False)
    told = body(healthz(late))
    assert (told["healthy"], told["nodeEligible"]) == (False, False)
    assert told["lastUpdated"] == "2027-01-15T07:59:52.750000Z"
    assert told["status"]["IPv6"]["healthy"] is False
    assert told["status"]["IPv4"]["healthy"] is True


def test_a_family_that_was_never_synced_is_absent() -> None:
    assert body(healthz(NodeHealth(now=NOW)))["status"] == {}
    one = NodeHealth(now=NOW, updated={Family.IPV4: NOW}, healthy={Family.IPV4: True, Family.IPV6: True})
    assert list(body(livez(one))["status"]) == ["IPv4"]


def test_the_watches_are_shown() -> None:
    watches = {"Service": Watch(), "Node": Watch(listed=False, silence=None, problem="403 Forbidden")}
    assert body(healthz(evolve(SYNCED, watches=watches)))["watches"] == {
        "Node": {"lastHeard": None, "listed": False, "problem": "403 Forbidden"},
        "Service": {"lastHeard": "2027-01-15T07:59:58.750000Z", "listed": True, "problem": ""},
    }


@pytest.mark.parametrize(
    ("addresses", "count", "healthy", "status"),
    [
        ([], 0, True, 503),
        (["10.244.1.1"], 1, True, 200),
        (["10.244.1.1"], 1, False, 503),
        (["10.244.1.1", "10.244.1.2", "fd00::1"], 2, True, 200),
        (["fd00::1"], 1, True, 200),
    ],
)
def test_s17_a_health_port_needs_an_endpoint_here_and_a_proxy_that_works(
    addresses: list[str], count: int, healthy: bool, status: int
) -> None:
    ready = frozenset(map(parse_address, addresses))
    health = ServiceHealth(service=ObjectName("shop", "web"), port=30100, local_ready=ready)
    answer = service_health(health, healthy)
    assert answer.status == status
    assert answer.headers == {"X-Load-Balancing-Endpoint-Weight": str(count)}
    assert body(answer) == {
        "service": {"namespace": "shop", "name": "web"},
        "localEndpoints": count,
        "serviceProxyHealthy": healthy,
    }
