"""Every kind of address that a Service can have, dialled from a routed pod, a bridged pod, the node and outside."""

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve

from kproxy_core.config.settings import NodePortScope
from kproxy_core.model.addresses import parse_address, parse_network
from kproxy_core.model.objects import LoadBalancerIngress
from kproxy_core.testing.lab import AddressPair, Host

from .world import ALL, EVERYWHERE, TCP_UDP, World, servers

pytestmark = pytest.mark.kernel

LOOPBACK = AddressPair(ipv4="127.0.0.1", ipv6="::1")
SECOND = AddressPair(ipv4="172.18.0.50", ipv6="fd00:18::50")


@pytest.fixture
def second_address(world: World) -> Iterator[AddressPair]:
    """A second address on the node's uplink, there until the test's end."""
    _give(world.lab.node, SECOND)
    yield SECOND
    for address in (SECOND.ipv4, SECOND.ipv6):
        if address in world.lab.node.addresses:
            world.lab.node.remove_address(_with_length(address))


def _with_length(address: str) -> str:
    return f"{address}/64" if ":" in address else f"{address}/24"


def _give(host: Host, pair: AddressPair) -> None:
    for address in (pair.ipv4, pair.ipv6):
        host.add_address(_with_length(address))


def _take(host: Host, pair: AddressPair) -> None:
    for address in (pair.ipv4, pair.ipv6):
        host.remove_address(_with_length(address))


def test_cluster_ip_in_every_protocol_and_family(world: World) -> None:
    number = world.number()
    world.node.set(world.cluster.service("web", number), *world.cluster.endpoints("web", "a1 abr1 b1"))
    vip = world.cluster.cluster(number)
    world.see(
        world.ask("a2 abr2", vip, times=4).answered("a1 abr1 b1", client="kept"),
        world.ask("node", vip, times=4).answered("a1 abr1 b1"),
        world.ask("outside", vip, times=4).answered("a1 abr1 b1", client="masqueraded"),
    )


def test_external_and_load_balancer_addresses(world: World) -> None:
    number = world.number()
    world.node.set(
        world.cluster.service("web", number, external=number, balancer=number), *world.cluster.endpoints("web", "a1 abr1 b1")
    )
    for address in (world.cluster.external(number), world.cluster.balancer(number)):
        world.see(
            world.ask("a2 abr2 outside", address, times=3).answered("a1 abr1 b1", client="masqueraded"),
            world.ask("node", address, times=3).answered("a1 abr1 b1"),
        )


def test_a_proxied_load_balancer_address_is_left_alone_s34(world: World) -> None:
    """ipMode Proxy: the balancer itself must see the connection, from pods too."""
    number = world.number()
    address = world.cluster.balancer(number)
    service = world.cluster.service("web", number)
    ingress = tuple(LoadBalancerIngress(address=parse_address(each), proxied=True) for each in (address.ipv4, address.ipv6))
    world.node.set(evolve(service, ingress=ingress), *world.cluster.endpoints("web", "a1", "t=8081 u=8081/udp"))
    balancer = world.lab.node2
    for each in (address.ipv4, address.ipv6):
        balancer.add_address(each)
        version = "-6" if ":" in each else "-4"
        world.lab.node.run(["ip", version, "route", "add", each, "via", balancer.address(":" in each)])
    try:
        world.see(
            world.ask("a2 node", address, 8080, TCP_UDP).answered("node2"),
            world.ask("a2 node", world.cluster.cluster(number), 80, TCP_UDP).answered("a1:8081"),
        )
    finally:
        for each in (address.ipv4, address.ipv6):
            balancer.remove_address(each)
            world.lab.node.run(["ip", "-6" if ":" in each else "-4", "route", "del", each])


