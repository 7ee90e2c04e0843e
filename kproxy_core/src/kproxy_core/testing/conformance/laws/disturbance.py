"""Faults between a mode and its kernel, planted into an open dataplane: what may go wrong at any operation of any mode."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from attrs import define, frozen

from kproxy_core.plugin.backend import AnyDataplane, ApplyResult, Failure
from kproxy_core.plugin.errors import ApplyError
from kproxy_core.testing.faults import Crash
from kproxy_core.testing.node import NodeUnderTest


@frozen(kw_only=True)
class Refusal:
    """The kernel refuses the plan as a whole, and is as it was."""

    retryable: bool = False


@frozen(kw_only=True)
class Break:
    """The kernel carries out so many operations of the plan; the next one is refused, and the rest is not tried."""

    after: int
    retryable: bool = False


@frozen
class LostAnswer:
    """The kernel carries out everything, but says so to nobody."""


@frozen(kw_only=True)
class Death:
    """The kernel carries out so many operations; then the process that wanted them is gone."""

    after: int


Mishap = Refusal | Break | LostAnswer | Death
Disturbance = Callable[[Sequence[Any]], Mishap | None]
"""Asked before each plan is applied: what is to go wrong with it, None for nothing."""


@define
class Once:
    """One mishap with the first plan that comes."""

    mishap: Mishap
    struck: bool = False

    def __call__(self, plan: Sequence[Any]) -> Mishap | None:
        """Say what goes wrong."""
        if self.struck or not plan:
            return None
        self.struck = True
        return self.mishap


class AtRandom:
    """One of the mishaps (death aside) with each operation by this probability; the same seed gives the same ones."""

    def __init__(self, probability: float, seed: int) -> None:
        self._probability = probability
        self._chance = random.Random(seed)
        self.struck = 0

    def __call__(self, plan: Sequence[Any]) -> Mishap | None:
        """Say what goes wrong."""
        strikes = (self._chance.random() < self._probability for _ in plan)
        at = next((position for position, strike in enumerate(strikes) if strike), None)
        if at is None:
            return None
        self.struck += 1
        retryable = self._chance.random() < 0.5
        return self._chance.choice((Refusal(retryable=retryable), Break(after=at, retryable=retryable), LostAnswer()))


class DisturbedDataplane:
    """A dataplane that has mishaps; all that is not ``apply`` or ``read`` is the mode's own."""

    def __init__(self, inner: AnyDataplane, disturbance: Disturbance) -> None:
        self._inner = inner
        self._disturbance = disturbance
        self.unreadable = 0
        """How many more times nothing can be read."""
        self.largest_plan = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self) -> Any:
        """Read, unless that is to fail."""
        if self.unreadable > 0:
            self.unreadable -= 1
            raise ApplyError("planted: nothing can be read")
        return self._inner.read()

    def apply(self, plan: Sequence[Any]) -> ApplyResult:
        """Apply the plan, or what of it the mishap leaves."""
        self.largest_plan = max(self.largest_plan, len(plan))
        match self._disturbance(plan):
            case None:
                return self._inner.apply(plan)
            case Refusal(retryable=retryable):
                return ApplyResult(failures=(_failure(retryable=retryable),), unchanged=True)
            case Break(after=after, retryable=retryable):
                done = self._inner.apply(plan[:after])
                return ApplyResult(done=done.done, failures=(*done.failures, _failure(retryable=retryable)))
            case LostAnswer():
                self._inner.apply(plan)
                return ApplyResult(failures=(_failure(retryable=True),))
            case Death(after=after):
                self._inner.apply(plan[:after])
                raise Crash


def _failure(*, retryable: bool) -> Failure:
    return Failure(message="planted: something went wrong", retryable=retryable)


@contextmanager
def disturbed(node: NodeUnderTest[Any], disturbance: Disturbance) -> Iterator[DisturbedDataplane]:
    """Plant mishaps for as long as this lasts, or until the node's process is started again."""
    play = node.play
    inner = play.dataplane
    planted = DisturbedDataplane(inner, disturbance)
    play.dataplane = cast("AnyDataplane", planted)
    try:
        yield planted
    finally:
        play.dataplane = inner
