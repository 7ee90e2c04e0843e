"""Slots: all wanted things are placed, as few as possible move, and weights become repetitions."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.program.slots import MAX_WEIGHTED_SLOTS, assign_slots, repetitions

things = st.lists(st.sampled_from("abcde"), max_size=8)


@given(st.dictionaries(st.integers(0, 10), st.sampled_from("abcde")), things)
def test_everything_wanted_gets_a_slot_and_what_can_stay_stays(previous: dict[int, str], wanted: list[str]) -> None:
    found = assign_slots(previous, wanted)
    assert Counter(found) == Counter(wanted)
    left = Counter(wanted)
    for slot, thing in previous.items():
        if slot < len(wanted) and left[thing]:
            left[thing] -= 1
            assert found[slot] == thing


@given(things)
def test_nothing_moves_when_nothing_changes(wanted: list[str]) -> None:
    slots = assign_slots({}, wanted)
    assert assign_slots(dict(enumerate(slots)), sorted(wanted)) == slots


@given(things.filter(bool), st.data())
def test_adding_one_changes_one_slot_and_removing_one_at_most_one_besides_the_last(
    wanted: list[str], data: st.DataObject
) -> None:
    slots = assign_slots({}, wanted)
    more = assign_slots(dict(enumerate(slots)), [*wanted, "new"])
    assert more == (*slots, "new")
    wanted.remove(data.draw(st.sampled_from(wanted)))
    fewer = assign_slots(dict(enumerate(slots)), wanted)
    assert sum(old != new for old, new in zip(slots[: len(fewer)], fewer, strict=True)) <= 1


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([], []),
        ([0], [0]),
        ([0, 0], [0, 0]),
        ([1, 1, 1], [1, 1, 1]),
        ([5, 5], [1, 1]),
        ([3, 1], [3, 1]),
        ([6, 2, 0], [3, 1, 0]),
        ([1000, 1], [1000, 1]),
    ],
)
def test_small_weights_are_exact(weights: list[int], expected: list[int]) -> None:
    assert repetitions(weights) == expected


@given(st.lists(st.integers(0, 1000), max_size=30))
def test_weights_keep_their_proportion_and_nothing_positive_falls_to_zero(weights: list[int]) -> None:
    found = repetitions(weights)
    assert [count > 0 for count in found] == [weight > 0 for weight in weights]
    # Rounding up to one slot each can add at most one slot a thing.
    assert sum(found) <= MAX_WEIGHTED_SLOTS + len(weights)
    total = sum(weights)
    for count, weight in zip(found, weights, strict=True):
        if weight:
            assert abs(count / sum(found) - weight / total) <= (len(weights) + 1) / MAX_WEIGHTED_SLOTS


def test_a_thousand_equal_ones_keep_one_slot_each() -> None:
    assert repetitions([1] * 5000) == [1] * 5000
