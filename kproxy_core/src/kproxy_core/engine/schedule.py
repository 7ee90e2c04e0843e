"""When to commit and when to try again: pure arithmetic on monotonic seconds.

The first change goes out at once. Under a storm commits are coalesced, since every commit starves those who read the kernel's
rules and costs the same whether it carries one change or a thousand.
"""

import math

from attrs import evolve, frozen

SHORTEST_INTERVAL = 0.1
"""Seconds between two commits when changes come now and then."""
LONGEST_INTERVAL = 1.0
"""Seconds between two commits under the worst storm, and so the longest that a change waits for others."""
GROWTH = 1.5
"""Factor by which the interval grows with each commit that finds the next changes waiting, if they are a storm."""
STORM = 4
"""Changes carried by one commit from which on they are a storm: a change now and then, though ten a second, is let through."""
SHARE_OF_COST = 4
"""The interval is at least this many times what the last commit took: a fifth of the time at most goes into commits."""

FIRST_RETRY = 0.1
LONGEST_RETRY = 10.0


@frozen(kw_only=True)
class Pace:
    """How densely commits may follow one another.

    ``least`` is minSyncPeriod: no two commits start closer than that, whatever the interval. All values are in seconds;
    ``started`` and ``finished`` are those of the last commit.
    """

    least: float = 0.0
    interval: float = SHORTEST_INTERVAL
    started: float = -math.inf
    finished: float = -math.inf

    @property
    def next_commit(self) -> float:
        """The earliest time at which the next commit may start."""
        return max(self.started + self.least, self.finished + self.interval)

    def committed(self, started: float, finished: float, changes: int = STORM) -> "Pace":
        """The pace after a commit that carried so many changes.

        Slower when it followed closely on the last one and carried a storm, as it was at first when it did not.
        """
        pressed = started - self.finished <= 2 * self.interval
        grown = self.interval * GROWTH if pressed and changes >= STORM else SHORTEST_INTERVAL
        interval = min(max(grown, SHARE_OF_COST * (finished - started)), LONGEST_INTERVAL)
        return evolve(self, interval=interval, started=started, finished=finished)


@frozen(kw_only=True)
class Backoff:
    """When to try again after failures: twice as late each time, up to ``longest`` seconds.

    Without jitter: a node has one kernel, and nobody else asks it for the same.
    """

    first: float = FIRST_RETRY
    longest: float = LONGEST_RETRY
    failures: int = 0
    until: float = -math.inf

    def failed(self, now: float) -> "Backoff":
        """The backoff after one more failure."""
        # The exponent is bounded: a float overflows after a thousand failures.
        delay = min(self.first * 2.0 ** min(self.failures, 60), self.longest)
        return evolve(self, failures=self.failures + 1, until=now + delay)

    def succeeded(self) -> "Backoff":
        """The backoff after a success: the next failure is a first one."""
        return evolve(self, failures=0, until=-math.inf)

    def hurried(self) -> "Backoff":
        """The same, due now: what failed has changed since."""
        return evolve(self, until=-math.inf)