def test_node_ports_answer_on_primary_addresses_alone(world: World, second_address: AddressPair) -> None:
    number = world.number()
    node_port = 30000 + number
    service = world.cluster.service("web", number, f"t=80@{node_port} u=80/udp@{node_port} s=80/sctp@{node_port}")
    world.node.set(service, *world.cluster.endpoints("web", "a1 abr1 b1"), world.cluster.node())
    world.node.see_addresses()
    bridge = world.lab.plan.bridge_gateway("node")[0]
    world.see(
        world.ask("a2 abr2 outside", world.node_addresses(), node_port, times=3).answered("a1 abr1 b1", client="masqueraded"),
        world.ask("node", world.node_addresses(), node_port, times=3).answered("a1 abr1 b1"),
        world.ask(EVERYWHERE, second_address, node_port, TCP_UDP).unreachable(),
        world.ask("node abr2", bridge, node_port, TCP_UDP).unreachable(),
        world.ask("node", LOOPBACK, node_port, TCP_UDP).unreachable(),
    )


def test_node_port_addresses_by_range_follow_addresses_that_come_and_go(world: World) -> None:
    number = world.number()
    node_port = 30000 + number
    ranges = tuple(map(parse_network, ("172.18.0.48/28", "fd00:18::50/124", "127.0.0.0/8", "::1/128")))
    world.node.restart(evolve(world.defaults, node_port_addresses=ranges))
    service = world.cluster.service("web", number, f"t=80@{node_port} u=80/udp@{node_port} s=80/sctp@{node_port}")
    world.node.set(service, *world.cluster.endpoints("web", "a1 b1"), world.cluster.node())
    world.see(world.ask(EVERYWHERE, world.node_addresses(), node_port, TCP_UDP).unreachable())
    _give(world.lab.node, SECOND)
    try:
        report = world.node.see_addresses()
        assert report is not None
        assert report.operations == 2  # an element in each family
        world.see(
            world.ask(EVERYWHERE, SECOND, node_port).answered("a1 b1"),
            world.ask(EVERYWHERE, world.node_addresses(), node_port, TCP_UDP).unreachable(),
            world.ask("node", LOOPBACK, node_port, TCP_UDP).unreachable(),
        )
    finally:
        _take(world.lab.node, SECOND)
    report = world.node.see_addresses()
    assert report is not None
    assert report.operations == 2
    assert not world.node.difference()


def test_node_ports_on_every_address(world: World, second_address: AddressPair) -> None:
    """The kernel is asked which addresses are local, so that new ones serve at once, whoever looks."""
    number = world.number()
    node_port = 30000 + number
    world.node.restart(evolve(world.defaults, node_port_addresses=NodePortScope.ALL))
    service = world.cluster.service("web", number, f"t=80@{node_port} u=80/udp@{node_port} s=80/sctp@{node_port}")
    world.node.set(service, *world.cluster.endpoints("web", "a1 b1"), world.cluster.node())
    bridge = world.lab.plan.bridge_gateway("node")[0]
    world.see(
        world.ask(EVERYWHERE, world.node_addresses(), node_port).answered("a1 b1"),
        world.ask(EVERYWHERE, second_address, node_port).answered("a1 b1"),
        world.ask("a2 abr2 node", bridge, node_port).answered("a1 b1"),
        world.ask("node", LOOPBACK, node_port, TCP_UDP).unreachable(),
        # Others' addresses are no business of ours, though they pass through.
        world.ask("a2 abr2", AddressPair(ipv4=world.lab.node2.ipv4, ipv6=world.lab.node2.ipv6), node_port, TCP_UDP).unreachable(),
    )


def test_s54_tcp_and_udp_on_one_port(world: World) -> None:
    number = world.number()
    node_port = 30000 + number
    world.node.set(
        world.cluster.service("tcp", number, f"80@{node_port}", external=number),
        world.cluster.service("udp", number, f"80/udp@{node_port}", external=number),
        *world.cluster.endpoints("tcp", "a1", "8080"),
        *world.cluster.endpoints("udp", "b1", "8080/udp"),
        world.cluster.node(),
    )
    for address, port in (
        (world.cluster.cluster(number), 80),
        (world.cluster.external(number), 80),
        (world.node_addresses(), node_port),
    ):
        world.see(
            world.ask(EVERYWHERE, address, port, ALL[:1]).answered("a1"),
            world.ask(EVERYWHERE, address, port, ALL[1:2]).answered("b1"),
        )


