"""Asking: one question or hundreds at once, from any hosts, without threads."""

import heapq
import selectors
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Unpack

from kproxy_core.model.names import Protocol
from kproxy_core.testing.lab.outcomes import Outcome
from kproxy_core.testing.lab.questions import Attempt, HowToAsk, HowToAskMany, Question, attempt

if TYPE_CHECKING:
    from kproxy_core.testing.lab.host import Host

AT_ONCE = 256
"""How many questions are on their way at one time: their sockets must fit into the usual limit of 1024 descriptors."""


class Volley:
    """Questions on their way, of any hosts and protocols; outcomes come out in the order in which they are known."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wakes: list[tuple[float, int, Attempt]] = []
        self._ended: set[int] = set()
        self._begun = 0
        self._done: list[tuple[int, Outcome]] = []
        self.pending = 0

    def add(self, question: Question) -> int:
        """Put a question; the number returned comes back with its outcome."""
        identity = self._begun
        self._begun += 1
        asked = attempt(question)
        try:
            outcome = asked.begin()
        except BaseException:
            asked.close()
            raise
        if outcome is not None:
            asked.close()
            self._done.append((identity, outcome))
            return identity
        assert asked.socket is not None
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if asked.wants_write else 0)
        self._selector.register(asked.socket, events, (identity, asked))
        heapq.heappush(self._wakes, (asked.wake_at, identity, asked))
        self.pending += 1
        return identity

    def poll(self, patience: float) -> Sequence[tuple[int, Outcome]]:
        """The outcomes known within ``patience`` seconds: returns as soon as there is one, or the time is over."""
        if not self._done:
            self._wait(patience)
        done, self._done = self._done, []
        return done

    def _wait(self, patience: float) -> None:
        until = time.monotonic() + patience
        while not self._done:
            now = time.monotonic()
            wait = min(until, self._wakes[0][0] if self._wakes else until) - now
            for key, _events in self._selector.select(max(0.0, wait)):
                self._advance(*key.data)
            self._expire()
            if time.monotonic() >= until:
                return

    def _advance(self, identity: int, asked: Attempt) -> None:
        connecting = asked.wants_write
        outcome = asked.proceed()
        if outcome is not None:
            self._end(identity, asked, outcome)
        elif connecting and not asked.wants_write and asked.socket is not None:
            self._selector.modify(asked.socket, selectors.EVENT_READ, (identity, asked))

    def _expire(self) -> None:
        now = time.monotonic()
        while self._wakes and (self._wakes[0][0] <= now or self._wakes[0][1] in self._ended):
            _due, identity, asked = heapq.heappop(self._wakes)
            if identity in self._ended:
                self._ended.discard(identity)
            elif asked.wake_at < asked.deadline:
                asked.repeat()
                heapq.heappush(self._wakes, (asked.wake_at, identity, asked))
            else:
                self._end(identity, asked, asked.give_up())
                self._ended.discard(identity)

    def _end(self, identity: int, asked: Attempt, outcome: Outcome) -> None:
        assert asked.socket is not None
        self._selector.unregister(asked.socket)
        asked.close()
        self._ended.add(identity)
        self.pending -= 1
        self._done.append((identity, outcome))

    def close(self) -> None:
        """Give up what is pending."""
        for key in tuple(self._selector.get_map().values()):
            key.data[1].close()
        self._selector.close()


def ask_all(questions: Iterable[Question]) -> tuple[Outcome, ...]:
    """Put all the questions at once, at most :data:`AT_ONCE` of them at a time. Outcomes are in the order of the questions."""
    outcomes: dict[int, Outcome] = {}
    volley = Volley()
    waiting = iter(questions)
    try:
        exhausted = False
        while not exhausted or volley.pending:
            while not exhausted and volley.pending < AT_ONCE:
                question = next(waiting, None)
                if question is None:
                    exhausted = True
                else:
                    volley.add(question)
            outcomes.update(volley.poll(1.0 if volley.pending else 0.0))
    finally:
        volley.close()
    return tuple(outcomes[identity] for identity in sorted(outcomes))


def ask(host: "Host", address: object, port: int, protocol: Protocol = Protocol.TCP, **how: Unpack[HowToAsk]) -> Outcome:
    """Ask once from a host: TCP connects and waits for the greeting, UDP sends a datagram, SCTP an INIT.

    ``address`` is text or a :class:`kproxy_core.model.addresses.Address`; it tells the family. Raises ``OSError`` when the source
    asked for is not to be had.
    """
    return ask_all([Question(host=host, address=address, port=port, protocol=protocol, **how)])[0]


def ask_many(host: "Host", address: object, port: int, count: int, **how: Unpack[HowToAskMany]) -> tuple[Outcome, ...]:
    """Ask ``count`` times at once, each time from a new socket. :func:`tally` counts who answered."""
    question = Question(host=host, address=address, port=port, **how)
    return ask_all([question] * count)
