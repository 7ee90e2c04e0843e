"""New connections while everything changes, other versions of the mode among them; and what other tests hold meanwhile."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from attrs import evolve

from kproxy_core.model.names import Protocol
from kproxy_core.model.objects import TrafficPolicy
from kproxy_core.testing.conformance.world import World as AnyWorld
from kproxy_core.testing.lab import HeldConnection, Load, Question, hold
from kproxy_nftables import scaffold, sets

from .world import SURE, World, everything

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
