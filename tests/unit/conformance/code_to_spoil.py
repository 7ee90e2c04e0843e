"""Code for faults to be planted into: twice what there is is four."""

from functools import lru_cache


def doubled(number: int) -> int:
    return number * 2


@lru_cache
def remembered(value: int) -> int:
    return value + 1


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def next(self) -> int:
        self.count += 1
        return self.count
