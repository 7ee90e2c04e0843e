"""The wish to delete stale UDP flows: made by successful syncs, kept until a cleaning has done all its work.

kube-proxy keeps it in the result of one sync only, and forgets it when that sync fails.
"""

import math
from collections.abc import Collection, Iterable

from attrs import evolve, field, frozen

from kproxy_core.engine.schedule import Backoff
from kproxy_core.model.addresses import Family
from kproxy_core.model.flows import FrontendKey
from kproxy_core.model.names import ServicePortKey
from kproxy_core.model.state import NodeState


@frozen(kw_only=True)
class Cleaning:
    """``state`` is what is wished to be reconciled, None when nothing is; ``gone`` are the frontends of vanished Service ports.

    ``in_flight`` are those that the cleaning under way takes care of, None when none is under way.
    """

    state: NodeState | None = None
    gone: frozenset[FrontendKey] = frozenset()
    in_flight: frozenset[FrontendKey] | None = None
    backoff: Backoff = field(factory=Backoff)
    again: NodeState | None = None

    @property
    def due_at(self) -> float:
        """When the next cleaning may start; infinite when there is nothing to do, or one is under way."""
        return self.backoff.until if self.state is not None and self.in_flight is None else math.inf

    def wished(self, state: NodeState, gone: Iterable[FrontendKey]) -> "Cleaning":
        """A sync has succeeded that may have made flows stale."""
        return evolve(self, state=state, gone=self.gone | frozenset(gone), backoff=self.backoff.hurried())

    def started(self) -> "Cleaning":
        """A cleaning was asked for; what is wished from now on needs another one."""
        return evolve(self, state=None, again=self.state, gone=frozenset(), in_flight=self.gone)

    def ended(self, error: str, now: float) -> "Cleaning":
        """The cleaning has ended; after an error all of it is wished again."""
        if not error:
            return evolve(self, in_flight=None, again=None, backoff=self.backoff.succeeded())
        return evolve(
            self,
            state=self.state or self.again,
            gone=self.gone | (self.in_flight or frozenset()),
            in_flight=None,
            again=None,
            backoff=self.backoff.failed(now),
        )


def without(state: NodeState, refused: Collection[ServicePortKey], unserved: Collection[Family]) -> NodeState:
    """Return the state without the Service ports that the kernel does not have as wanted: flows follow their earlier rules."""
    if not refused and not unserved:
        return state
    ports = {key: port for key, port in state.ports.items() if key not in refused and key.family not in unserved}
    return evolve(state, ports=ports)
