"""Drawing from pools: strategies for one entry, a few entries, and for what is rare."""

import enum
import functools
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


@functools.cache
def pick(pool: tuple[T, ...] | type[enum.Enum]) -> st.SearchStrategy[T]:
    """One entry of a constant pool; cached, since making a strategy costs more than drawing from it."""
    return st.sampled_from(pool)


@functools.cache
def one_in(count: int) -> st.SearchStrategy[bool]:
    """True once in ``count`` times; shrinks to false."""
    return pick((*(False,) * (count - 1), True))


@functools.cache
def some(pool: tuple[T, ...], most: int) -> st.SearchStrategy[tuple[T, ...]]:
    """A few different entries of a pool, in any order."""
    return st.lists(pick(pool), max_size=most, unique=True).map(tuple)
