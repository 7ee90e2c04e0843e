"""Clients of a scenario that go on making new connections while things change."""

import time
from collections.abc import Sequence

from kproxy_core.testing.conformance.judgement import Put
from kproxy_core.testing.lab import Load

RATE = 300.0
"""New connections, datagrams and INITs a second, of all clients together."""

_AT_FIRST = 20
_EACH_STEP = 4
_TICK = 0.002


class SteadyClients:
    """A load of questions, taken in turn. ``put`` is not empty."""

    def __init__(self, put: Sequence[Put]) -> None:
        self.put = tuple(put)
        self._load = Load([one.question for one in put], RATE).start()
        self.go_on(_AT_FIRST)

    def go_on(self, count: int = _EACH_STEP) -> None:
        """Wait until some more have been answered (all, if fewer are out): changes and packets are to meet in every order."""
        wanted = self._load.result().answered + count
        while self._load.running and self._load.result().answered < wanted and not self._load.result().failed:
            time.sleep(_TICK)

    def complaints(self) -> list[tuple[Put, str]]:
        """End, and tell what went wrong: questions without an answer, and answers by others than those expected."""
        self.go_on(_AT_FIRST)
        result = self._load.stop()
        by_question = {id(one.question): one for one in self.put}
        found = [
            (by_question[id(failure.question)], f"{failure.at:.2f} s after the start: {failure.outcome}")
            for failure in result.failures
        ]
        strangers = set(result.by_server) - self.put[0].ask.expect.servers
        if strangers:
            found.append((self.put[0], f"answered by {', '.join(sorted(strangers))}"))
        return found

    def close(self) -> None:
        """End, whatever has become of it."""
        self._load.stop()
