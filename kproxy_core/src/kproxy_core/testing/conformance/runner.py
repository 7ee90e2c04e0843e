"""Runs a scenario: tells a subject what happens, sends the packets, and holds every outcome against what is written."""

import contextlib
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, evolve, field, frozen

from kproxy_core.model.names import Protocol
from kproxy_core.testing.conformance.configuration import document
from kproxy_core.testing.conformance.conversations import Conversation
from kproxy_core.testing.conformance.expectations import SURE
from kproxy_core.testing.conformance.judgement import Memory, Put, judge, questions
from kproxy_core.testing.conformance.notation import ALREADY_THERE, fill, named
from kproxy_core.testing.conformance.places import Places
from kproxy_core.testing.conformance.scenario import (
    Again,
    Api,
    Apply,
    Clients,
    Configure,
    Delete,
    Enough,
    Flush,
    Give,
    Open,
    Packets,
    Repeat,
    Restart,
    Run,
    Scenario,
    Step,
    Take,
    Wait,
)
from kproxy_core.testing.conformance.steady import SteadyClients
from kproxy_core.testing.conformance.subject import Subject, SubjectError
from kproxy_core.testing.conformance.world import forget_connections
from kproxy_core.testing.lab import LabCapability, Outcome, ask_all

CONFIRMATIONS = 1
"""How many more times all is asked of a subject that may take a while, once everything is as it should be."""

_TRY = 0.5
"""Seconds a try may take while there is patience left for another."""


@frozen(kw_only=True)
class Check:
    """One packet and what came of it. ``complaint`` is empty when that was right; ``skipped`` says why it was not sent."""

    kind: str
    origin: str
    protocol: str
    family: str
    complaint: str = ""
    skipped: str = ""


@frozen(kw_only=True)
class Report:
    """What became of a scenario. ``skipped`` names the capability it was not run for; ``error`` is what broke it off."""

    scenario: Scenario
    checks: tuple[Check, ...] = ()
    skipped: str = ""
    error: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return not self.error and not any(check.complaint for check in self.checks)

    @property
    def complaints(self) -> tuple[str, ...]:
        """Everything that was wrong."""
        return (*(check.complaint for check in self.checks if check.complaint), *((self.error,) if self.error else ()))

    def of(self, protocol: Protocol) -> "Report":
        """What became of the packets of one protocol; skipped when all of them were."""
        checks = tuple(check for check in self.checks if check.protocol == protocol.name)
        skipped = {check.skipped for check in checks}
        return evolve(self, checks=checks, skipped=self.skipped or (skipped.pop() if len(skipped) == 1 else ""))

    def text(self) -> str:
        """All complaints, with what the scenario is about."""
        count = f"{len(self.complaints)} of {len(self.checks)} wrong"
        return "\n".join([f"{self.scenario.name}: {count}", *self.complaints, "", self.scenario.why])


def unmet(scenario: Scenario, subject: Subject) -> str:
    """Why a scenario makes no sense for a subject, naming the capability; empty if it does."""
    lab = {each.name for each in LabCapability if not subject.lab.lacks(each)}
    for name in scenario.needs:
        if name not in subject.traits | lab:
            return f"needs {name}"
    for name in scenario.lacks:
        if name in subject.traits:
            return f"is for those without {name}"
    return ""


def run(scenario: Scenario, subject: Subject, sure: float = SURE) -> Report:
    """Run a scenario from an empty cluster. What goes wrong is in the report.

    ``sure`` is how many seconds an answer that must come is waited for.
    """
    skipped = unmet(scenario, subject)
    if skipped:
        return Report(scenario=scenario, skipped=skipped)
    started = time.monotonic()
    story = _Story(scenario=scenario, subject=subject, places=Places(subject.lab.plan), sure=sure)
    error = ""
    try:
        with story.cleanup:
            story.begin()
            for step in scenario.steps:
                story.perform(step)
    except (SubjectError, subprocess.SubprocessError, OSError, ValueError) as failure:
        error = "\n".join([str(failure), *getattr(failure, "__notes__", ())])
    seconds = time.monotonic() - started
    return Report(scenario=scenario, checks=tuple(story.checks), error=error, seconds=seconds)


