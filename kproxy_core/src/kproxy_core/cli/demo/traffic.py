"""The load of the demo: steady connections to each Service, counted by who answered."""

from collections import Counter
from collections.abc import Iterable

from attrs import field, frozen

from kproxy_core.cli.demo.cluster import Cluster
from kproxy_core.cli.demo.services import DemoService
from kproxy_core.testing.lab import Closed, Load, LoadResult, Outcome, Refused, Unreachable


@frozen(kw_only=True)
class Counts:
    """Connections of one Service so far: how many were made, failed, and answered by each pod; the slowest in seconds.

    Those whose outcome is not known yet do not count, so that the pods' connections and the failed ones are all of them.
    """

    asked: int = 0
    failed: int = 0
    by_pod: Counter[str] = field(factory=Counter)
    slowest: float = 0.0
    failures: tuple[str, ...] = ()

    @property
    def answered(self) -> int:
        """How many were answered."""
        return sum(self.by_pod.values())

    def since(self, before: "Counts") -> "Counts":
        """What was added; the slowest one and the failures are those of the whole time."""
        return Counts(
            asked=self.asked - before.asked,
            failed=self.failed - before.failed,
            by_pod=self.by_pod - before.by_pod,
            slowest=self.slowest,
            failures=self.failures,
        )


def sum_of(counts: Iterable[Counts]) -> Counts:
    """Several Services' counts in one."""
    every = tuple(counts)
    by_pod: Counter[str] = Counter()
    for one in every:
        by_pod.update(one.by_pod)
    return Counts(
        asked=sum(one.asked for one in every),
        failed=sum(one.failed for one in every),
        by_pod=by_pod,
        slowest=max((one.slowest for one in every), default=0.0),
        failures=tuple(failure for one in every for failure in one.failures),
    )


class Traffic:
    """A load for each Service, which can be paused."""

    def __init__(self, cluster: Cluster, services: Iterable[DemoService]) -> None:
        self._questions = {service.name: (cluster.questions(service), service.rate) for service in services}
        self._running: dict[str, Load] = {}
        self._ended: dict[str, list[LoadResult]] = {name: [] for name in self._questions}

    def start(self, *services: str) -> None:
        """Start or go on with these, by default with all that are paused."""
        for name in services or tuple(self._questions):
            if name not in self._running:
                questions, rate = self._questions[name]
                self._running[name] = Load(questions, rate).start()

    def pause(self, *services: str) -> None:
        """Make no more connections to these, by default to all, and wait for those on their way."""
        for name in services or tuple(self._running):
            load = self._running.pop(name, None)
            if load is not None:
                self._ended[name].append(load.stop())

    def counts(self, service: str) -> Counts:
        """What became of the connections to a Service so far."""
        running = self._running.get(service)
        results = [*self._ended[service], *([running.result()] if running else [])]
        return sum_of(_counts_of(result) for result in results)


def described(outcome: Outcome) -> str:
    """An outcome in words."""
    match outcome:
        case Refused() | Closed():
            return f"{type(outcome).__name__.lower()} by {outcome.by}"
        case Unreachable():
            return f"unreachable: {outcome.reason}"
        case _:
            return type(outcome).__name__.lower()


def _counts_of(result: LoadResult) -> Counts:
    return Counts(
        asked=result.answered + result.failed,
        failed=result.failed,
        by_pod=Counter(result.by_server),
        slowest=result.slowest,
        failures=tuple(f"{described(failure.outcome)} for {failure.question.host.name}" for failure in result.failures),
    )
