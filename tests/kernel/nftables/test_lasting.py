"""What lives on: established connections through every change, new ones while endpoints are rolled, UDP flows that are right."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from attrs import evolve

from kproxy_core.model.names import Protocol
from kproxy_core.model.objects import TrafficPolicy
from kproxy_core.testing.conformance.world import World as AnyWorld
from kproxy_core.testing.lab import Answer, HeldConnection, Load, Question, Refused, UdpFlow, hold
from kproxy_nftables import scaffold, sets

from .world import SURE, UDP, World, everything

pytestmark = pytest.mark.kernel

RATE = 400.0


@contextmanager
def held(world: AnyWorld[Any], number: int, origins: str = "a2 abr2 node outside") -> Iterator[list[HeldConnection]]:
    """Connections to a Service from everywhere in both families."""
    with ExitStack() as stack:
        pair = world.cluster.cluster(number)
        yield [
            stack.enter_context(hold(world.host(origin), address, 80, timeout=SURE))
            for origin in origins.split()
            for address in (pair.ipv4, pair.ipv6)
        ]


def all_alive(connections: list[HeldConnection]) -> bool:
    """Whether each is still answered by its server."""
    return all(connection.alive(SURE) for connection in connections)


class Clients:
    """New connections to a Service from everywhere, all the while."""

    def __init__(self, load: Load) -> None:
        self._load = load

    def go_on(self, count: int = 3) -> None:
        """Wait until some more have been answered (all, if fewer are out): changes and packets are to meet in every order."""
        wanted = self._load.result().answered + count
        while self._load.running and self._load.result().answered < wanted:
            time.sleep(0.002)


@contextmanager
def clients_of(world: AnyWorld[Any], number: int) -> Iterator[Clients]:
    """Clients of a Service; none of their connections may fail."""
    pair = world.cluster.cluster(number)
    questions = [
        Question(host=world.host(origin), address=address, port=80, protocol=protocol, timeout=SURE)
        for origin in ("a2", "node", "outside")
        for address in (pair.ipv4, pair.ipv6)
        for protocol in Protocol
    ]
    with Load(questions, RATE) as load:
        clients = Clients(load)
        clients.go_on(20)
        yield clients
        clients.go_on(20)
        result = load.stop()
    assert result.answered == result.asked > 100
    assert not result.failures, result.failures[:3]


# -- established connections


def test_established_connections_outlive_their_endpoint_and_their_service(world: World) -> None:
    number = world.number()
    service = world.cluster.service("web", number, "t=80")
    world.node.set(service, *world.cluster.endpoints("web", "a1", "t=8080"))
    with held(world, number) as connections:
        for endpoints in ("a1/terminating b1", "b1", ""):
            world.node.put(*world.cluster.endpoints("web", endpoints, "t=8080"))
            assert all_alive(connections)
        world.node.remove(service)
        assert all_alive(connections)
        world.node.restart()
        assert all_alive(connections)


def test_established_connections_do_not_care_for_other_settings(world: World) -> None:
    number = world.number()
    service = world.cluster.service("web", number, "t=80")
    world.node.set(service, *world.cluster.endpoints("web", "a1 b1", "t=8080"))
    with held(world, number) as connections:
        world.node.put(evolve(service, affinity_timeout=60))
        world.node.put(evolve(service, internal_policy=TrafficPolicy.LOCAL))
        world.node.restart(evolve(world.defaults, masquerade_bit=9, masquerade_all=True))
        assert all_alive(connections)


# -- new connections


def test_no_new_connection_fails_while_endpoints_are_rolled(world: World) -> None:
    """As a Deployment does it: a new pod, an old one terminating, the old one gone; here it still serves all the while."""
    number = world.number()
    world.node.set(world.cluster.service("web", number), *world.cluster.endpoints("web", "a1 a2"))
    rolled = ("a1 a2 b1", "a1/terminating a2 b1", "a2 b1", "a2 b1 b2 abr1", "b2", "b2 abr1 a1/terminating", "a1 a2")
    with clients_of(world, number) as clients:
        for hosts in rolled * 12:
            world.node.put(*world.cluster.endpoints("web", hosts))
            clients.go_on()
    assert not world.node.difference()


@pytest.mark.parametrize("affinity", [None, 1, 60], ids=["plain", "brief", "sticky"])
def test_no_new_connection_fails_while_everything_else_changes(
    world: World, affinity: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, other = world.number(), world.number()
    service = world.cluster.service("web", number, affinity_timeout=affinity)
    neighbour = world.cluster.service("next", other, external=other)
    world.node.set(service, *world.cluster.endpoints("web", "a1 b1"))
    others = [thing for thing in everything(world) if thing.name not in ("node", "kubernetes")]
    steps: list[Callable[[], object]] = [
        lambda: world.node.put(*others),
        lambda: world.node.put(neighbour, *world.cluster.endpoints("next", "a2")),
        lambda: world.node.put(world.cluster.node(), world.cluster.service_cidr()),
        lambda: world.node.put(evolve(service, external_policy=TrafficPolicy.LOCAL, external_ips=neighbour.external_ips)),
        lambda: world.node.put(evolve(service, affinity_timeout=30)),
        lambda: world.node.put(service),
        lambda: world.node.remove(neighbour, *others),
        lambda: world.node.restart(evolve(world.defaults, masquerade_bit=3)),
        lambda: world.node.restart(world.defaults),
    ]
    with clients_of(world, number) as clients:
        for step in steps * 3:
            step()
            clients.go_on()
        with monkeypatch.context() as older:  # another version: base chains are made anew, then everything
            older.setattr(scaffold, "_DSTNAT", -90)
            world.node.restart()
            clients.go_on()
            older.setattr(sets, "AFFINITY_SIZE", 4096)
            world.node.restart()
            clients.go_on()
        world.node.restart()


def test_no_new_connection_fails_while_an_address_changes_hands(world: World) -> None:
    """Two Services of different sizes and kinds claim one address; the older one comes and goes."""
    number, other = world.number(), world.number()
    young = world.cluster.service("young", other, external_ips=world.cluster.service("x", number).cluster_ips, created=2.0)
    old = world.cluster.service("old", number, affinity_timeout=60, created=1.0)
    slices = (*world.cluster.endpoints("young", "a1 a2 b1 b2"), *world.cluster.endpoints("old", "b2"))
    world.node.set(young, *slices)
    with clients_of(world, number) as clients:
        for _ in range(20):
            world.node.put(old)
            clients.go_on()
            world.node.remove(old)
            clients.go_on()
    assert not world.node.difference()


# -- UDP


def _flows(world: World, number: int) -> list[UdpFlow]:
    pair = world.cluster.cluster(number)
    return [
        UdpFlow(world.host(origin), address, 80, timeout=SURE)
        for origin in ("a2", "node", "outside")
        for address in (pair.ipv4, pair.ipv6)
    ]


def _servers(flows: list[UdpFlow]) -> list[str]:
    answers = [flow.exchange("who", SURE) for flow in flows]
    return [answer.server if isinstance(answer, Answer) else str(answer) for answer in answers]


@pytest.fixture
def udp(world: World) -> Iterator[Callable[[int], list[UdpFlow]]]:
    """Flows that are closed at the end of the test."""
    made: list[UdpFlow] = []

    def flows(number: int) -> list[UdpFlow]:
        made.extend(fresh := _flows(world, number))
        return fresh

    yield flows
    for flow in made:
        flow.close()


def test_s48_good_flows_are_left_alone(world: World, udp: Callable[[int], list[UdpFlow]]) -> None:
    number = world.number()
    service = world.cluster.service("dns", number)
    world.node.set(service, *world.cluster.endpoints("dns", "a1 b1"))
    flows = udp(number)
    chosen = _servers(flows)
    world.node.clean_conntrack()
    # Terminating endpoints still serve; a restart looks like nothing before and everything now.
    world.node.put(*world.cluster.endpoints("dns", "a1/terminating b1/terminating a2"))
    assert world.node.clean_conntrack() == 0
    world.node.restart()
    assert world.node.clean_conntrack() == 0
    assert _servers(flows) == chosen


def test_stale_flows_move_when_their_endpoint_is_gone(world: World, udp: Callable[[int], list[UdpFlow]]) -> None:
    number = world.number()
    world.node.set(world.cluster.service("dns", number), *world.cluster.endpoints("dns", "a1"))
    flows = udp(number)
    assert set(_servers(flows)) == {"a1"}
    world.node.put(*world.cluster.endpoints("dns", "b1"))
    assert set(_servers(flows)) == {"a1"}, "conntrack alone keeps them"
    assert world.node.clean_conntrack() == len(flows)
    assert set(_servers(flows)) == {"b1"}


def test_s44_scaled_to_zero_under_one_way_traffic(world: World, udp: Callable[[int], list[UdpFlow]]) -> None:
    number = world.number()
    world.node.set(world.cluster.service("statsd", number), *world.cluster.endpoints("statsd", "a1"))
    flows = udp(number)
    _servers(flows)
    world.node.put(*world.cluster.endpoints("statsd", ""))
    assert world.node.clean_conntrack() == len(flows)
    assert all(isinstance(flow.exchange("count", SURE), Refused) for flow in flows)


def test_s45_a_deleted_service_leaves_no_flow_to_the_next_one(world: World, udp: Callable[[int], list[UdpFlow]]) -> None:
    number = world.number()
    first = world.cluster.service("first", number)
    world.node.set(first, *world.cluster.endpoints("first", "a1"))
    flows = udp(number)
    assert set(_servers(flows)) == {"a1"}
    world.node.remove(first)
    assert world.node.clean_conntrack() == len(flows)
    world.node.put(world.cluster.service("second", number), *world.cluster.endpoints("second", "b1"))
    assert set(_servers(flows)) == {"b1"}


def test_s46_flows_made_before_there_was_an_endpoint(world: World, udp: Callable[[int], list[UdpFlow]]) -> None:
    """They got an entry without translation, which keeps new packets from the rules."""
    number = world.number()
    flows = udp(number)
    assert not any(isinstance(flow.exchange("who", 0.05), Answer) for flow in flows)
    world.node.set(world.cluster.service("dns", number), *world.cluster.endpoints("dns", "a1"))
    assert world.node.clean_conntrack() == len(flows)
    assert set(_servers(flows)) == {"a1"}


def test_s50_tcp_is_never_cleaned(world: World) -> None:
    number = world.number()
    world.node.set(world.cluster.service("web", number), *world.cluster.endpoints("web", "a1"))
    with held(world, number) as connections:
        world.node.put(*world.cluster.endpoints("web", "b1"))
        world.node.clean_conntrack()
        assert all_alive(connections)


def test_flows_by_other_frontends_and_of_others(world: World) -> None:
    """NodePort and external addresses are cleaned likewise; a flow of the same number to another port is nobody's business."""
    number = world.number()
    node_port = 30000 + number
    service = world.cluster.service("dns", number, f"u=80/udp@{node_port}", external=number)
    world.node.set(service, *world.cluster.endpoints("dns", "a1", "u=8080/udp"), world.cluster.node())
    places = [(world.cluster.external(number).ipv4, 80), (world.node_addresses().ipv4, node_port)]
    outside = world.lab.outside
    with ExitStack() as stack:
        ours = [stack.enter_context(UdpFlow(outside, address, port, timeout=SURE)) for address, port in places]
        other = stack.enter_context(UdpFlow(outside, world.host("a1").ipv4, 8080, timeout=SURE))
        assert set(_servers([*ours, other])) == {"a1"}
        world.node.put(*world.cluster.endpoints("dns", "b1", "u=8080/udp"))
        assert world.node.clean_conntrack() == len(ours)
        assert set(_servers(ours)) == {"b1"}
        assert _servers([other]) == ["a1"]
    world.see(world.ask("a2 node", world.cluster.cluster(number), protocols=UDP).answered("b1"))
