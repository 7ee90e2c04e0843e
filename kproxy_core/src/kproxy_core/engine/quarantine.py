"""The Service ports that the kernel or the backend refused: why, and when each is tried again."""

from collections.abc import Iterable, Mapping

from attrs import evolve, field, frozen

from kproxy_core.engine.adopt import UNATTRIBUTED
from kproxy_core.engine.schedule import Backoff
from kproxy_core.model.names import ServicePortKey

FIRST_RETRY = 1.0
LONGEST_RETRY = 300.0
"""Seconds. A refused Service port is tried again rarely, since trying costs the same as a sync, and at once when it changes."""
LONGEST_RETRY_PASSING = 10.0
"""The same where the kernel says that the failure will pass."""


@frozen(kw_only=True)
class Refusal:
    """Why a Service port is not in the kernel as wanted, since when (monotonic seconds), and when it is tried again."""

    reason: str
    since: float
    backoff: Backoff = field(factory=lambda: Backoff(first=FIRST_RETRY, longest=LONGEST_RETRY))


@frozen
class Quarantine:
    """Refused Service ports. Never mutated."""

    refusals: Mapping[ServicePortKey, Refusal] = field(factory=dict)

    @property
    def ports(self) -> frozenset[ServicePortKey]:
        """Who is in it."""
        return frozenset(self.refusals)

    @property
    def reasons(self) -> dict[ServicePortKey, str]:
        """Why each is in it."""
        return {port: refusal.reason for port, refusal in self.refusals.items()}

    @property
    def next_retry(self) -> float | None:
        """When the first of them is due, None if there are none."""
        return min((refusal.backoff.until for refusal in self._awaited.values()), default=None)

    def due(self, now: float) -> frozenset[ServicePortKey]:
        """Who is to be tried again."""
        return frozenset(port for port, refusal in self._awaited.items() if refusal.backoff.until <= now)

    @property
    def _awaited(self) -> Mapping[ServicePortKey, Refusal]:
        """Those that are due at some time. What belongs to nobody is not while others are in here, whose old rules may need it.

        It is not tried before them; were it due, it would be so again and again without being tried.
        """
        return {port: refusal for port, refusal in self.refusals.items() if port != UNATTRIBUTED} or self.refusals

    def refused(self, port: ServicePortKey, reason: str, now: float, *, passing: bool = False) -> "Quarantine":
        """Put a Service port in, or let one that was refused again wait longer; ``passing`` as the kernel has it."""
        old = self.refusals.get(port, Refusal(reason=reason, since=now))
        backoff = evolve(old.backoff, longest=LONGEST_RETRY_PASSING if passing else LONGEST_RETRY).failed(now)
        return Quarantine({**self.refusals, port: evolve(old, reason=reason, backoff=backoff)})

    def released(self, ports: Iterable[ServicePortKey]) -> "Quarantine":
        """Let Service ports out."""
        gone = frozenset(ports)
        return Quarantine({port: refusal for port, refusal in self.refusals.items() if port not in gone})
