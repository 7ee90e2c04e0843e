"""Connections on which something is always under way: what breaks one shows at once."""

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import cycle
from types import TracebackType
from typing import Self

from kproxy_core.testing.lab import Answer, HeldConnection, Outcome, hold

from .world import SURE, World

WORKERS = 8
_TICK = 0.002


class Busy:
    """Connections that are asked in turn, by several threads, all the while; ``broken`` says how some of them ended."""

    def __init__(self, connections: Sequence[HeldConnection]) -> None:
        self._connections = connections
        self._rounds = [0] * WORKERS
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(worker,), daemon=True) for worker in range(WORKERS)]
        self.broken: dict[tuple[str, int], Outcome] = {}

    def _work(self, worker: int) -> None:
        mine = list(self._connections[worker::WORKERS])
        while not self._stopping.is_set() and mine:
            for connection in tuple(mine):
                outcome = connection.exchange("still there?", SURE)
                if not (isinstance(outcome, Answer) and outcome.server == connection.server):
                    self.broken[connection.source] = outcome
                    mine.remove(connection)
            self._rounds[worker] += 1

    def go_on(self, rounds: int = 3) -> None:
        """Wait until each has been asked so many times more."""
        wanted = [before + rounds for before in self._rounds]
        while any(
            now < then and thread.is_alive() for now, then, thread in zip(self._rounds, wanted, self._threads, strict=True)
        ):
            time.sleep(_TICK)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.go_on()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


def busy(stack: ExitStack, world: World, number: int, count: int = 96) -> Busy:
    """So many busy connections to a Service's cluster addresses, from everywhere, in both families."""
    pair = world.cluster.cluster(number)
    ways = [(origin, address) for origin in ("a2", "abr2", "node", "outside") for address in (pair.ipv4, pair.ipv6)]
    connections = [
        stack.enter_context(hold(world.host(origin), address, 80, timeout=SURE))
        for (origin, address), _ in zip(cycle(ways), range(count), strict=False)
    ]
    return stack.enter_context(Busy(connections))
