"""Traffic policies with their short-circuits, endpoints that terminate, source ranges."""

import pytest
from attrs import evolve

from kproxy_core.model.objects import TrafficPolicy
from kproxy_core.testing.lab import AddressPair

from .world import ALL, EVERYWHERE, World

pytestmark = pytest.mark.kernel

LOCAL = TrafficPolicy.LOCAL
ALLOWED = AddressPair(ipv4="172.18.0.101", ipv6="fd00:18::101")
OTHER = AddressPair(ipv4="172.18.0.102", ipv6="fd00:18::102")


def _external_addresses(world: World, number: int) -> tuple[tuple[AddressPair, int], ...]:
    """The three kinds of address to which the external policy applies."""
    return (
        (world.cluster.external(number), 80),
        (world.cluster.balancer(number), 80),
        (world.node_addresses(), 30000 + number),
    )


def _served(number: int) -> str:
    return f"t=80@{30000 + number} u=80/udp@{30000 + number} s=80/sctp@{30000 + number}"


def test_external_policy_local_holds_the_outside_to_local_endpoints_s10(world: World) -> None:
    number = world.number()
    service = world.cluster.service("web", number, _served(number), external=number, balancer=number, external_policy=LOCAL)
    world.node.set(service, *world.cluster.endpoints("web", "a1 abr1 b1 b2"), world.cluster.node())
    for address, port in _external_addresses(world, number):
        world.see(
            world.ask("outside", address, port, times=6).answered("a1 abr1", client="kept"),
            world.ask("a2 abr2", address, port, times=2).answered("a1 abr1 b1 b2", client="kept"),
            world.ask("node", address, port, times=2).answered("a1 abr1 b1 b2"),
        )


def test_s6_s7_external_policy_local_without_local_endpoints(world: World) -> None:
    """Pods and the node reach the endpoints of other nodes all the same; the outside is dropped, not refused (s2)."""
    number = world.number()
    service = world.cluster.service("web", number, _served(number), external=number, balancer=number, external_policy=LOCAL)
    world.node.set(service, *world.cluster.endpoints("web", "b1 b2"), world.cluster.node())
    for address, port in _external_addresses(world, number):
        world.see(
            world.ask("a2 abr2", address, port, times=2).answered("b1 b2", client="kept"),
            world.ask("node", address, port, times=2).answered("b1 b2"),
            world.ask("outside", address, port, times=2).dropped(),
        )


def test_s12_external_policy_does_not_touch_cluster_addresses(world: World) -> None:
    number = world.number()
    service = world.cluster.service("web", number, external_policy=LOCAL, balancer=number)
    world.node.set(service, *world.cluster.endpoints("web", "b1"))
    world.see(world.ask(EVERYWHERE, world.cluster.cluster(number), times=2).answered("b1"))


def test_internal_policy_local(world: World) -> None:
    number = world.number()
    service = world.cluster.service("web", number, external=number, internal_policy=LOCAL)
    world.node.set(service, *world.cluster.endpoints("web", "a1 b1"))
    world.see(
        world.ask("a2 abr2", world.cluster.cluster(number), times=5).answered("a1", client="kept"),
        world.ask("node outside", world.cluster.cluster(number), times=5).answered("a1"),
        world.ask(EVERYWHERE, world.cluster.external(number), times=2).answered("a1 b1"),
    )


def test_s2_internal_policy_local_without_local_endpoints_drops(world: World) -> None:
    number = world.number()
    service = world.cluster.service("web", number, external=number, internal_policy=LOCAL)
    world.node.set(service, *world.cluster.endpoints("web", "b1 a1/unready"))
    world.see(
        world.ask(EVERYWHERE, world.cluster.cluster(number)).dropped(),
        world.ask(EVERYWHERE, world.cluster.external(number)).answered("b1"),
    )


def test_s13_endpoints_that_terminate_serve_while_there_are_no_others(world: World) -> None:
    number = world.number()
    service = world.cluster.service("web", number, external=number, external_policy=LOCAL)
    world.node.set(service, *world.cluster.endpoints("web", "a1/terminating b1 b2/terminating"))
    world.see(
        world.ask("outside", world.cluster.external(number), times=4).answered("a1", client="kept"),
        world.ask(EVERYWHERE, world.cluster.cluster(number), times=4).answered("b1"),
    )
    world.node.put(*world.cluster.endpoints("web", "a1/terminating b1/unready b2/terminating"))
    world.forget_connections()
    world.see(
        world.ask("outside", world.cluster.external(number), times=4).answered("a1", client="kept"),
        world.ask(EVERYWHERE, world.cluster.cluster(number), times=4).answered("a1 b2"),
    )


def test_changing_a_policy_moves_the_outside_alone(world: World) -> None:
    number = world.number()
    service = world.cluster.service("web", number, _served(number), external=number, balancer=number)
    world.node.set(service, *world.cluster.endpoints("web", "a1 b1"), world.cluster.node())
    for policy in (LOCAL, TrafficPolicy.CLUSTER, LOCAL):
        world.node.put(evolve(service, external_policy=policy))
        world.forget_connections()
        for address, port in _external_addresses(world, number):
            outside = world.ask("outside", address, port, times=4)
            world.see(
                outside.answered("a1", "kept") if policy is LOCAL else outside.answered("a1 b1", "masqueraded"),
                world.ask("a2 abr2 node", address, port, times=2).answered("a1 b1"),
            )
        assert not world.node.difference()


