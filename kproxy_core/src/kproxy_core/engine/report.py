"""Keeps account of a sync while it runs, and draws up its report."""

from collections.abc import Mapping

from attrs import Factory, define

from kproxy_core.model.addresses import Family
from kproxy_core.model.names import ServicePortKey
from kproxy_core.plugin.backend import SyncReport


@define(kw_only=True)
class Account:
    """What a sync has done so far.

    ``started`` is in monotonic seconds; ``commits`` counts the plans that were carried out, or refused, ``arrivals`` the changes
    that led to it.
    """

    started: float
    full: bool = False
    commits: int = 0
    arrivals: int = 0
    operations: int = 0
    changed: set[ServicePortKey] = Factory(set)
    durations: dict[str, float] = Factory(dict)
    drifted: int = 0
    culprit: str = ""
    unserved: Mapping[Family, str] = Factory(dict)

    def spent(self, phase: str, seconds: float) -> None:
        """Add to a phase: read, resolve, compile, diff or apply."""
        self.durations[phase] = self.durations.get(phase, 0.0) + seconds

    def report(
        self, finished: float, failed: Mapping[ServicePortKey, str], error: str = "", trigger_times: tuple[float, ...] = ()
    ) -> SyncReport:
        """Draw up the report of a sync that ends now."""
        return SyncReport(
            started=self.started,
            finished=finished,
            full=self.full,
            operations=self.operations,
            changed_ports=len(self.changed),
            durations=self.durations,
            failed=failed,
            error=error,
            trigger_times=trigger_times,
            drifted=self.drifted,
            culprit=self.culprit,
            unserved=self.unserved,
        )
