"""What is expected of a question to a server of the lab, and what is wrong with an outcome that is not so."""

from collections.abc import Callable, Iterable, Sequence

from attrs import evolve, frozen

from kproxy_core.model.names import Protocol
from kproxy_core.testing.lab import DROP_TIMEOUT, Answer, Dropped, Outcome, Question, Refused, Unreachable, ask_all

SURE = 15.0
"""Seconds, where an outcome is certain to come: a busy machine is no drop."""

Judge = Callable[[Question, Outcome], str]
"""Says what is wrong with an outcome; empty if nothing is."""


@frozen
class Expected:
    """Questions to be put at once, and who judges the outcomes."""

    questions: tuple[Question, ...]
    judge: Judge


@frozen
class Asked:
    """Questions on which nothing is expected yet."""

    questions: tuple[Question, ...]

    def answered(self, servers: str, client: str = "") -> Expected:
        """Each is answered by one of these servers, which sees the client's own address (``kept``), or not (``masqueraded``)."""
        return Expected(self._within(SURE), lambda _, outcome: not_answered(outcome, set(servers.split()), client))

    def refused(self) -> Expected:
        """Each is refused: TCP by RST, all else by ICMP port unreachable."""
        return Expected(self._within(SURE), not_refused)

    def dropped(self) -> Expected:
        """Each vanishes."""
        return Expected(self._within(DROP_TIMEOUT), lambda _, outcome: not_dropped(outcome))

    def unreachable(self) -> Expected:
        """Each comes to a host that has nothing there: a TCP or UDP port that is closed."""
        return Expected(self._within(SURE), lambda _, outcome: not_closed(outcome))

    def _within(self, timeout: float) -> tuple[Question, ...]:
        return tuple(evolve(question, timeout=timeout) for question in self.questions)


def see(*expected: Expected) -> tuple[Outcome, ...]:
    """Put all questions at once and check every outcome; return them in order."""
    questions = [question for each in expected for question in each.questions]
    judges = [each.judge for each in expected for _ in each.questions]
    outcomes = ask_all(questions)
    complaints = [
        f"{describe(question)}: {wrong}: {outcome}"
        for question, judge, outcome in zip(questions, judges, outcomes, strict=True)
        if (wrong := judge(question, outcome))
    ]
    assert not complaints, "\n".join([f"{len(complaints)} of {len(questions)} wrong", *complaints])
    return outcomes


def describe(question: Question) -> str:
    """A question in words."""
    source = f" ({question.source_address})" if question.source_address else ""
    return f"{question.host.name}{source} to {question.address} {question.protocol.name} {question.port}"


def not_answered(outcome: Outcome, servers: Iterable[str], client: str = "") -> str:
    """What keeps an outcome from being the answer of one of these servers; ``client`` is kept, masqueraded, or either (empty)."""
    if not isinstance(outcome, Answer):
        return "no answer"
    if outcome.server not in servers:
        return f"answered by another than {', '.join(sorted(servers))}"
    if client == "kept" and outcome.masqueraded:
        return "the client's address was not kept"
    if client == "masqueraded" and not outcome.masqueraded:
        return "the client's address was kept"
    return ""


def not_refused(question: Question, outcome: Outcome) -> str:
    """What keeps an outcome from being a refusal: of TCP by RST, of all else by ICMP port unreachable."""
    by = "rst" if question.protocol is Protocol.TCP else "icmp"
    return "" if isinstance(outcome, Refused) and outcome.by == by else f"not refused by {by}"


def not_dropped(outcome: Outcome) -> str:
    """What keeps an outcome from being none at all."""
    return "" if isinstance(outcome, Dropped) else "not dropped"


def not_closed(outcome: Outcome) -> str:
    """What keeps an outcome from being that of a closed port, or of no way there."""
    return "" if isinstance(outcome, Refused | Unreachable) else "reached"


def servers(outcomes: Sequence[Outcome]) -> set[str]:
    """Who has answered."""
    return {outcome.server for outcome in outcomes if isinstance(outcome, Answer)}
