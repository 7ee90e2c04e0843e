"""Waiting times are within their bounds whatever chance says."""

from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.sources.kubernetes.pace import Pace

CHANCES = st.floats(0, 1)


@given(st.integers(0, 10_000), CHANCES)
def test_backoff_is_bounded_however_many_failures(failures: int, chance: float) -> None:
    pace = Pace()
    wait = pace.backoff(failures, chance)
    assert 0 <= wait <= pace.longest
    assert (wait > 0) == (failures > 0)


@given(st.integers(1, 60), CHANCES)
def test_backoff_grows(failures: int, chance: float) -> None:
    assert Pace().backoff(failures + 1, chance) >= Pace().backoff(failures, chance)


@given(CHANCES)
def test_time_limits_of_watches_are_spread(chance: float) -> None:
    assert 300 <= Pace().watch_seconds(chance) <= 600


@given(st.floats(0, 1e9), CHANCES)
def test_what_the_server_asks_for_is_waited_for_but_not_for_ever(seconds: float, chance: float) -> None:
    wait = Pace().after(seconds, chance)
    assert min(seconds, 300) <= wait <= 330
