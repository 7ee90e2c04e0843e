"""How long updates have been waiting, by IP family: what /healthz is about, and no more (kube-proxy's meaning of healthy)."""

from collections.abc import Collection, Mapping

from attrs import evolve, field, frozen

from kproxy_core.model.addresses import Family


@frozen(kw_only=True)
class Health:
    """What waits since when, and when each family was last brought up to date; monotonic seconds.

    A Service port that the kernel refuses does not count: it is reported, but a node that serves all others is healthy.
    """

    last_sync: Mapping[Family, float] = field(factory=dict)
    pending_since: Mapping[Family, float] = field(factory=dict)

    def changed(self, now: float) -> "Health":
        """An update has arrived; which family it concerns is known when it is resolved."""
        return evolve(self, pending_since=dict.fromkeys(Family, now) | dict(self.pending_since))

    def resolved(self, concerned: Collection[Family]) -> "Health":
        """The updates that have arrived concern these families only."""
        return evolve(self, pending_since={f: since for f, since in self.pending_since.items() if f in concerned})

    def synced(self, now: float, unserved: Collection[Family] = ()) -> "Health":
        """Everything that was resolved is in the kernel, but for families that it refuses: what these want goes on waiting."""
        last_sync = {family: now for family in Family if family not in unserved}
        pending = {family: self.pending_since.get(family, now) for family in unserved}
        return Health(last_sync={**self.last_sync, **last_sync}, pending_since=pending)

    def healthy(self, now: float, sync_period: float) -> bool:
        """Whether no update has been waiting for more than twice the sync period."""
        return all(now - since <= 2 * sync_period for since in self.pending_since.values())
