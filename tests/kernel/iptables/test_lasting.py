"""What lives on: established connections through every change, and new ones, whatever changes between two of them."""

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from attrs import evolve

from kproxy_core.model.objects import TrafficPolicy
from kproxy_core.testing.conformance.lasting import clients_of
from kproxy_core.testing.conformance.world import World
from kproxy_core.testing.lab import hold
from kproxy_iptables.backend import IptablesBackend

pytestmark = pytest.mark.kernel

Run = Callable[..., str]
IptablesWorld = World[IptablesBackend]
SURE = 15.0


@pytest.mark.parametrize("affinity", [None, 1, 60], ids=["plain", "brief", "sticky"])
def test_no_new_connection_fails_while_endpoints_are_rolled(world: IptablesWorld, affinity: int | None) -> None:
    """As a Deployment does it: a new pod, an old one terminating, the old one gone; here it still serves all the while."""
    number = world.number()
    world.node.set(world.cluster.service("web", number, affinity_timeout=affinity), *world.cluster.endpoints("web", "a1 a2"))
    rolled = ("a1 a2 b1", "a1/terminating a2 b1", "a2 b1", "a2 b1 b2 abr1", "b2", "b2 abr1 a1/terminating", "a1 a2")
    with clients_of(world, number) as clients:
        for hosts in rolled * 3:
            world.node.put(*world.cluster.endpoints("web", hosts))
            clients.go_on()
    assert not world.node.difference()


def test_no_new_connection_fails_while_everything_else_changes(world: IptablesWorld) -> None:
    number, other = world.number(), world.number()
    service = world.cluster.service("web", number)
    endpoints = world.cluster.endpoints("web", "a1 b1")
    neighbour = world.cluster.service("other", other, external=other)
    world.node.set(service, *endpoints, world.cluster.node())
    changes: tuple[Callable[[], object], ...] = (
        lambda: world.node.put(neighbour, *world.cluster.endpoints("other", "a1")),
        lambda: world.node.put(evolve(service, affinity_timeout=60)),
        lambda: world.node.put(evolve(service, internal_policy=TrafficPolicy.LOCAL)),
        lambda: world.node.put(world.cluster.service("web", number, external=number)),
        lambda: world.node.put(*world.cluster.endpoints("other", "")),
        lambda: world.node.remove(neighbour),
        lambda: world.node.put(service),
        world.node.restart,
        lambda: world.node.restart(evolve(world.defaults, masquerade_bit=9)),
        lambda: world.node.restart(world.defaults),
    )
    with clients_of(world, number) as clients:
        for change in changes * 2:
            change()
            clients.go_on()
    assert not world.node.difference()


def test_established_connections_outlive_everything(world: IptablesWorld, iptables: Run) -> None:
    number = world.number()
    service = world.cluster.service("web", number, "t=80")
    world.node.set(service, *world.cluster.endpoints("web", "a1", "t=8080"))
    pair = world.cluster.cluster(number)
    with ExitStack() as stack:
        connections = [
            stack.enter_context(hold(world.host(origin), address, 80, timeout=SURE))
            for origin in ("a2", "abr2", "node", "outside")
            for address in (pair.ipv4, pair.ipv6)
        ]
        for endpoints in ("a1/terminating b1", "b1", ""):
            world.node.put(*world.cluster.endpoints("web", endpoints, "t=8080"))
            assert all(connection.alive(SURE) for connection in connections)
        world.node.remove(service)
        world.node.restart()
        assert all(connection.alive(SURE) for connection in connections)
        # With the last rule that translates, the kernel would stop translating; most nodes have one of others.
        for program in ("iptables", "ip6tables"):
            iptables(f"{program} -t nat -A POSTROUTING -m mark --mark 0xc0ffee -j MASQUERADE")
        world.node.dataplane.cleanup()
        assert all(connection.alive(SURE) for connection in connections)
        world.node.check()
        for program in ("iptables", "ip6tables"):
            iptables(f"{program} -t nat -D POSTROUTING -m mark --mark 0xc0ffee -j MASQUERADE")
