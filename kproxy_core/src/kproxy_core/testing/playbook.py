"""Playbook: drives an engine and the dataplane of any mode under a fake clock, and keeps a readable transcript.

``play >> event << ("read", "apply 7", "sync 7")`` tells an event, performs what the engine asks for, and compares what was done.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Generic, Self, TypeVar

from kproxy_core.config.settings import Settings
from kproxy_core.engine import events as e
from kproxy_core.engine.changes import ChangeTracker
from kproxy_core.engine.machine import Engine
from kproxy_core.model.addresses import parse_address
from kproxy_core.model.changes import Deleted, Replaced, Upserted
from kproxy_core.plugin.backend import AnyBackend, SyncReport
from kproxy_core.plugin.errors import ApplyError
from kproxy_core.testing.sketch import NODE

Told = e.Event | Sequence[Replaced | Upserted | Deleted]
SETTINGS = Settings(node_name=NODE)
MOST_STEPS = 10_000
"""Far more than any cluster of a test needs to come to rest."""


B = TypeVar("B", bound=AnyBackend)


class Playbook(Generic[B]):
    """One daemon's life, minus the daemon: an engine, a dataplane, and a clock that moves when told to.

    Each line of the transcript is an effect: ``read``, ``apply N`` (a plan of N operations), ``sync N`` (a good sync, N things
    done), ``sync failed: why``, ``refused NAME``, ``accepted NAME``, ``clean`` (conntrack), ``exit``. While ``held`` what the
    engine asks of the kernel is only noted; ``release`` performs it.
    """

    def __init__(self, backend: B, settings: Settings = SETTINGS, addresses: Iterable[str] | None = ("192.0.2.1",)) -> None:
        self.backend = backend
        self.now = 1000.0
        self.dataplane = backend.open()
        self.tracker = ChangeTracker(settings, backend.node_ports_everywhere)
        self.engine = Engine(backend, self.tracker, settings)
        self.transcript: list[str] = []
        self.reports: list[SyncReport] = []
        self.cleanings: list[e.CleanConntrack] = []
        self.conntrack_error = ""
        self.slow_conntrack = False
        self.held = False
        self._waiting: list[e.Effect] = []
        if addresses is not None:
            self._step(e.AddressesSeen(tuple(map(parse_address, addresses))))

    def __rshift__(self, told: Told) -> Self:
        """Tell the engine an event, or changes, now."""
        self._step(told if isinstance(told, e.Event) else e.ChangesArrived(tuple(told)))
        return self

    def __lshift__(self, expected: Sequence[str]) -> Self:
        """Compare what was done since the last comparison."""
        done, self.transcript = tuple(self.transcript), []
        assert done == tuple(expected), f"expected {tuple(expected)}, but this was done: {done}"
        return self

    def advance(self, seconds: float) -> Self:
        """Let time pass; the engine is woken at each of its deadlines."""
        end = self.now + seconds
        steps = 0
        while (deadline := self.engine.deadline) <= end:
            steps = 0 if deadline > self.now else steps + 1
            assert steps <= MOST_STEPS, "the engine does not come to rest"
            self.now = max(self.now, deadline)
            self._step(e.TimePassed())
        self.now = end
        return self

    def settle(self, most: float = math.inf) -> Self:
        """Let time pass until nothing but the next check is due, or ``most`` seconds have passed."""
        end = self.now + most
        steps = 0
        while (deadline := self.engine.deadline) <= end and self.engine.is_busy:
            steps += 1
            assert steps <= MOST_STEPS, "the engine does not come to rest"
            self.now = max(self.now, deadline)
            self._step(e.TimePassed())
        return self

    def hold(self) -> Self:
        """Perform no more effects: the kernel is slow."""
        self.held = True
        return self

    def release(self) -> Self:
        """Perform what has been held back."""
        self.held = False
        waiting, self._waiting = self._waiting, []
        for effect in waiting:
            self._perform(effect)
        return self

    def conntrack_done(self) -> Self:
        """End a cleaning of conntrack; by itself it ends at once, unless ``slow_conntrack`` is set."""
        self._step(e.ConntrackCleaned(self.conntrack_error))
        return self

    def close(self) -> None:
        """Close the dataplane, as the end of a process does."""
        self.dataplane.close()

    def _step(self, event: e.Event) -> None:
        for effect in self.engine.step(event, self.now):
            self._note(effect)
            if self.held and isinstance(effect, e.ReadKernel | e.ApplyPlan):
                self._waiting.append(effect)
            else:
                self._perform(effect)

    def _note(self, effect: e.Effect) -> None:
        line = _line(effect)
        if line:
            self.transcript.append(line)

    def _perform(self, effect: e.Effect) -> None:
        match effect:
            case e.ReadKernel():
                try:
                    self._step(e.KernelRead(self.dataplane.read(), self.dataplane.unserved))
                except ApplyError as error:
                    self._step(e.KernelUnreadable(str(error)))
            case e.ApplyPlan(plan):
                self._step(e.PlanApplied(self.dataplane.apply(plan)))
            case e.CleanConntrack():
                self.cleanings.append(effect)
                if not self.slow_conntrack:
                    self.conntrack_done()
            case e.AnnounceSync(report):
                self.reports.append(report)
            case e.AnnounceState() | e.ReportRefused() | e.ReportAccepted() | e.Exit():
                pass

    def drift(self) -> Self:
        """Ask the dataplane whether somebody else has changed something, as the daemon does each second."""
        drift = self.dataplane.drift()
        if drift is not None:
            self._step(e.DriftNoticed(drift))
        return self


def _line(effect: e.Effect) -> str:
    line = ""
    match effect:
        case e.ReadKernel():
            line = "read"
        case e.ApplyPlan(plan):
            line = f"apply {len(plan)}"
        case e.CleanConntrack():
            line = "clean"
        case e.AnnounceSync(report):
            line = f"sync failed: {report.error}" if report.error else f"sync {report.operations}"
        case e.ReportRefused(port=port):
            line = f"refused {port}"
        case e.ReportAccepted(port=port):
            line = f"accepted {port}"
        case e.Exit():
            line = "exit"
        case e.AnnounceState():
            pass
    return line
