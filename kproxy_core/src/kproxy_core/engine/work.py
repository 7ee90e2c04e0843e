"""The work of one sync: batches of Service ports tried against the kernel until each is in it or known to be refused.

Normally there is one batch, with everything in it, and it is applied at once. A refused batch is halved until the culprits stand
alone (see :mod:`~kproxy_core.engine.bisect`); whatever is not refused gets into the kernel, so nobody waits for a culprit.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from attrs import evolve, frozen

from kproxy_core.engine.adopt import UNATTRIBUTED, adopt
from kproxy_core.engine.bisect import AnyFragment, Batch, Updates, culprits_of, divide
from kproxy_core.model.names import ServicePortKey
from kproxy_core.plugin.backend import Failure
from kproxy_core.program.delta import Delta, diff_ports, diff_programs
from kproxy_core.program.program import Program, replace

AnyProgram = Program[Any, Any]
AnyScaffold = Mapping[Any, Any]

REFUSALS_AT_MOST = 64
"""Refused trials in one sync. Enough for several culprits among a hundred thousand Service ports; when more are refused the cause
is seldom theirs (a full set, say), and what is left waits for the next attempt."""


class ScaffoldRefusedError(Exception):
    """The kernel refuses what every Service port stands on."""


class TooManyRefusalsError(Exception):
    """More trials were refused than one sync may make."""


@frozen(kw_only=True)
class Trial:
    """One attempt: the Service ports in it, the program it would lead to, and what has to change for that."""

    batch: Batch
    candidate: AnyProgram
    delta: Delta[Any, Any]


@frozen(kw_only=True)
class Work:
    """What is left to do in a sync.

    ``base`` is what the kernel holds, ``updates`` the wanted fragments of the Service ports that differ from it (None: none is
    wanted), ``scaffold`` what is wanted of it and ``scaffold_pending`` whether it differs too. ``batches`` are tried in order.
    ``held`` are the Service ports whose fragment in ``base`` is not the wanted one and is left alone in this sync. ``progressed``
    says that something has been accepted.
    """

    base: AnyProgram
    updates: Updates
    scaffold: AnyScaffold
    scaffold_pending: bool
    batches: tuple[Batch, ...]
    held: frozenset[ServicePortKey] = frozenset()
    refusals: int = 0
    progressed: bool = False

    @property
    def left(self) -> frozenset[ServicePortKey]:
        """The Service ports that have neither been applied nor refused."""
        return frozenset(port for batch in self.batches for port in batch)

    def trial(self) -> Trial:
        """Prepare the next batch. Raises ``ContractError`` when its fragments contradict each other or what stays."""
        batch = self.batches[0]
        chosen: dict[ServicePortKey, AnyFragment | None] = {port: self.updates[port] for port in batch}
        chosen.update(_yielding(self.base, chosen, self._in_the_way()))
        if self.scaffold_pending:
            candidate = replace(self.base, chosen, self.scaffold)
            return Trial(batch=batch, candidate=candidate, delta=diff_programs(self.base, candidate))
        candidate = replace(self.base, chosen)
        return Trial(batch=batch, candidate=candidate, delta=diff_ports(self.base, candidate, chosen))

    def _in_the_way(self) -> Iterable[ServicePortKey]:
        """Tell whose old fragments may hold what the next batch takes over."""
        waiting = [port for batch in self.batches[1:] for port in batch]
        return {*self.held, *waiting, UNATTRIBUTED}

    def accepted(self, trial: Trial) -> "Work":
        """The kernel holds what the trial wanted."""
        batches = _worthwhile(self.batches[1:], self.held)
        return evolve(self, base=trial.candidate, scaffold_pending=False, batches=batches, progressed=True)

    def refused(self, failures: Collection[Failure]) -> tuple["Work", Mapping[ServicePortKey, str]]:
        """Divide the refused batch; return also the culprits found, with the reason: they are left alone from now on.

        Raises ``ScaffoldRefusedError`` when the batch was the scaffold alone, ``TooManyRefusalsError`` after too many refusals.
        """
        batch, rest = self.batches[0], self.batches[1:]
        if not batch:
            raise ScaffoldRefusedError
        if self.refusals >= REFUSALS_AT_MOST:
            raise TooManyRefusalsError
        culprits = culprits_of(failures, batch, self.base.fragments, self.updates)
        parts = (tuple(port for port in batch if port not in culprits),) if culprits else self._parts(batch)
        if not parts:
            culprits = dict.fromkeys(batch, "; ".join(sorted({failure.message for failure in failures})))
        held = self.held | culprits.keys()
        # Alone, to see whether it is what is refused; with a named culprit it can go along with the others.
        scaffold = ((),) if self.scaffold_pending and not (culprits and any((*rest, *parts))) else ()
        # Breadth first: large parts without a culprit get into the kernel before the search for it goes into detail.
        batches = (*scaffold, *rest, *(part for part in parts if part))
        return evolve(self, batches=_worthwhile(batches, held), held=held, refusals=self.refusals + 1), culprits

    def _parts(self, batch: Batch) -> tuple[Batch, ...]:
        if self.scaffold_pending and len(batch) == 1:
            return (batch,)
        return divide(batch, self.base.fragments, self.updates)

    def reread(self, observed: AnyProgram) -> "Work":
        """Go on from what a read found after a failure that left the kernel in an unknown state."""
        left = self.left
        made = _made(self.base, self.held)
        base = adopt(observed, made, self.scaffold, self._needs(left))
        settled = {port: fragment for port, fragment in made.items() if port not in left}
        damaged = _differing(base, settled, left | self.held | {UNATTRIBUTED})
        batches = (tuple(damaged), *self.batches) if damaged else self.batches
        pending = _is_pending(base, self.scaffold)
        return evolve(self, base=base, updates={**self.updates, **damaged}, batches=batches, scaffold_pending=pending)

    def _needs(self, left: frozenset[ServicePortKey]) -> dict[ServicePortKey, set[Any]]:
        """Tell which shared keys those need that a failure may have left in between their old and their new fragment."""
        if UNATTRIBUTED in self.base.fragments:
            return {}
        before, after = self.base.fragments, self.updates
        versions = {port: (before.get(port), after.get(port)) for port in left | self.held}
        return {port: {key for fragment in both if fragment for key in fragment.shared} for port, both in versions.items()}


@frozen(kw_only=True)
class Wanted:
    """What a sync is to bring about.

    ``updates`` are the newly compiled fragments. ``suspects`` are those among them that were refused last time: they are tried
    after the others. ``held`` have been refused and are not tried now.
    """

    updates: Updates
    scaffold: AnyScaffold
    scaffold_changed: bool
    suspects: frozenset[ServicePortKey] = frozenset()
    held: frozenset[ServicePortKey] = frozenset()


def work_from(base: AnyProgram, wanted: Wanted) -> Work:
    """Begin the work on the linked program that the kernel is known to hold."""
    rubbish: Updates = {UNATTRIBUTED: None} if UNATTRIBUTED in base.fragments else {}
    return _work(base, {**rubbish, **wanted.updates}, wanted, wanted.scaffold_changed)


def work_after_read(observed: AnyProgram, made: AnyProgram, wanted: Wanted) -> Work:
    """Begin the work on what was read; ``made`` is the program that we last put there, empty after a start."""
    fragments = _made(made, frozenset())
    base = adopt(observed, fragments, wanted.scaffold)
    # Those that are held, too: their earlier rules are to stay.
    repairs = _differing(base, fragments, wanted.updates.keys())
    return _work(base, {**repairs, **wanted.updates}, wanted, _is_pending(base, wanted.scaffold))


def _work(base: AnyProgram, updates: Updates, wanted: Wanted, pending: bool) -> Work:
    healthy = tuple(port for port in updates if port not in wanted.suspects and port != UNATTRIBUTED)
    suspects = tuple(port for port in updates if port in wanted.suspects and port != UNATTRIBUTED)
    rubbish = (UNATTRIBUTED,) if UNATTRIBUTED in updates else ()
    batches = tuple(batch for batch in (healthy, suspects, rubbish) if batch)
    return Work(
        base=base,
        updates=updates,
        scaffold=wanted.scaffold,
        scaffold_pending=pending,
        batches=_worthwhile(((), *batches) if pending and not healthy else batches, wanted.held),
        held=wanted.held,
    )


def _worthwhile(batches: tuple[Batch, ...], held: frozenset[ServicePortKey]) -> tuple[Batch, ...]:
    """Put the removal of unattributed objects last, and leave it out when somebody's old rules stay, which may need them."""
    others = tuple(batch for batch in batches if batch != (UNATTRIBUTED,))
    return (*others, (UNATTRIBUTED,)) if len(others) < len(batches) and held <= {UNATTRIBUTED} else others