def test_s35_one_address_with_two_ports(world: World) -> None:
    number = world.number()
    world.node.set(
        world.cluster.service("web", number, "t=80 u=80/udp"),
        *world.cluster.endpoints("web", "a1", "t=8080 u=8080/udp", "-1"),
        *world.cluster.endpoints("web", "a1", "t=8081 u=8081/udp", "-2"),
    )
    asked = world.ask("a2 node outside", world.cluster.cluster(number), 80, TCP_UDP, times=20)
    outcomes = world.see(asked.answered("a1 a1:8081"))
    assert servers(outcomes) == {"a1", "a1:8081"}


def test_s37_an_address_used_again_and_overlapping_slices(world: World) -> None:
    number = world.number()
    world.node.set(
        world.cluster.service("web", number),
        *world.cluster.endpoints("web", "a1/gone b1/unready", suffix="-1"),
        *world.cluster.endpoints("web", "a1 abr1", suffix="-2"),
        *world.cluster.endpoints("web", "abr1 a1", suffix="-3"),
    )
    world.see(world.ask(EVERYWHERE, world.cluster.cluster(number), times=4).answered("a1 abr1"))


def test_s38_named_ports_may_differ_from_pod_to_pod(world: World) -> None:
    number = world.number()
    world.node.set(
        world.cluster.service("web", number, "t=80 u=80/udp"),
        *world.cluster.endpoints("web", "a1", "t=8080 u=8081/udp other=9/udp", "-1"),
        *world.cluster.endpoints("web", "b1", "t=8081 u=8080/udp", "-2"),
    )
    outcomes = world.see(
        world.ask("a2 node", world.cluster.cluster(number), 80, ALL[:1], times=20).answered("a1 b1:8081"),
        world.ask("a2 node", world.cluster.cluster(number), 80, ALL[1:2], times=20).answered("a1:8081 b1"),
    )
    assert len(servers(outcomes)) == 4


def test_s56_services_that_are_not_ours(world: World) -> None:
    numbers = [world.number() for _ in range(3)]
    oddities: tuple[dict[str, Any], ...] = ({"proxy_name": ""}, {"headless": True}, {"proxy_name": "other"})
    for number, oddity in zip(numbers, oddities, strict=True):
        name = f"web{number}"
        world.node.set(world.cluster.service(name, number, **oddity), *world.cluster.endpoints(name, "a1"))
        world.see(world.ask("a2 node outside", world.cluster.cluster(number)).dropped())


def test_rival_claims_go_to_the_oldest_and_then_to_the_heir(world: World) -> None:
    number = world.number()
    node_port = 30000 + number
    old = world.cluster.service("old", number, f"80@{node_port} u=80/udp", external=number, created=1.0)
    young = world.cluster.service("young", number + 100, f"80@{node_port} u=80/udp", external=number, created=2.0)
    slices = (
        *world.cluster.endpoints("old", "a1", "8080 u=8080/udp"),
        *world.cluster.endpoints("young", "b1", "8080 u=8080/udp"),
    )
    world.node.set(young, old, *slices, world.cluster.node())
    contested = ((world.cluster.external(number), 80, TCP_UDP), (world.node_addresses(), node_port, ALL[:1]))
    for address, port, protocols in contested:
        world.see(world.ask(EVERYWHERE, address, port, protocols).answered("a1"))
    world.see(
        world.ask(EVERYWHERE, world.cluster.cluster(number), 80, TCP_UDP).answered("a1"),
        world.ask(EVERYWHERE, world.cluster.cluster(number + 100), 80, TCP_UDP).answered("b1"),
    )
    state = world.node.play.engine.state
    assert state is not None
    assert [told for told in state.diagnostics if told.subject == young.subject], "the loser hears of it"
    world.node.remove(old)
    world.forget_connections()
    for address, port, protocols in contested:
        world.see(world.ask(EVERYWHERE, address, port, protocols).answered("b1"))
    world.node.put(old)
    world.forget_connections()
    for address, port, protocols in contested:
        world.see(world.ask(EVERYWHERE, address, port, protocols).answered("a1"))
    assert not world.node.difference()
