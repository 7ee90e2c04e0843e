"""The engine: a machine without I/O that is told events and asks for effects, and so keeps the kernel as the cluster wants it.

It reads before it writes, applies differences only, and flushes nothing. What is wanted but not yet in the kernel is kept here
until it is, whatever fails in between.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import assert_never

from attrs import frozen

from kproxy_core.config.settings import Settings
from kproxy_core.engine import events as e
from kproxy_core.engine.adopt import UNATTRIBUTED, is_unchanged
from kproxy_core.engine.backlog import Backlog
from kproxy_core.engine.changes import ChangeTracker
from kproxy_core.engine.cleaning import Cleaning, without
from kproxy_core.engine.compile import compile_ports
from kproxy_core.engine.events import AnyProgram, Effect, Event
from kproxy_core.engine.health import Health
from kproxy_core.engine.quarantine import Quarantine
from kproxy_core.engine.remarks import Remarks
from kproxy_core.engine.report import Account
from kproxy_core.engine.schedule import LONGEST_RETRY, STORM, Backoff, Pace
from kproxy_core.engine.work import (
    AnyScaffold,
    ScaffoldRefusedError,
    TooManyRefusalsError,
    Trial,
    Wanted,
    Work,
    work_after_read,
    work_from,
)
from kproxy_core.model.addresses import Family
from kproxy_core.model.names import Protocol, ServicePortKey
from kproxy_core.model.objects import Node
from kproxy_core.model.snapshot import Kind
from kproxy_core.model.state import NodeState
from kproxy_core.plugin.backend import AnyBackend, ApplyResult, Capability, Drift, Failure, SyncReport
from kproxy_core.program.delta import diff_programs
from kproxy_core.program.program import Program

SHORTEST_CHECK = 1.0
"""Seconds between two comparisons with the kernel, however short the sync period."""
CHECK_IF_CERTAIN = 3600.0
"""The same where no change by others can be missed: all that is left to find are our own mistakes, and to read a hundred
thousand elements back takes half a second. kube-proxy syncs fully once an hour, too."""
PATIENCE = 3
"""Attempts after which a failure that the kernel calls passing is taken for a refusal, so that it does not hold up the others."""
FEW = 256
"""Up to this many Service ports are put into a fixed order, so that what is done can be reproduced; sorting more would cost."""


@frozen
class Idle:
    """Nothing is going on."""


@frozen
class Reading:
    """The kernel is being read."""


@frozen
class Applying:
    """A plan is being carried out."""

    trial: Trial


@frozen
class Stopped:
    """Nothing will go on any more."""


Phase = Idle | Reading | Applying | Stopped


class Engine:
    """Drives one backend from one tracker. ``step`` it with events, perform the effects, wake it at ``deadline``.

    ``clock`` measures how long the phases of a sync take, in seconds; the default leaves that out. All times given to ``step``
    are monotonic seconds and never decrease.
    """

    def __init__(
        self, backend: AnyBackend, tracker: ChangeTracker, settings: Settings, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._backend = backend
        self._tracker = tracker
        self._settings = settings
        self._clock = clock
        self._phase: Phase = Idle()
        self._addresses_seen = False

        # What we last put into the kernel, and whether it is still so for all we know.
        self._made: AnyProgram = Program()
        self._is_known = False
        self._scaffold: AnyScaffold = {}
        self._scaffold_pending = True
        self._next_id = 1
        self._unserved: Mapping[Family, str] = {}

        self._state: NodeState | None = None
        self._remarks = Remarks(backend)
        self._backlog = Backlog()
        self._quarantine = Quarantine()
        self._cleaning = Cleaning()
        self._health = Health()
        self._first_waiting: float | None = None
        self._arrivals = 0

        self._pace = Pace(least=settings.min_sync_period)
        self._backoff = Backoff(longest=min(LONGEST_RETRY, max(settings.sync_period, SHORTEST_CHECK)))
        is_certain = Capability.DRIFT_CERTAIN in backend.capabilities
        self._check_period = max(settings.sync_period, CHECK_IF_CERTAIN if is_certain else SHORTEST_CHECK)
        self._check_at = math.inf
        self._wake_at = math.inf
        self._drift: Drift | None = None
        self._drift_count = 0

        self._work: Work | None = None
        self._account = Account(started=0.0)
        self._phase_started = 0.0
        self._last_report: SyncReport | None = None

    # -- what the outside may ask

    @property
    def state(self) -> NodeState | None:
        """The state resolved last; None before the first sync."""
        return self._state

    @property
    def program(self) -> AnyProgram:
        """What the engine has put into the kernel."""
        return self._made

    @property
    def quarantine(self) -> Quarantine:
        """The Service ports that were refused."""
        return self._quarantine

    @property
    def node(self) -> Node | None:
        """The proxy's own Node as the source knows it."""
        return self._tracker.node

    @property
    def listed(self) -> frozenset[Kind]:
        """The kinds of which the sources have delivered everything there is."""
        return self._tracker.listed

    @property
    def health(self) -> Health:
        """What is waiting, since when."""
        return self._health

    @property
    def unserved(self) -> Mapping[Family, str]:
        """The IP families that the kernel refuses, and why."""
        return self._unserved

    @property
    def drift_count(self) -> int:
        """How often somebody else's changes were found and repaired."""
        return self._drift_count

    @property
    def last_report(self) -> SyncReport | None:
        """The report of the last sync; None before the first has ended."""
        return self._last_report

    @property
    def is_busy(self) -> bool:
        """Whether anything is wanted, or may be, that the kernel does not have yet; refused Service ports count."""
        idle = self._is_known and self._drift is None and math.isinf(self._commit_at()) and math.isinf(self._cleaning.due_at)
        return not (idle and isinstance(self._phase, Idle | Stopped))

    @property
    def deadline(self) -> float:
        """When to step the engine with ``TimePassed`` at the latest; infinite if only another event can bring something to do."""
        if isinstance(self._phase, Stopped):
            return math.inf
        waits = (self._read_at(), self._commit_at()) if self._is_ready and isinstance(self._phase, Idle) else ()
        return min(self._cleaning.due_at, *waits, math.inf)

    # -- events

    def step(self, event: Event, now: float) -> tuple[Effect, ...]:
        """Take an event; return what is to be done, in this order, before the next event is given."""
        if isinstance(self._phase, Stopped):
            return ()
        return (*self._take(event, now), *self._proceed(now))

    def _take(self, event: Event, now: float) -> Collection[Effect]:
        match event:
            case e.ChangesArrived(changes):
                self._changed(self._tracker.apply(changes), now, len(changes))
            case e.AddressesSeen(addresses):
                self._addresses_seen = True
                self._changed(self._tracker.set_interface_addresses(addresses), now)
            case e.TimePassed():
                pass
            case e.KernelRead(program, unserved):
                return self._kernel_read(program, unserved, now)
            case e.KernelUnreadable(message):
                return self._kernel_unreadable(message, now)
            case e.PlanApplied(result):
                return self._plan_applied(result, now)
            case e.DriftNoticed(drift):
                self._drift = drift
            case e.CheckRequested():
                self._check_at = now
            case e.ConntrackCleaned(error):
                self._cleaning = self._cleaning.ended(error, now)
            case e.StopRequested():
                self._phase = Stopped()
                return [e.Exit()]
            case _:
                assert_never(event)
        return []

    def _changed(self, matters: bool, now: float, count: int = 1) -> None:
        self._arrivals += count if matters else 0
        if self._is_ready and (matters or self._state is None):
            self._health = self._health.changed(now)
            self._first_waiting = now if self._first_waiting is None else self._first_waiting

    # -- when to do what

    @property
    def _is_ready(self) -> bool:
        """Nothing is written before: a half-seen cluster looks like Services without endpoints, NodePorts like unwanted ones."""
        return self._tracker.synced and self._addresses_seen

    def _read_at(self) -> float:
        if not self._is_known:
            return self._backoff.until
        repair_at = max(self._pace.next_commit, self._backoff.until) if self._drift is not None else math.inf
        return min(repair_at, self._check_at, self._wake_at)

    def _commit_at(self) -> float:
        if self._tracker.pending or self._backlog or self._scaffold_pending:
            return max(self._pace.next_commit, self._backoff.until)
        retry_at = self._quarantine.next_retry
        return math.inf if retry_at is None else max(retry_at, self._pace.next_commit, self._backoff.until)

    def _proceed(self, now: float) -> Collection[Effect]:
        """Begin what is due, unless something is going on."""
        effects: list[Effect] = []
        if not isinstance(self._phase, Idle):
            return effects
        if self._cleaning.due_at <= now:
            effects.append(self._clean())
        if not self._is_ready:
            return effects
        if self._read_at() <= now:
            self._account = Account(started=now, full=True)
            self._check_at = math.inf
            self._wake_at = self._wake_at if self._wake_at > now else math.inf
            effects.append(self._read())
        elif self._commit_at() <= now:
            self._account = Account(started=now)
            effects.extend(self._begin(None, now))
        return effects

    def _clean(self) -> Effect:
        wish = self._cleaning
        assert wish.state is not None
        self._cleaning = wish.started()
        return e.CleanConntrack(state=wish.state, gone_frontends=wish.gone)

    def _read(self) -> Effect:
        self._phase = Reading()
        self._phase_started = self._clock()
        return e.ReadKernel()

    # -- one sync, from its beginning to its end

    def _kernel_read(self, program: AnyProgram, unserved: Mapping[Family, str], now: float) -> Collection[Effect]:
        self._leave(Reading, "read")
        if unserved != self._unserved:
            self._put_back_work()
            self._unserved = unserved
            # What there is of a family that comes or goes is nobody's drift.
            self._backlog.node_changed, self._is_known = True, False
        if self._work is not None:
            self._work = self._work.reread(program)
            return self._go_on(now)
        return self._begin(program, now)

    def _kernel_unreadable(self, message: str, now: float) -> Collection[Effect]:
        self._leave(Reading, "read")
        self._is_known = False
        return self._give_up(f"the kernel cannot be read: {message}", now)

    def _leave(self, phase: type[Reading | Applying], name: str) -> None:
        assert isinstance(self._phase, phase), f"answer to {name} without a question"
        self._phase = Idle()
        self._account.spent(name, self._clock() - self._phase_started)

    def _begin(self, observed: AnyProgram | None, now: float) -> Collection[Effect]:
        """Resolve, compile and start trying. ``observed`` is what the kernel holds, None when that is known already."""
        effects: list[Effect] = self._resolve()
        try:
            wanted, broken = self._compile(observed, now)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything, and must not end the daemon
            return [*effects, *self._give_up(f"mode {self._backend.name} cannot render what all Services need: {error!r}", now)]
        effects.extend(broken)
        if observed is not None and not self._notice_drift(observed):
            self._work = work_after_read(observed, self._made, wanted)
        else:
            self._work = work_from(self._made, wanted)
        return [*effects, *self._go_on(now)]

    def _resolve(self) -> list[Effect]:
        if self._state is not None and not self._tracker.pending:
            return []
        began = self._clock()
        resolution = self._tracker.resolve()
        self._state = self._remarks.added_to(resolution.state, resolution.dirty)
        self._backlog.add(resolution)
        self._first_waiting = None
        self._account.arrivals, self._arrivals = self._arrivals, 0
        self._account.spent("resolve", self._clock() - began)
        if not self._backlog.node_changed:
            self._health = self._health.resolved({port.family for port in self._backlog.dirty} | self._lacking())
        return [e.AnnounceState(self._state)]

    def _compile(self, observed: AnyProgram | None, now: float) -> tuple[Wanted, Collection[Effect]]:
        assert self._state is not None
        began = self._clock()
        scaffold = self._backend.scaffold(self._state.node) if self._backlog.node_changed else self._scaffold
        self._scaffold_pending |= scaffold != self._scaffold
        self._scaffold = scaffold
        previous = self._made.fragments
        if observed is not None:
            previous = {**observed.fragments, **previous}
            self._next_id = max(self._next_id, observed.highest_id + 1)
        dirty = self._dirty(previous, now)
        compiled = compile_ports(self._backend, self._state, dirty, previous, self._next_id)
        self._next_id = compiled.next_id
        self._backlog.take_work()
        suspects = self._quarantine.ports & compiled.updates.keys()
        effects = [effect for port, reason in compiled.broken.items() for effect in self._refuse(port, reason, now)]
        self._account.spent("compile", self._clock() - began)
        wanted = Wanted(
            updates=compiled.updates,
            scaffold=scaffold,
            scaffold_changed=self._scaffold_pending,
            suspects=suspects,
            held=self._quarantine.ports - suspects,
        )
        return wanted, effects

    def _dirty(self, previous: Collection[ServicePortKey], now: float) -> Iterable[ServicePortKey]:
        """Tell what is to be compiled: what has changed, all when the node has, and the refused ones whose time has come."""
        assert self._state is not None
        retried = self._quarantine.due(now)
        if self._backlog.node_changed:
            return [*self._state.ports, *(port for port in previous if port not in self._state.ports and port != UNATTRIBUTED)]
        dirty = self._backlog.dirty | retried
        return sorted(dirty) if len(dirty) <= FEW else dirty

    def _notice_drift(self, observed: AnyProgram) -> bool:
        """Tell whether the kernel holds just what we put there; count it when somebody else has changed that."""
        drift, self._drift = self._drift, None
        if not self._is_known:
            return False
        began = self._clock()
        differing = 0 if is_unchanged(observed, self._made) else len(diff_programs(observed, self._made))
        self._account.spent("diff", self._clock() - began)
        if differing:
            self._drift_count += 1
            self._account.drifted = differing
            self._account.culprit = drift.culprit if drift is not None else ""
        return not differing

    def _go_on(self, now: float) -> Collection[Effect]:
        """Try batch after batch until one has to go to the kernel, or all are done."""
        effects: list[Effect] = []
        while self._work is not None and self._work.batches:
            began = self._clock()
            try:
                trial = self._work.trial()
                plan = self._backend.plan(self._work.base, trial.delta) if trial.delta else ()
            except Exception as error:  # noqa: BLE001 - a plugin may raise anything, and must not end the daemon
                failure = Failure(message=f"mode {self._backend.name} cannot plan it: {error!r}")
                effects.extend(self._divide((failure,), now))
                continue
            finally:
                self._account.spent("diff", self._clock() - began)
            if trial.delta:
                self._phase = Applying(trial)
                self._phase_started = self._clock()
                return [*effects, e.ApplyPlan(plan)]
            effects.extend(self._accept(trial))
        return [*effects, *self._finish(now)] if self._work is not None else effects

    def _plan_applied(self, result: ApplyResult, now: float) -> Collection[Effect]:
        phase = self._phase
        self._leave(Applying, "apply")
        assert isinstance(phase, Applying)
        self._account.commits += 1
        self._account.operations += result.done
        if result.wake_at is not None:
            self._wake_at = min(self._wake_at, result.wake_at)
        if not result.failures:
            return [*self._accept(phase.trial), *self._go_on(now)]
        self._is_known = self._is_known and result.unchanged
        passing = [failure.message for failure in result.failures if failure.retryable]
        if passing and self._backoff.failures < PATIENCE:
            return self._give_up("; ".join(passing), now)
        effects = self._divide(result.failures, now)
        if self._work is None:
            return effects
        return [*effects, *(self._go_on(now) if result.unchanged else [self._read()])]

    def _accept(self, trial: Trial) -> Collection[Effect]:
        assert self._work is not None
        before, after = self._work.base.fragments, trial.candidate.fragments
        for port in trial.batch:
            if port != UNATTRIBUTED and before.get(port) != after.get(port):
                self._account.changed.add(port)
                self._backlog.conntrack |= port.name.protocol is Protocol.UDP
            if port in after and after[port].provisional:
                self._backlog.dirty.add(port)
        self._work = self._work.accepted(trial)
        freed = [port for port in trial.batch if port in self._quarantine.refusals and port not in self._work.held]
        self._quarantine = self._quarantine.released(freed)
        return [e.ReportAccepted(port=port) for port in freed]

    def _divide(self, failures: Collection[Failure], now: float) -> list[Effect]:
        """Find the culprits, or come closer to them."""
        assert self._work is not None
        reasons = "; ".join(sorted({failure.message for failure in failures}))
        try:
            self._work, culprits = self._work.refused(failures)
        except ScaffoldRefusedError:
            return self._give_up(f"what all Services need was refused: {reasons}", now)
        except TooManyRefusalsError:
            return self._give_up(f"too much was refused: {reasons}", now)
        passing = any(failure.retryable for failure in failures)
        return [effect for port in sorted(culprits) for effect in self._refuse(port, culprits[port], now, passing=passing)]

    def _refuse(self, port: ServicePortKey, reason: str, now: float, *, passing: bool = False) -> Collection[Effect]:
        known = self._quarantine.reasons.get(port)
        self._quarantine = self._quarantine.refused(port, reason, now, passing=passing)
        return [] if known == reason else [e.ReportRefused(port=port, reason=reason)]

    def _finish(self, now: float) -> Collection[Effect]:
        """Everything is in the kernel, but for what was refused."""
        assert self._work is not None
        assert self._state is not None
        self._made, self._work = self._work.base, None
        self._is_known, self._scaffold_pending = True, False
        self._backoff = self._backoff.succeeded()
        self._health = self._health.synced(now, self._lacking())
        if self._first_waiting is not None:
            self._health = self._health.changed(self._first_waiting)
        if self._backlog.conntrack:
            gone = self._backlog.take_conntrack(keep=bool(self._quarantine.refusals))
            applied = without(self._state, self._quarantine.refusals, self._unserved)
            self._cleaning = self._cleaning.wished(applied, gone)
        return self._end("", self._backlog.take_trigger_times(), now)

    def _lacking(self) -> set[Family]:
        """Tell which of the families that are not served anybody wants."""
        if not self._unserved or self._state is None:
            return set()
        return self._unserved.keys() & {port.family for port in self._state.ports}

    def _put_back_work(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            self._backlog.dirty |= work.left - {UNATTRIBUTED}
            if work.progressed:
                self._made = work.base

    def _give_up(self, error: str, now: float) -> list[Effect]:
        """Leave the rest of the sync to the next one, which comes soon."""
        self._put_back_work()
        self._backoff = self._backoff.failed(now)
        return self._end(error, (), now)

    def _end(self, error: str, trigger_times: tuple[float, ...], now: float) -> list[Effect]:
        if self._account.commits:
            # A commit that nothing led to repairs what somebody else does, perhaps again and again.
            self._pace = self._pace.committed(self._account.started, now, self._account.arrivals or STORM)
        if self._account.full:
            self._check_at = min(self._check_at, now + self._check_period)
        self._account.unserved = self._unserved
        self._last_report = self._account.report(now, self._quarantine.reasons, error, trigger_times)
        return [e.AnnounceSync(self._last_report)]
