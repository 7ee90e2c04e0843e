"""What is wanted and not yet in the kernel: it outlives every failure, and is cleared by success alone."""

from attrs import Factory, define

from kproxy_core.engine.changes import Resolution
from kproxy_core.model.flows import FrontendKey
from kproxy_core.model.names import Protocol, ServicePortKey


@define
class Backlog:
    """Everything resolved since the last success. ``conntrack`` is the wish for a cleaning of stale flows.

    At first everything is to be done, whatever an earlier process did.
    """

    dirty: set[ServicePortKey] = Factory(set)
    node_changed: bool = True
    trigger_times: list[float] = Factory(list)
    gone_frontends: set[FrontendKey] = Factory(set)
    conntrack: bool = True

    def __bool__(self) -> bool:
        return self.node_changed or bool(self.dirty)

    def add(self, resolution: Resolution) -> None:
        """Take over what a tracker hands over."""
        self.dirty |= resolution.dirty
        self.node_changed |= resolution.node_changed
        self.trigger_times += resolution.trigger_times
        self.gone_frontends.update(resolution.gone_frontends)
        # Whose replies are valid may have changed even where the rules have not.
        self.conntrack |= any(port.name.protocol is Protocol.UDP for port in resolution.dirty)

    def take_work(self) -> None:
        """What is dirty has become part of a sync, which gives back what it could not do."""
        self.dirty = set()
        self.node_changed = False

    def take_trigger_times(self) -> tuple[float, ...]:
        """Hand over the trigger times, which have become effective."""
        times, self.trigger_times = tuple(self.trigger_times), []
        return times

    def take_conntrack(self, *, keep: bool) -> frozenset[FrontendKey]:
        """Hand over the wish for a cleaning, with the frontends that are gone.

        These are kept for the next cleaning, too, where the kernel may have refused to let go of some.
        """
        gone, self.conntrack = frozenset(self.gone_frontends), False
        if not keep:
            self.gone_frontends = set()
        return gone
