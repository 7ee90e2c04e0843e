"""What is refused, how, and what is dropped instead."""

import pytest

from kproxy_core.testing.lab import Refused, ask_many

from .world import ALL, EVERYWHERE, TCP, World

pytestmark = pytest.mark.kernel


def test_s1_no_endpoints_is_refused_on_every_frontend(world: World) -> None:
    number = world.number()
    node_port = 30000 + number
    served = f"t=80@{node_port} u=80/udp@{node_port} s=80/sctp@{node_port}"
    service = world.cluster.service("web", number, served, external=number, balancer=number)
    for endpoints in ("", "a1/unready b1/gone"):
        world.node.set(service, *world.cluster.endpoints("web", endpoints), world.cluster.node())
        world.forget_connections()
        world.see(
            world.ask(EVERYWHERE, world.cluster.cluster(number)).refused(),
            world.ask(EVERYWHERE, world.cluster.external(number)).refused(),
            world.ask(EVERYWHERE, world.cluster.balancer(number)).refused(),
            world.ask(EVERYWHERE, world.node_addresses(), node_port).refused(),
        )


@pytest.mark.parametrize("origin", ["a2", "node", "outside"])
def test_tcp_is_told_at_once(world: World, origin: str) -> None:
    """An ICMP error alone is lost on a socket that is locked, which then waits a second for its next SYN; RST is not."""
    number = world.number()
    world.node.set(world.cluster.service("web", number))
    for address in (world.cluster.cluster(number).ipv4, world.cluster.cluster(number).ipv6):
        outcomes = ask_many(world.host(origin), address, 80, 50, timeout=10)
        assert all(isinstance(outcome, Refused) and outcome.at_once for outcome in outcomes), outcomes


def test_s4_other_ports_of_a_service_address_are_refused(world: World) -> None:
    number = world.number()
    world.node.set(
        world.cluster.service("web", number, "t=80 d=53/udp"),
        *world.cluster.endpoints("web", "a1", "t=8080 d=8080/udp"),
        world.cluster.service_cidr(),
    )
    world.see(
        world.ask("a2 outside", world.cluster.cluster(number), 80, TCP).answered("a1"),
        world.ask(EVERYWHERE, world.cluster.cluster(number), 443).refused(),
        world.ask(EVERYWHERE, world.cluster.cluster(number), 53, TCP).refused(),
        world.ask(EVERYWHERE, world.cluster.cluster(number), 80, ALL[1:]).refused(),
    )


def test_s4_service_addresses_that_nobody_has_are_dropped(world: World) -> None:
    """Dropped on the node, rather than sent to a gateway that would send them back."""
    number, free = world.number(), world.number()
    # On the way to the outside client this address would be refused: nobody listens there.
    ranges = (f"{world.lab.outside.ipv4}/32", f"{world.lab.outside.ipv6}/128")
    outside = world.lab.outside
    world.node.set(world.cluster.service("web", number), *world.cluster.endpoints("web", "a1"))
    world.see(world.ask("a2 node", outside.ipv4, 9, TCP).refused(), world.ask("a2 node", outside.ipv6, 9, TCP).refused())
    world.node.put(world.cluster.service_cidr(*ranges, "10.96.0.0/16", "fd00:96::/112"))
    world.see(
        world.ask("a2 abr2 node", outside.ipv4, 9).dropped(),
        world.ask("a2 abr2 node", outside.ipv6, 9).dropped(),
        world.ask(EVERYWHERE, world.cluster.cluster(free)).dropped(),
        world.ask(EVERYWHERE, world.cluster.cluster(number)).answered("a1"),
    )
    world.node.remove(world.cluster.service_cidr())
    world.forget_connections()
    world.see(world.ask("a2 node", outside.ipv4, 9, TCP).refused(), world.ask("a2 node", outside.ipv6, 9, TCP).refused())


def test_s3_a_node_port_without_endpoints_belongs_to_its_service_all_the_same(world: World) -> None:
    number = world.number()
    world.see(world.ask("a2 node outside", world.node_addresses(), 8080).answered("node"))
    world.node.set(world.cluster.service("web", number, "t=80@8080"), world.cluster.node())
    world.see(
        world.ask("a2 node outside", world.node_addresses(), 8080, TCP).refused(),
        world.ask("a2 node outside", world.node_addresses(), 8080, ALL[1:]).answered("node"),
    )


def test_endpoints_that_come_and_go(world: World) -> None:
    number = world.number()
    service = world.cluster.service("web", number, external=number)
    world.node.set(service, *world.cluster.endpoints("web", ""))
    for endpoints in ("a1", "", "a1 b1", "", "abr1"):
        world.node.put(*world.cluster.endpoints("web", endpoints))
        world.forget_connections()
        for address in (world.cluster.cluster(number), world.cluster.external(number)):
            asked = world.ask(EVERYWHERE, address)
            world.see(asked.answered(endpoints) if endpoints else asked.refused())
    world.node.remove(service)
    assert not world.node.difference()
