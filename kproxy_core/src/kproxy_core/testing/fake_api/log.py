"""The log of requests, for assertions about what a client did."""

import threading
import time
from collections.abc import Callable

from kproxy_core.testing.fake_api.faults import ANY, Request

LONGEST = 200_000
"""Requests kept; beyond, the older half is dropped."""


class RequestLog:
    """What was asked of the server, in order. Thread-safe."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._changed = threading.Condition()

    def add(self, request: Request) -> None:
        """Log one request."""
        with self._changed:
            self._requests.append(request)
            if len(self._requests) > LONGEST:
                del self._requests[: LONGEST // 2]
            self._changed.notify_all()

    def all(self, verb: str = ANY, resource: str = ANY) -> list[Request]:
        """Return the requests so far, those of a verb and of a resource (plural) when given."""
        with self._changed:
            return [r for r in self._requests if verb in (ANY, r.verb) and resource in (ANY, r.resource)]

    def count(self, verb: str = ANY, resource: str = ANY) -> int:
        """Count the requests so far."""
        return len(self.all(verb, resource))

    def clear(self) -> None:
        """Forget all requests."""
        with self._changed:
            self._requests.clear()

    def wait_for(self, condition: Callable[[], bool], timeout: float = 10.0) -> bool:
        """Wait until ``condition`` holds, at most ``timeout`` seconds; it is looked at each 10 ms. Return whether it does."""
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                return False
            with self._changed:
                self._changed.wait(0.01)
        return True
