"""Slots: numbered places that a kernel picks from at random, kept as they are over changes as far as possible."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import gcd
from typing import TypeVar

T = TypeVar("T")

MAX_WEIGHTED_SLOTS = 1024
"""How many slots weights may take at most for one Service port; larger sums are scaled down."""


def assign_slots(previous: Mapping[int, T], wanted: Sequence[T]) -> tuple[T, ...]:
    """Place ``wanted`` (repetitions allowed) in slots 0 to n-1 and move as little as possible.

    Whatever keeps a slot below n stays there; gaps are filled with the rest, in the order of ``wanted``. Adding one thing changes
    one slot, removing one changes at most one besides the last.
    """
    size = len(wanted)
    left = Counter(wanted)
    slots: list[T | None] = [None] * size
    taken = [False] * size
    for slot, thing in previous.items():
        if slot < size and left[thing] > 0:
            left[thing] -= 1
            slots[slot] = thing
            taken[slot] = True
    rest = iter([thing for thing in wanted if _take(left, thing)])
    return tuple(thing if is_taken else next(rest) for thing, is_taken in zip(slots, taken, strict=True))  # type: ignore[misc]


def _take(left: Counter[T], thing: T) -> bool:
    if left[thing] == 0:
        return False
    left[thing] -= 1
    return True


def repetitions(weights: Sequence[int]) -> list[int]:
    """Return how often each of some things must appear for picks in proportion to ``weights`` (0 or more).

    Exact wherever the reduced weights add up to no more than :data:`MAX_WEIGHTED_SLOTS`; beyond that rounded, and nothing of a
    positive weight falls to zero.
    """
    divisor = gcd(*weights) if weights else 0
    if divisor == 0:
        return [0] * len(weights)
    reduced = [weight // divisor for weight in weights]
    total = sum(reduced)
    if total <= MAX_WEIGHTED_SLOTS or all(weight <= 1 for weight in reduced):
        return reduced
    return [max(1, round(weight * MAX_WEIGHTED_SLOTS / total)) if weight else 0 for weight in reduced]
