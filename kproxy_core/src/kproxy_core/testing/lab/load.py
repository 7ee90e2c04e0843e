"""A steady load of new connections, and what became of them: for the demo, and to show that a change loses nothing."""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Self

from attrs import field, frozen

from kproxy_core.testing.lab.ask import AT_ONCE, Volley
from kproxy_core.testing.lab.outcomes import Answer, Outcome
from kproxy_core.testing.lab.questions import Question

_TICK = 0.02
_LATE = 0.1
_KEPT_FAILURES = 100


@frozen(kw_only=True)
class Failure:
    """A question that got no answer, and when, in seconds from the load's start, that was known."""

    at: float
    question: Question
    outcome: Outcome


@frozen(kw_only=True)
class LoadResult:
    """What became of a load. ``failures`` are the first hundred of the ``failed``; times are in seconds."""

    seconds: float
    asked: int
    answered: int
    failed: int
    by_server: Mapping[str, int] = field(factory=dict)
    by_client: Mapping[str, int] = field(factory=dict)
    failures: tuple[Failure, ...] = ()
    mean: float = 0.0
    slowest: float = 0.0


class Load:
    """New connections (or datagrams, or INITs) at a rate, the questions taken in turn, from a thread of its own.

    ``rate`` is per second over all questions; it is not reached while :data:`AT_ONCE` of them wait for an answer, as they do when
    everything is dropped. Use it as a context manager, or by :meth:`start` and :meth:`stop`. Give the questions a ``timeout``
    well above one second if TCP's retransmission is to count as the delay that it is, not as a loss.
    """

    def __init__(self, questions: Sequence[Question], rate: float = 200.0) -> None:
        if not questions or rate <= 0:
            raise ValueError("a load needs a question and a rate above zero")
        self._questions = tuple(questions)
        self._interval = 1.0 / rate
        self._thread = threading.Thread(target=self._run, name="lab-load", daemon=True)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._asked = 0
        self._by_server: Counter[str] = Counter()
        self._by_client: Counter[str] = Counter()
        self._failed = 0
        self._failures: list[Failure] = []
        self._total = 0.0
        self._slowest = 0.0
        self._started = 0.0
        self._ended: float | None = None
        self._error: BaseException | None = None

    def start(self) -> Self:
        """Begin."""
        self._started = time.monotonic()
        self._thread.start()
        return self

    def stop(self) -> LoadResult:
        """Ask no more, wait for what is still out, tell the result. May be called again. Raises what went wrong in the thread."""
        self._stopping.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self.result()

    @property
    def running(self) -> bool:
        """Whether it still asks, or waits for outcomes. It ends by itself when something breaks: :meth:`stop` then raises it."""
        return self._thread.is_alive()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error

    def result(self) -> LoadResult:
        """What is known so far, while it runs or after."""
        with self._lock:
            answered = sum(self._by_server.values())
            return LoadResult(
                seconds=(time.monotonic() if self._ended is None else self._ended) - self._started,
                asked=self._asked,
                answered=answered,
                failed=self._failed,
                by_server=MappingProxyType(dict(self._by_server)),
                by_client=MappingProxyType(dict(self._by_client)),
                failures=tuple(self._failures),
                mean=self._total / answered if answered else 0.0,
                slowest=self._slowest,
            )

    def _run(self) -> None:
        volley = Volley()
        try:
            self._ask(volley)
        except BaseException as error:  # noqa: BLE001 - told to whoever stops the load
            self._error = error
        finally:
            volley.close()
            self._ended = time.monotonic()

    def _ask(self, volley: Volley) -> None:
        out: dict[int, Question] = {}
        due = time.monotonic()
        while volley.pending or not self._stopping.is_set():
            now = time.monotonic()
            due = max(due, now - _LATE)  # after a pause, do not make up for all of it at once
            while due <= now and len(out) < AT_ONCE and not self._stopping.is_set():
                question = self._questions[self._asked % len(self._questions)]
                out[volley.add(question)] = question
                self._asked += 1
                due += self._interval
            patience = min(max(due - now, 0.0), _TICK) if len(out) < AT_ONCE else _TICK
            for identity, outcome in volley.poll(patience):
                self._count(out.pop(identity), outcome)

    def _count(self, question: Question, outcome: Outcome) -> None:
        with self._lock:
            if isinstance(outcome, Answer):
                self._by_server[outcome.server] += 1
                self._by_client[question.host.name] += 1
                self._total += outcome.seconds
                self._slowest = max(self._slowest, outcome.seconds)
                return
            self._failed += 1
            if len(self._failures) < _KEPT_FAILURES:
                at = time.monotonic() - self._started
                self._failures.append(Failure(at=at, question=question, outcome=outcome))
