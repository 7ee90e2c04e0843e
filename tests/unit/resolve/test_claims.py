"""Rival claims to one address and port: the oldest wins, the loser keeps the rest and is told, and an heir takes over."""

from collections.abc import Callable, Iterable
from itertools import permutations
from typing import Any

import pytest
from attrs import evolve

from kproxy_core.config.settings import Settings
from kproxy_core.model.addresses import parse_address
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import Service, ServicePortSpec
from kproxy_core.model.snapshot import ClusterSnapshot
from kproxy_core.model.state import NodeContext, NodeState
from kproxy_core.resolve.claims import ClaimBook, claims_of
from kproxy_core.resolve.resolve import resolve, resolve_service

Make = Callable[..., Any]


@pytest.fixture
def state(node: NodeContext) -> Callable[[Iterable[Service]], NodeState]:
    """Resolve these Services, none of which has endpoints."""

    def resolve_all(services: Iterable[Service]) -> NodeState:
        snapshot = ClusterSnapshot(services={service.name: service for service in services})
        found = resolve(snapshot, node, Settings(node_name="here"))
        # That there are no endpoints is told as well, and no matter here.
        return evolve(found, diagnostics=tuple(d for d in found.diagnostics if d.field != "spec.ports"))

    return resolve_all


@pytest.fixture
def claimant(make_service: Make) -> Make:
    """A Service with a cluster address of its own that wants 198.51.100.1:80."""

    def make(name: str, created: float, **given: Any) -> Any:
        number = sum(map(ord, name)) % 250
        defaults = {"cluster_ips": (parse_address(f"10.96.1.{number}"),), "external_ips": (parse_address("198.51.100.1"),)}
        return make_service(name=ObjectName("shop", name), created=created, **{**defaults, **given})

    return make


def owners(state: NodeState, frontend: str) -> list[str]:
    return [str(key.name) for key, port in state.ports.items() for rule in port.rules if str(rule.frontend) == frontend]


def test_the_oldest_wins_and_the_loser_keeps_its_other_frontends(claimant: Make, state: Make) -> None:
    found = state([claimant("young", 2.0), claimant("old", 1.0)])
    assert owners(found, "198.51.100.1:80") == ["shop/old/TCP"]
    young = next(port for key, port in found.ports.items() if key.name.name == "young")
    assert [rule.frontend.kind.value for rule in young.rules] == ["ClusterIP"]
    (diagnostic,) = [d for d in found.diagnostics if d.subject == "Service shop/young"]
    assert diagnostic.field == "spec.externalIPs"
    assert "198.51.100.1:80" in diagnostic.message
    assert "belongs to the older shop/old" in diagnostic.message


def test_of_two_that_are_equally_old_none_is_called_older(claimant: Make, state: Make) -> None:
    never = float("inf")
    found = state([claimant("b", never), claimant("a", never)])
    assert owners(found, "198.51.100.1:80") == ["shop/a/TCP"]
    (diagnostic,) = found.diagnostics
    assert "older" not in diagnostic.message
    assert "shop/a/TCP (IPv4), the first by name" in diagnostic.message


@pytest.mark.parametrize(
    ("services", "winner"),
    [
        ([("b", 1.0), ("a", 1.0), ("c", 1.0)], "shop/a/TCP"),
        ([("b", float("inf")), ("a", float("inf")), ("c", 5.0)], "shop/c/TCP"),
        ([("a", 3.0), ("b", 2.0), ("c", 1.0)], "shop/c/TCP"),
    ],
)
def test_equal_ages_settle_by_name_in_any_order(
    services: list[tuple[str, float]], winner: str, claimant: Make, state: Make
) -> None:
    results = [state([claimant(*given) for given in order]) for order in permutations(services)]
    assert {tuple(owners(found, "198.51.100.1:80")) for found in results} == {(winner,)}
    assert len({found.diagnostics for found in results}) == 1


