"""Faults that are planted into code are in force meanwhile, wherever the function is held, and gone afterwards."""

import pytest

from kproxy_core.testing.conformance.planted.in_code import CodeFault, NoLongerAppliesError, planted

from . import code_to_spoil
from .code_to_spoil import Counter, doubled, remembered

held = doubled


def fault(right: str, wrong: str) -> CodeFault:
    return CodeFault(what="a mistake", module=code_to_spoil, right=right, wrong=wrong)


def test_a_function_is_changed_for_whoever_holds_it() -> None:
    with planted(fault("number * 2", "number * 3")):
        assert (doubled(2), held(2), code_to_spoil.doubled(2)) == (6, 6, 6)
    assert (doubled(2), held(2)) == (4, 4)


def test_methods_and_what_is_remembered_are_changed_as_well() -> None:
    assert remembered(1) == 2
    with planted(fault("value + 1", "value - 1")):
        assert remembered(1) == 0
    assert remembered(1) == 2
    counter = Counter()
    with planted(fault("self.count += 1", "self.count += 5")):
        assert counter.next() == 5
    assert counter.next() == 6


def test_an_error_does_not_leave_it_there() -> None:
    with pytest.raises(ZeroDivisionError), planted(fault("number * 2", "number // 0")):
        doubled(1)
    assert doubled(1) == 2


@pytest.mark.parametrize(("right", "told"), [("nowhere", "0 times"), ("value", "2 times"), ("twice what", "no function")])
def test_a_fault_that_does_not_apply_says_so(right: str, told: str) -> None:
    with pytest.raises(NoLongerAppliesError, match=told), planted(fault(right, "x")):
        pytest.fail("planted")
