"""Faults for the in-memory kernel: what may go wrong at any operation of a mode, planted on purpose."""

import random
from collections.abc import Callable
from typing import Any

from attrs import define, frozen

from kproxy_core.plugin.backend import Failure

Fault = Callable[[int, Any], Failure | None]
"""Asked before each kernel operation with its number (counted from 1 over the kernel's life) and the key it concerns.

Returns a failure to refuse it, None to let it pass; raises :class:`Crash` to end the process in between.
"""


class Crash(BaseException):
    """The process is gone, in the middle of what it was doing. Not an Exception: nothing may catch it and go on."""


@frozen
class FailNth:
    """Refuses the nth operation from now on, once. ``start`` is how many there have been."""

    n: int
    start: int = 0
    retryable: bool = False

    def __call__(self, number: int, key: Any) -> Failure | None:
        """Refuse, or not."""
        if number != self.start + self.n:
            return None
        return Failure(message=f"operation {self.n} was to fail", keys=(key,), retryable=self.retryable)


@frozen
class FailKeys:
    """Refuses every operation on keys that ``matches`` picks; ``told`` is whether the failure says which key it was."""

    matches: Callable[[Any], bool]
    retryable: bool = False
    told: bool = True
    message: str = "no such luck"

    def __call__(self, _number: int, key: Any) -> Failure | None:
        """Refuse, or not."""
        if not self.matches(key):
            return None
        return Failure(message=self.message, keys=(key,) if self.told else (), retryable=self.retryable)


@define
class FailRandomly:
    """Refuses operations with a probability between 0 and 1; the same seed gives the same faults."""

    probability: float
    seed: int
    retryable: bool = False
    _random: random.Random = None  # type: ignore[assignment]

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def __call__(self, _number: int, key: Any) -> Failure | None:
        """Refuse, or not."""
        if self._random.random() >= self.probability:
            return None
        return Failure(message="bad luck", keys=(key,), retryable=self.retryable)


@frozen
class CrashAt:
    """Ends the process just before the nth operation from now on. ``start`` is how many there have been."""

    n: int
    start: int = 0

    def __call__(self, number: int, _key: Any) -> Failure | None:
        """Raise, or not."""
        if number == self.start + self.n:
            raise Crash
        return None


@frozen
class Either:
    """Plants several faults at once; the first that strikes is told."""

    faults: tuple[Fault, ...]

    def __call__(self, number: int, key: Any) -> Failure | None:
        """Refuse, or not."""
        return next((failure for fault in self.faults if (failure := fault(number, key)) is not None), None)


def no_faults(_number: int, _key: Any) -> Failure | None:
    """Let everything pass."""
    return None
