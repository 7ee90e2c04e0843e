"""What the daemon expects of a source of changes, and the inbox by which a source with threads of its own delivers."""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from kproxy_core.model.changes import Change


class Source(Protocol):
    """Somewhere to watch the cluster's objects. Called from the daemon's thread only."""

    @property
    def name(self) -> str:
        """How logs call it, such as ``manifests:/etc/kproxy``."""
        ...

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when ``poll`` has something, or -1 to be polled once a second."""
        ...

    def poll(self) -> tuple[Change, ...]:
        """Return what is new since the last call, without waiting; the first call may return complete lists at once.

        An exception is logged, and the source polled again a little later: what the kernel has is kept.
        """
        ...

    def close(self) -> None:
        """Stop watching; ``poll`` is not called again."""
        ...


class Inbox:
    """A queue of changes that wakes the daemon: put in from any thread, taken out by the source's ``poll``."""

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._changes: deque[Change] = deque()
        # Guards the descriptor, which must not be written to after it was closed: its number may be another file's by then.
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """Readable while there is something to take."""
        return self._event

    def put(self, changes: Iterable[Change]) -> None:
        """Deliver changes, in order, from any thread. After ``close`` they are discarded."""
        self._changes.extend(changes)
        with self._lock:
            if self._event >= 0:
                os.eventfd_write(self._event, 1)

    def take(self) -> tuple[Change, ...]:
        """Take out everything that has been delivered."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        taken: list[Change] = []
        # Not list() and clear(): another thread may be putting in between.
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self._changes.popleft())
        return tuple(taken)

    def close(self) -> None:
        """Take nothing more."""
        with self._lock:
            if self._event >= 0:
                os.close(self._event)
                self._event = -1
