"""Feeds: everything the loop polls, when a descriptor says so or a time has come; one that fails is left alone for a while."""

import logging
import math
import selectors
from collections.abc import Callable, Iterable

from attrs import define, field

from kproxy_core.engine.events import Event
from kproxy_core.engine.schedule import Backoff
from kproxy_core.runtime.logs import LOGGER

log = logging.getLogger(LOGGER)

FIRST_RETRY = 1.0
LONGEST_RETRY = 30.0
"""Seconds for which a feed that failed is left alone."""


@define(eq=False)
class Feed:
    """Something to poll.

    ``poll`` returns what the engine is to be told. ``descriptor`` may give -1 for none. ``every`` is the longest time between two
    polls, in seconds, ``every_unwatched`` that without a descriptor.
    """

    name: str
    descriptor: Callable[[], int]
    poll: Callable[[], Iterable[Event]]
    every: float = math.inf
    every_unwatched: float = math.inf
    due: float = -math.inf
    registered: int = -1
    error: str = ""
    backoff: Backoff = field(factory=lambda: Backoff(first=FIRST_RETRY, longest=LONGEST_RETRY))


class Feeds:
    """Waits for feeds and polls them; no exception of theirs comes through."""

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._feeds = tuple(feeds)
        self._selector = selectors.DefaultSelector()

    def wait(self, now: float, deadline: float) -> list[Feed]:
        """Wait until a feed has something, is due, or the deadline (monotonic seconds) has come; return those to poll."""
        timeout = min(deadline, *(feed.due for feed in self._feeds)) - now
        ready = self._selector.select(None if math.isinf(timeout) and timeout > 0 else max(0.0, timeout))
        return [key.data for key, _ in ready]

    def poll(self, ready: Iterable[Feed], now: float) -> list[Event]:
        """Poll the ready ones and those that are due; return what the engine is to be told, in the order of the feeds."""
        chosen = {*ready, *(feed for feed in self._feeds if feed.due <= now)}
        return [event for feed in self._feeds if feed in chosen for event in self._poll(feed, now)]

    def close(self) -> None:
        """Wait for nothing more."""
        self._selector.close()

    def _poll(self, feed: Feed, now: float) -> tuple[Event, ...]:
        try:
            told = tuple(feed.poll())
            self._register(feed, feed.descriptor())
        except Exception as error:
            self._register(feed, -1)
            feed.backoff = feed.backoff.failed(now)
            feed.due = feed.backoff.until
            if str(error) != feed.error:
                feed.error = str(error)
                log.exception("%s failed, and will be tried again", feed.name)
            return ()
        if feed.error:
            log.info("%s works again", feed.name)
        feed.error = ""
        feed.backoff = feed.backoff.succeeded()
        feed.due = now + (feed.every if feed.registered >= 0 else min(feed.every, feed.every_unwatched))
        return told

    def _register(self, feed: Feed, descriptor: int) -> None:
        if descriptor == feed.registered:
            return
        if feed.registered >= 0:
            self._selector.unregister(feed.registered)
            feed.registered = -1
        if descriptor >= 0:
            self._selector.register(descriptor, selectors.EVENT_READ, feed)
            feed.registered = descriptor
