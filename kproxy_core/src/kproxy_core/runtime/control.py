"""How other threads, signals and the writer lock's callers reach the daemon's loop: they post events, which wakes it."""

import contextlib
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from types import FrameType

from kproxy_core.engine.events import CheckRequested, Event, StopRequested


class Control:
    """A queue of events for the engine, with a descriptor to wait on."""

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._posted: deque[Event] = deque()
        self.stopping = False
        # Guards the descriptor against writes after it was closed. Reentrant: a signal may come while the lock is held.
        self._lock = threading.RLock()

    def post(self, event: Event) -> None:
        """Give the engine an event, from any thread or a signal handler; without effect once closed."""
        self._posted.append(event)
        with self._lock:
            if self._event >= 0:
                os.eventfd_write(self._event, 1)

    def close(self) -> None:
        """Give the descriptor back."""
        with self._lock:
            if self._event >= 0:
                os.close(self._event)
                self._event = -1

    def stop(self) -> None:
        """End the daemon soon; the kernel keeps its rules."""
        self.stopping = True
        self.post(StopRequested())

    def check(self) -> None:
        """Have the kernel compared with what is wanted, now."""
        self.post(CheckRequested())

    def fileno(self) -> int:
        """Readable when something has been posted."""
        return self._event

    def take(self) -> tuple[Event, ...]:
        """Take out what has been posted."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        return tuple(self._posted.popleft() for _ in range(len(self._posted)))

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGINT stop the daemon and SIGHUP have it check, while in this context.

        Only the main thread may handle signals; in another one this does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.check()
        else:
            self.stop()
