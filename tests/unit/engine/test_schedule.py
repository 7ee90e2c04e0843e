"""When commits may go out, and when what failed is tried again."""

import math

from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.engine.schedule import LONGEST_INTERVAL, SHORTEST_INTERVAL, STORM, Backoff, Pace

COSTS = st.lists(st.floats(0.0001, 3.0), min_size=1, max_size=30)


def test_the_first_commit_may_go_out_at_once() -> None:
    assert Pace().next_commit == -math.inf


def test_after_a_commit_the_next_waits_for_the_shortest_interval() -> None:
    pace = Pace().committed(10.0, 10.001)
    assert pace.next_commit == 10.001 + SHORTEST_INTERVAL


def test_the_interval_grows_while_commits_follow_closely_and_shrinks_after_a_pause() -> None:
    pace, now, intervals = Pace(), 0.0, []
    for _ in range(10):
        pace = pace.committed(now, now)
        intervals.append(pace.interval)
        now = pace.next_commit
    assert intervals == sorted(intervals)
    assert (intervals[0], intervals[-1]) == (SHORTEST_INTERVAL, LONGEST_INTERVAL)
    assert pace.committed(now + 10, now + 10).interval == SHORTEST_INTERVAL


def test_single_changes_are_no_storm_though_they_follow_closely() -> None:
    pace, now = Pace(), 0.0
    for _ in range(100):
        pace = pace.committed(now, now, STORM - 1)
        assert pace.interval == SHORTEST_INTERVAL
        now = pace.next_commit


def test_an_expensive_commit_is_followed_by_a_longer_pause() -> None:
    assert Pace().committed(0.0, 0.2).interval == 0.8
    assert Pace().committed(0.0, 30.0).interval == LONGEST_INTERVAL


@given(COSTS)
def test_no_change_waits_longer_than_the_longest_interval_and_none_is_rushed(costs: list[float]) -> None:
    pace, now = Pace(), 0.0
    for cost in costs:
        pace = pace.committed(now, now + cost)
        assert SHORTEST_INTERVAL <= pace.next_commit - (now + cost) <= LONGEST_INTERVAL + 1e-9
        now = pace.next_commit


def test_min_sync_period_counts_from_start_to_start() -> None:
    assert Pace(least=5.0).committed(10.0, 12.0).next_commit == 15.0
    assert Pace(least=5.0).committed(10.0, 18.0).next_commit > 18.0


def test_backoff_doubles_up_to_its_longest_and_starts_again_after_a_success() -> None:
    backoff, waits = Backoff(first=1.0, longest=10.0), []
    for _ in range(6):
        backoff = backoff.failed(100.0)
        waits.append(backoff.until - 100.0)
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert backoff.succeeded().failed(100.0).until == 101.0


def test_hurrying_does_not_forget_how_often_it_failed() -> None:
    backoff = Backoff(first=1.0, longest=10.0).failed(0.0).failed(0.0)
    assert backoff.hurried().until == -math.inf
    assert backoff.hurried().failed(0.0).until == 4.0


def test_a_thousand_failures_overflow_nothing() -> None:
    backoff = Backoff()
    for _ in range(2000):
        backoff = backoff.failed(0.0)
    assert backoff.until == backoff.longest
