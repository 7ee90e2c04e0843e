"""A lab's node with a mode at work: told a cluster, it programs the kernel at once, without waiting for a clock."""

import math
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Generic, Self, TypeVar

from kproxy_core.config.settings import Settings
from kproxy_core.engine import events as e
from kproxy_core.kernel.addresses import AddressSocket
from kproxy_core.kernel.conntrack import ConntrackSocket
from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.changes import Change, Deleted, Replaced, Upserted, WatchedObject
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Node, Service, ServiceCIDR
from kproxy_core.model.snapshot import ClusterSnapshot, Kind
from kproxy_core.plugin.backend import AnyBackend, AnyDataplane, SyncReport
from kproxy_core.program.delta import Delta, diff_programs
from kproxy_core.runtime.addresses import usable
from kproxy_core.runtime.conntrack import clean_family
from kproxy_core.sources.documents import read_text
from kproxy_core.sources.mixed import Origin, combine, decode_document
from kproxy_core.testing.lab import Host
from kproxy_core.testing.manifests import objects_in
from kproxy_core.testing.playbook import Playbook

B = TypeVar("B", bound=AnyBackend)

_PATIENCE = 5.0
"""Seconds of the engine's clock, not of ours: what is refused again and again is given up for now."""

_TICK = 0.02

_KINDS = {Service: Kind.SERVICE, EndpointSlice: Kind.ENDPOINT_SLICE, Node: Kind.NODE, ServiceCIDR: Kind.SERVICE_CIDR}


class NodeUnderTest(Generic[B]):
    """A host (of a lab, mostly) whose kernel a backend programs, by the real engine under a clock that jumps.

    Every method that changes something returns once the kernel has it, and ``reports`` has what each sync did. ``restart`` is
    what a crash and a new process are to the kernel. One thread only.
    """

    def __init__(self, host: Host, backend: B, settings: Settings | None = None) -> None:
        self.host = host
        self.backend = backend
        self.settings = settings or Settings(node_name=host.name)
        self._play = self._start()

    def _start(self) -> Playbook[B]:
        with self.host.enter():
            play = Playbook(self.backend, self.settings, addresses=None)
        return play >> e.AddressesSeen(self.addresses())

    def addresses(self) -> tuple[Address, ...]:
        """The addresses that the host's interfaces have now, in the kernel's order."""
        with self.host.enter(), AddressSocket() as rtnetlink:
            return usable(rtnetlink.addresses())

    # -- the cluster

    def set(self, *objects: WatchedObject) -> SyncReport | None:
        """Make these objects the whole cluster; the report of the last sync that this needed, None if none."""
        return self._tell(_listed(objects))

    def set_manifests(self, text: str) -> SyncReport | None:
        """Make the objects of a YAML text the whole cluster."""
        return self.set(*read_manifests(text))

    def put(self, *objects: WatchedObject) -> SyncReport | None:
        """Add objects, or give those that are there new content."""
        return self._tell(tuple(Upserted(object=each) for each in objects))

    def remove(self, *objects: WatchedObject) -> SyncReport | None:
        """Remove objects; only their kinds and names count."""
        return self._tell(tuple(Deleted(kind=_KINDS[type(each)], name=_name(each)) for each in objects))

    def see_addresses(self) -> SyncReport | None:
        """Take in the addresses that the host has now."""
        return self._do(e.AddressesSeen(self.addresses()))

    def check(self) -> SyncReport | None:
        """Have everything read and compared; the report says how many operations that needed."""
        return self._do(e.CheckRequested())

    def notice(self, patience: float = 10.0) -> SyncReport | None:
        """Wait, as the daemon does, until the mode suspects a change by others, and have it looked into.

        ``patience`` is in (real) seconds; None if nothing is suspected all the while.
        """
        end = time.monotonic() + patience
        while (drift := self._play.dataplane.drift()) is None:
            if time.monotonic() > end:
                return None
            time.sleep(_TICK)
        return self._do(e.DriftNoticed(drift))

    def restart(self, settings: Settings | None = None, cluster: Iterable[WatchedObject] | None = None) -> SyncReport | None:
        """Forget everything, as a new process with these settings (or the same), told this cluster (or the same)."""
        snapshot = self.snapshot
        self.restart_untold(settings)
        if cluster is None:
            return self.set(*objects_in(snapshot)) if snapshot.synced else None
        return self.set(*cluster)

    def restart_untold(self, settings: Settings | None = None) -> None:
        """The same, but the new process has not been told of any cluster yet."""
        self._play.close()
        self.settings = settings or self.settings
        self._play = self._start()

    def _tell(self, changes: tuple[Change, ...]) -> SyncReport | None:
        return self._do(e.ChangesArrived(changes))

    def _do(self, event: e.Event) -> SyncReport | None:
        before = len(self._play.reports)
        self._play >> event
        self._play.settle(_PATIENCE)
        return self._play.reports[-1] if len(self._play.reports) > before else None

    # -- what became of it

    @property
    def reports(self) -> tuple[SyncReport, ...]:
        """What each sync did since the start of this process."""
        return tuple(self._play.reports)

    @property
    def play(self) -> Playbook[B]:
        """The engine's life, for tests that look closer."""
        return self._play

    @property
    def dataplane(self) -> AnyDataplane:
        """The mode's open end to the kernel."""
        return self._play.dataplane

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The cluster as it has been told."""
        return self._play.tracker.snapshot()

    def difference(self) -> Delta[object, object]:
        """Read the kernel and tell what a sync would have to change now."""
        return diff_programs(self._play.dataplane.read(), self._play.engine.program)

    def clean_conntrack(self) -> int:
        """Delete the UDP flows that the last sync made stale; how many there were."""
        with self.host.enter(), ConntrackSocket() as conntrack:
            wishes, self._play.cleanings[:] = tuple(self._play.cleanings), ()
            return sum(
                clean_family(conntrack, family, wish, self.backend.valid_replies, math.inf)
                for wish in wishes
                for family in Family
            )

    def close(self) -> None:
        """End the process; the kernel keeps what it has."""
        self._play.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_manifests(text: str) -> tuple[WatchedObject, ...]:
    """Read the objects of a YAML text. Raises ``ValueError`` for anything in it that is amiss: a test means what it says."""
    decoded = tuple(item for document in read_text(text.encode()).documents for item in decode_document(document.data))
    listings = combine([Origin(name="manifests", decoded=decoded)])
    amiss = [str(diagnostic) for listing in listings.values() for diagnostic in listing.diagnostics]
    if amiss:
        raise ValueError("; ".join(amiss))
    return tuple(each for listing in listings.values() for each in listing.objects)


def _listed(objects: Iterable[WatchedObject]) -> tuple[Change, ...]:
    by_kind: dict[Kind, list[WatchedObject]] = {kind: [] for kind in Kind}
    for each in objects:
        by_kind[_KINDS[type(each)]].append(each)
    return tuple(Replaced(kind=kind, objects=tuple(found)) for kind, found in by_kind.items())


def _name(each: WatchedObject) -> ObjectName:
    return each.name if isinstance(each.name, ObjectName) else ObjectName("", each.name)
