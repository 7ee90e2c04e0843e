"""Ctrl-C and SIGTERM during the demo: noticed where it is safe, so that everything that was built is taken down."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

PAUSE = 0.01
_IMPATIENT = 3


class Interrupted(Exception):  # noqa: N818 - not an error
    """Somebody wants the demo to end; ``number`` is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def status(self) -> int:
        """The exit status that shells expect."""
        return 128 + self.number


class Interruption:
    """Notes signals while it is entered. Whoever waits, waits here, and is told by :class:`Interrupted`.

    The third signal is for a demo that hangs: it raises ``KeyboardInterrupt`` at once.
    """

    def __init__(self) -> None:
        self._noted = threading.Event()
        self._number = 0
        self._count = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._number = number
        self._count += 1
        self._noted.set()
        if self._count >= _IMPATIENT:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise :class:`Interrupted` if a signal has come."""
        if self._noted.is_set():
            raise Interrupted(self._number)

    def sleep(self, seconds: float) -> None:
        """Wait; a signal ends it."""
        self._noted.wait(seconds)
        self.check()

    def wait_until(self, condition: Callable[[], bool], patience: float) -> float | None:
        """Wait until something holds; return how many seconds it took, None when it did not come to that in time."""
        started = time.monotonic()
        while not condition():
            if time.monotonic() - started > patience:
                return None
            self.sleep(PAUSE)
        return time.monotonic() - started

    def wait_for_signal(self) -> None:
        """Wait for a signal, and take it as seen."""
        self._noted.wait()
        self._noted.clear()
