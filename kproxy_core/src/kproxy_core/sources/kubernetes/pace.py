"""How long to wait: between attempts, for an answer, for a sign of life."""

from attrs import frozen


@frozen(kw_only=True)
class Pace:
    """Times of a watch, in seconds.

    ``first`` and ``longest`` bound the growing wait after failures; a watch that lived for ``steady`` makes earlier failures
    forgotten. ``relist_spread`` is the range over which the nodes of a cluster list anew at random, lest all do so at once.
    ``watch`` is the range of timeoutSeconds asked of the server. ``silence`` is how long a watch may be without a byte: more than
    the minute between the server's bookmarks. ``list_silence`` and ``stream_silence`` are the same for a list and, until it is
    complete, for a streaming list. ``absent`` is the wait before an optional kind is asked for again.
    """

    first: float = 0.25
    longest: float = 30.0
    steady: float = 5.0
    relist_spread: float = 1.0
    watch: tuple[int, int] = (300, 600)
    connect: float = 10.0
    silence: float = 130.0
    list_silence: float = 70.0
    stream_silence: float = 30.0
    absent: float = 300.0
    longest_retry_after: float = 300.0

    def backoff(self, failures: int, chance: float) -> float:
        """Return the wait after so many failures in a row; ``chance`` is a random number from 0 to 1."""
        if failures <= 0:
            return 0.0
        # Halved and spread: clients that failed together do not come back together.
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 30)) * (0.5 + chance / 2)

    def after(self, retry_after: float, chance: float) -> float:
        """Return the wait that the server asked for, a little spread, within bounds."""
        return min(retry_after, self.longest_retry_after) * (1 + chance / 10)

    def watch_seconds(self, chance: float) -> int:
        """Return a timeoutSeconds."""
        shortest, longest = self.watch
        return round(shortest + (longest - shortest) * chance)