def test_an_heir_takes_over(claimant: Make, state: Make) -> None:
    old, young = claimant("old", 1.0), claimant("young", 2.0)
    assert owners(state([young]), "198.51.100.1:80") == ["shop/young/TCP"]
    without = evolve(old, external_ips=())
    assert owners(state([without, young]), "198.51.100.1:80") == ["shop/young/TCP"]


@pytest.mark.parametrize(
    "ports",
    [
        pytest.param((ServicePortSpec(port=80, protocol=Protocol.UDP),), id="s54: another protocol"),
        pytest.param((ServicePortSpec(port=81),), id="another port"),
    ],
)
def test_only_the_same_address_port_and_protocol_are_rivals(ports: Any, claimant: Make, state: Make) -> None:
    found = state([claimant("old", 1.0), claimant("young", 2.0, ports=ports)])
    assert found.diagnostics == tuple(d for d in found.diagnostics if d.subject != "Service shop/young")


def test_node_ports_are_rivals_in_each_family(make_service: Make, state: Make) -> None:
    both = (parse_address("10.96.0.10"), parse_address("fd00:96::10"))
    port = (ServicePortSpec(port=80, node_port=30080),)
    old = make_service(name=ObjectName("shop", "old"), created=1.0, cluster_ips=both[:1], ports=port)
    young = make_service(
        name=ObjectName("shop", "young"), created=2.0, cluster_ips=(parse_address("10.96.0.11"), both[1]), ports=port
    )
    found = state([young, old])
    assert owners(found, "*:30080") == ["shop/young/TCP", "shop/old/TCP"]
    families = {
        key.family.label
        for key, port in found.ports.items()
        for r in port.rules
        if r.frontend.port == 30080 and key.name.name == "young"
    }
    assert families == {"IPv6"}


def test_two_ports_of_one_service_can_be_rivals(make_service: Make, state: Make) -> None:
    found = state([make_service(ports=(ServicePortSpec(name="b", port=80), ServicePortSpec(name="a", port=80)))])
    assert owners(found, "10.96.0.10:80") == ["shop/web:a/TCP"]
    assert len(found.diagnostics) == 1


def test_a_node_port_gives_way_to_an_address_of_the_node_and_is_told(make_service: Make, claimant: Make, state: Make) -> None:
    node_port = make_service(ports=(ServicePortSpec(port=80, node_port=30080),))
    external = claimant("edge", 9.0, external_ips=(parse_address("192.0.2.1"),), ports=(ServicePortSpec(port=30080),))
    found = state([node_port, external])
    assert owners(found, "*:30080") == ["shop/web/TCP"]
    assert owners(found, "192.0.2.1:30080") == ["shop/edge/TCP"]
    (diagnostic,) = found.diagnostics
    assert (diagnostic.subject, diagnostic.field) == ("Service shop/web", "spec.ports.nodePort")
    assert "192.0.2.1" in diagnostic.message
    assert "shop/edge" in diagnostic.message
    udp = evolve(external, ports=(ServicePortSpec(port=30080, protocol=Protocol.UDP),))
    elsewhere = evolve(external, external_ips=(parse_address("192.0.2.77"),))
    assert state([node_port, udp]).diagnostics == state([node_port, elsewhere]).diagnostics == ()


def test_the_book_tells_who_is_concerned(claimant: Make, node: NodeContext) -> None:
    old, middle, young = (
        resolve_service(claimant(name, age), (), node, Settings())
        for name, age in (("old", 1.0), ("middle", 2.0), ("young", 3.0))
    )
    book = ClaimBook(node)

    def enter(service: Any) -> set[str]:
        return {key.name.name for key in book.enter(claims_of(service.ports, service.created))}

    def withdraw(service: Any) -> set[str]:
        return {key.name.name for key in book.withdraw(claims_of(service.ports, service.created))}

    assert enter(middle) == {"middle"}
    assert enter(young) == {"young"}, "the winner stays, so only the newcomer is concerned"
    assert enter(old) == {"old", "middle", "young"}, "all losers lose to another"
    assert withdraw(young) == {"young"}
    assert withdraw(old) == {"old", "middle"}
    assert withdraw(middle) == {"middle"}
    assert list(book.on_node_addresses()) == []