# -- loadBalancerSourceRanges


def test_source_ranges_hold_for_everybody_and_for_balancer_addresses_alone(world: World) -> None:
    number = world.number()
    pod, bridged = world.host("a2"), world.host("abr2")
    ranges = f"{ALLOWED.ipv4}/32 {ALLOWED.ipv6}/128 {pod.ipv4}/32 {pod.ipv6}/128 203.0.113.0/24"
    service = world.cluster.service("web", number, _served(number), external=number, balancer=number, ranges=ranges)
    world.node.set(service, *world.cluster.endpoints("web", "a1 b1"), world.cluster.node())
    balancer = world.cluster.balancer(number)
    world.see(
        world.ask("outside", balancer, source=ALLOWED).answered("a1 b1"),
        world.ask("outside", balancer, source=OTHER).dropped(),
        world.ask("a2", balancer).answered("a1 b1"),
        world.ask("abr2", balancer).dropped(),
        world.ask("node", balancer).dropped(),
        world.ask(EVERYWHERE, world.cluster.cluster(number)).answered("a1 b1"),
        world.ask(EVERYWHERE, world.cluster.external(number)).answered("a1 b1"),
        world.ask(EVERYWHERE, world.node_addresses(), 30000 + number).answered("a1 b1"),
    )
    assert bridged.pod is not None


def test_source_ranges_that_let_nobody_in_and_those_that_let_everybody_in(world: World) -> None:
    closed, opened = world.number(), world.number()
    world.node.set(
        world.cluster.service("closed", closed, balancer=closed, source_ranges=()),
        world.cluster.service("opened", opened, balancer=opened, ranges="10.0.0.0/8 0.0.0.0/0 ::/0"),
        *world.cluster.endpoints("closed", "a1"),
        *world.cluster.endpoints("opened", "a1"),
    )
    world.see(
        world.ask(EVERYWHERE, world.cluster.balancer(closed)).dropped(),
        world.ask(EVERYWHERE, world.cluster.balancer(opened)).answered("a1"),
    )


def test_source_ranges_are_asked_before_endpoints_are_missed(world: World) -> None:
    number = world.number()
    ranges = f"{ALLOWED.ipv4}/32 {ALLOWED.ipv6}/128"
    world.node.set(world.cluster.service("web", number, balancer=number, ranges=ranges))
    world.see(
        world.ask("outside", world.cluster.balancer(number), source=ALLOWED).refused(),
        world.ask("outside", world.cluster.balancer(number), source=OTHER).dropped(),
    )


@pytest.mark.parametrize(
    "steps",
    [
        ("172.16.0.0/12 fd00::/8", "172.18.0.0/24 fd00:18::/64", "172.16.0.0/12 fd00::/8"),
        ("172.18.0.101/32 fd00:18::101/128", "172.18.0.100/30 fd00:18::100/126", "172.18.0.101/32 fd00:18::101/128"),
        ("172.18.0.0/25 172.18.0.128/25", "172.18.0.0/24", "172.18.0.64/26 172.18.0.0/26"),
    ],
)
def test_source_ranges_change_into_overlapping_ones(world: World, steps: tuple[str, ...]) -> None:
    """An interval set refuses a range that overlaps another, so the old ones have to go first."""
    number = world.number()
    endpoints = world.cluster.endpoints("web", "a1 b1")
    world.node.set(*endpoints)
    for ranges in steps:
        report = world.node.put(world.cluster.service("web", number, balancer=number, ranges=ranges))
        assert report is not None
        assert report.ok, report
        world.see(world.ask("outside", world.cluster.balancer(number).ipv4, source=ALLOWED).answered("a1 b1"))
        assert not world.node.difference()


def test_the_node_may_use_a_balancer_address_that_is_its_own(world: World) -> None:
    """If a range has one of the node's addresses, so has it the balancer's, from which the node then speaks (allowFromNode)."""
    number = world.number()
    own, balancer = world.node_addresses(), world.cluster.balancer(number)
    endpoints = world.cluster.endpoints("web", "a1")
    for address in (balancer.ipv4, balancer.ipv6):
        world.lab.node.add_address(address, "lo")
    try:
        allowed = world.cluster.service("web", number, balancer=number, ranges=f"{own.ipv4}/32 {own.ipv6}/128")
        world.node.set(allowed, *endpoints, world.cluster.node())
        world.node.see_addresses()
        world.see(
            world.ask("node", balancer, source=balancer).answered("a1"),
            world.ask("node", balancer, source=own).answered("a1"),
            world.ask("a2 outside", balancer).dropped(),
        )
        world.node.put(evolve(allowed, source_ranges=()))
        world.forget_connections()
        world.see(world.ask("node", balancer, source=balancer).dropped())
    finally:
        for address in (balancer.ipv4, balancer.ipv6):
            world.lab.node.remove_address(address, "lo")


def test_s32_the_node_itself_is_held_to_the_ranges(world: World) -> None:
    number = world.number()
    world.node.set(
        world.cluster.service("web", number, balancer=number, ranges="192.0.2.0/24 2001:db8:77::/64"),
        *world.cluster.endpoints("web", "a1"),
    )
    world.see(world.ask("node", world.cluster.balancer(number), protocols=ALL).dropped())