@define(kw_only=True)
class _Story:
    """A scenario on its way."""

    scenario: Scenario
    subject: Subject
    places: Places
    sure: float
    checks: list[Check] = field(factory=list)
    cleanup: contextlib.ExitStack = field(factory=contextlib.ExitStack)
    _loads: dict[str, SteadyClients] = field(factory=dict)
    _conversations: dict[str, list[Conversation]] = field(factory=dict)
    _memory: Memory = field(factory=Memory)
    _given: set[tuple[str, str, str]] = field(factory=set)
    _owners: dict[str, str] = field(factory=dict)

    def begin(self) -> None:
        """Set the scene."""
        self._owners = dict(self.places.owners())
        self.subject.begin(self._document(self.scenario.settings), fill(ALREADY_THERE, self.places))

    def _document(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return document(settings, self.subject.mode, self.places)

    def perform(self, step: Step) -> None:
        """Take a step."""
        match step:
            case Packets():
                self._packets(step)
            case Open():
                self._open(step)
            case Again():
                self._again(step)
            case Clients():
                self._clients(step)
            case Enough(name=name):
                self._enough(name)
            case Repeat(times=times, steps=steps):
                for each in steps * times:
                    self.perform(each)
            case Give() | Take():
                self._addresses(step)
            case Run():
                self._run(step)
            case Wait(seconds=seconds):
                time.sleep(seconds)
            case _:
                self._tell(step)
        for load in self._loads.values():
            load.go_on()

    def _tell(self, step: Step) -> None:
        """Let the subject know, or feel, what has happened."""
        match step:
            case Apply(notes=notes):
                self.subject.apply(fill(notes, self.places))
            case Delete(names=names):
                self.subject.delete(key for name in names for key in named(name))
            case Flush():
                self.subject.flush()
            case Restart(what=what):
                self.subject.restart(what)
            case Api(what=what):
                (self.subject.cut if what == "cut" else self.subject.join)()
            case Configure(settings=settings):
                self.subject.configure(self._document(settings))

    # -- the lab

    def _addresses(self, step: Give | Take) -> None:
        for written in step.addresses:
            address = self.places.expand(written)
            key = (step.host, address, step.interface)
            if isinstance(step, Take):
                self._take(key)
            else:
                self.subject.lab.hosts[step.host].add_address(address, step.interface)
                self._given.add(key)
                self._owners[address.partition("/")[0]] = step.host
                self.cleanup.callback(self._take, key)
        self.subject.see_addresses()

    def _take(self, key: tuple[str, str, str]) -> None:
        if key in self._given:
            self._given.remove(key)
            host, address, interface = key
            del self._owners[address.partition("/")[0]]
            self.subject.lab.hosts[host].remove_address(address, interface)

    def _run(self, step: Run) -> None:
        host = self.subject.lab.hosts[step.host]
        host.run(shlex.split(self.places.expand(step.command)))
        if step.undo:
            self.cleanup.callback(host.run, shlex.split(self.places.expand(step.undo)))
        self.subject.see_addresses()

    # -- packets

    def _packets(self, step: Packets) -> None:
        if not self._conversations and not self._loads:
            # A port that is used again must not meet the translation of an earlier connection.
            forget_connections(self.subject.lab)
        put = [one for ask in step.asks for one in questions(ask, self.subject.lab, self.places, self._owners)]
        skipped = [one for one in put if self._lacks(one)]
        self.checks += [_check(one, skipped="needs SCTP") for one in skipped]
        put = [one for one in put if one not in skipped]
        complaints = dict(self._seen(put))
        self.checks += [_check(one, complaint=self._told(one, complaints.get(number, ""))) for number, one in enumerate(put)]

    def _lacks(self, one: Put) -> bool:
        return one.protocol == "SCTP" and "SCTP" not in self.subject.traits

    def _seen(self, put: list[Put]) -> Iterator[tuple[int, str]]:
        """What is wrong, by the number of the question: at once, or when patience is over."""
        end = time.monotonic() + self.subject.patience
        rounds = CONFIRMATIONS if self.subject.patience else 0
        while True:
            hurried = bool(self.subject.patience) and time.monotonic() < end
            complaints = self._asked(put, hurried=hurried)
            if complaints and hurried:
                time.sleep(0.05)
                continue
            if complaints or not rounds:
                yield from complaints.items()
                return
            rounds -= 1

    def _asked(self, put: list[Put], *, hurried: bool) -> dict[int, str]:
        outcomes: list[Outcome] = list(ask_all(one.within(_TRY if hurried else self.sure) for one in put))
        return judge(put, outcomes, self._memory, self._owners, strict="TCP_RESET" in self.subject.traits)

    def _told(self, one: Put, complaint: str) -> str:
        return f"line {one.ask.line}: {one}: {complaint}" if complaint else ""

    # -- conversations

    def _open(self, step: Open) -> None:
        made = [Conversation(one) for one in questions(step.ask, self.subject.lab, self.places, self._owners)]
        self._conversations[step.name] = made
        for each in made:
            self.cleanup.callback(each.close)
            each.open()
        self._converse(made, step.name, step.ask.expect.fate, lambda each: each.complaint(step.ask.expect))

    def _again(self, step: Again) -> None:
        made = self._conversations.get(step.name)
        if made is None:
            raise ValueError(f"again: no conversation {step.name!r} has been opened")
        end = time.monotonic() + self.subject.patience
        for each in made:
            each.go_on(step.expect)
            while each.complaint(step.expect) and time.monotonic() < end:
                time.sleep(0.05)
                each.go_on(step.expect)
        self._converse(made, step.name, step.expect.fate, lambda each: each.complaint(step.expect))

    def _converse(self, made: list[Conversation], name: str, fate: str, complaint: Any) -> None:
        for each in made:
            wrong = complaint(each)
            self.checks.append(_check(each.put, complaint=f"conversation {name}, {fate}: {each.put}: {wrong}" if wrong else ""))

    # -- clients that go on

    def _clients(self, step: Clients) -> None:
        put = [one for one in questions(step.ask, self.subject.lab, self.places, self._owners) if not self._lacks(one)]
        load = self._loads[step.name] = SteadyClients(put)
        self.cleanup.callback(load.close)

    def _enough(self, name: str) -> None:
        load = self._loads.pop(name, None)
        if load is None:
            raise ValueError(f"enough: no clients {name!r} have begun")
        complaints = load.complaints()
        self.checks += [_check(one, complaint=f"clients {name}: {one}: {wrong}") for one, wrong in complaints]
        self.checks += [_check(one) for one in load.put if one not in [failed for failed, _ in complaints]]


def _check(one: Put, *, complaint: str = "", skipped: str = "") -> Check:
    return Check(
        kind=one.target.kind,
        origin=one.question.host.name,
        protocol=one.protocol,
        family=one.family.label,
        complaint=complaint,
        skipped=skipped,
    )
