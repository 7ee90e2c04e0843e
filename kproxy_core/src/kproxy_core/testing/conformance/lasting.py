"""What must last while a test goes on: connections that are held, and clients that make new ones."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from kproxy_core.model.names import Protocol
from kproxy_core.testing.conformance.expectations import SURE
from kproxy_core.testing.conformance.world import World
from kproxy_core.testing.lab import HeldConnection, Load, Question, hold

RATE = 400.0
"""New connections, datagrams and INITs a second, of all clients together."""


@contextmanager
def held(world: World[Any], number: int, origins: str = "a2 abr2 node outside") -> Iterator[list[HeldConnection]]:
    """Hold connections to a Service from everywhere in both families."""
    with ExitStack() as stack:
        pair = world.cluster.cluster(number)
        yield [
            stack.enter_context(hold(world.host(origin), address, 80, timeout=SURE))
            for origin in origins.split()
            for address in (pair.ipv4, pair.ipv6)
        ]


def all_alive(connections: Sequence[HeldConnection]) -> bool:
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
def clients_of(world: World[Any], number: int) -> Iterator[Clients]:
    """Have clients use a Service. Raises ``AssertionError`` at the end if any of their connections failed."""
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