def _made(program: AnyProgram, without: Collection[ServicePortKey]) -> Mapping[ServicePortKey, AnyFragment]:
    return {port: fragment for port, fragment in program.fragments.items() if port != UNATTRIBUTED and port not in without}


def _differing(
    base: AnyProgram, wanted: Mapping[ServicePortKey, AnyFragment], skip: Collection[ServicePortKey]
) -> dict[ServicePortKey, AnyFragment | None]:
    ports = [*base.fragments, *(port for port in wanted if port not in base.fragments)]
    return {port: wanted.get(port) for port in ports if port not in skip and base.fragments.get(port) is not wanted.get(port)}


def _is_pending(base: AnyProgram, scaffold: AnyScaffold) -> bool:
    missing = object()
    return any(base.common.get(key, missing) != value for key, value in scaffold.items())


def _yielding(base: AnyProgram, chosen: Updates, in_the_way: Iterable[ServicePortKey]) -> dict[ServicePortKey, AnyFragment]:
    """Return the fragments of those in the way without what the chosen take over; a shared object takes the new value for all.

    Without this a Service port that is left alone would keep its address from the heir for ever.
    """
    others = {port: base.fragments[port] for port in in_the_way if port in base.fragments and port not in chosen}
    if not others:
        return {}
    own = {key for fragment in chosen.values() if fragment for key in fragment.own}
    shared = {key: value for fragment in chosen.values() if fragment for key, value in fragment.shared.items()}
    changed = {key: value for key, value in shared.items() if base.common.get(key, value) != value}
    return {
        port: evolve(
            fragment,
            own={key: value for key, value in fragment.own.items() if key not in own and key not in shared},
            # A read program may call shared what is somebody's own, if it was spoiled so that its owner cannot be told.
            shared={key: changed.get(key, value) for key, value in fragment.shared.items() if key not in own},
        )
        for port, fragment in others.items()
        if not (fragment.own.keys() | fragment.shared.keys()).isdisjoint(own)
        or not fragment.shared.keys().isdisjoint(changed)
        or not fragment.own.keys().isdisjoint(shared)
    }
