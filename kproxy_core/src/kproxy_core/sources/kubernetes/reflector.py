"""Reflector: the thread that performs one WatchMachine's requests and delivers the changes."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from kproxy_core.model.changes import Change
from kproxy_core.sources.kubernetes.connection import ApiConnection, ApiResponse
from kproxy_core.sources.kubernetes.errors import CredentialsError, InterruptedRequestError, TransportError
from kproxy_core.sources.kubernetes.machine import Mode, NextRequest, WatchMachine

log = logging.getLogger("kproxy.kubernetes")

REMIND_AFTER = 600.0
"""Seconds after which a problem that goes on is told again."""


class Deliver(Protocol):
    """Takes changes, in order, from any thread."""

    def __call__(self, changes: Iterable[Change], /) -> None:
        """Take some."""


class Reflector:
    """Watches one kind in a thread of its own until stopped.

    ``last_life`` is the monotonic time of the last byte from the server, None before the first.
    """

    def __init__(self, machine: WatchMachine, connection: ApiConnection, deliver: Deliver, stopped: threading.Event) -> None:
        self.machine = machine
        self.last_life: float | None = None
        self.requests = 0
        self._connection = connection
        self._deliver = deliver
        self._stopped = stopped
        self._told = ""
        self._told_at = float("-inf")
        name = f"kproxy-watch-{machine.resource.kind.value}"
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        while not self._stopped.is_set():
            request = self.machine.next_request()
            if request.delay > 0 and self._stopped.wait(request.delay):
                break
            self.requests += 1
            self._perform(request)
            self._tell()

    def _perform(self, request: NextRequest) -> None:
        """Perform one request; whatever goes wrong is the machine's to know, and nothing ends this thread but ``stopped``."""
        attempt = _Attempt()
        try:
            self._ask(request, attempt)
            self.machine.ended(attempt.lived)
        except InterruptedRequestError:
            self.machine.ended(attempt.lived)
        except TransportError as error:
            if error.silent:
                self._connection.drop_idle()
            self.machine.ended(attempt.lived, str(error), silent=error.silent and attempt.accepted)
        except CredentialsError as error:
            self.machine.ended(attempt.lived, str(error))
        except Exception as error:
            log.exception("watching %s: an error of kproxy itself; going on", self.machine.resource.path)
            self.machine.ended(attempt.lived, f"{type(error).__name__}: {error}")

    def _ask(self, request: NextRequest, attempt: "_Attempt") -> None:
        patience = request.silence if request.mode is Mode.LIST else self.machine.header_silence
        with self._connection.get(self.machine.resource.path, request.query, patience) as answer:
            if answer.status != 200:
                refusal = answer.refusal()
                if refusal.code == 401:
                    self._connection.refused()
                self._pass_on(self.machine.refused(refusal))
            elif request.mode is Mode.LIST:
                body = answer.read()
                self.last_life = time.monotonic()
                self._pass_on(self.machine.receive_list(body))
            else:
                attempt.begin()
                self.machine.accepted()
                self._read(answer, request)

    def _read(self, answer: ApiResponse, request: NextRequest) -> None:
        machine, silence = self.machine, request.silence
        answer.allow_silence(silence)
        for piece in answer.pieces():
            self.last_life = time.monotonic()
            changes = machine.receive(piece)
            if changes:
                self._pass_on(changes)
            if machine.over:
                return
            if machine.silence != silence:
                silence = machine.silence
                answer.allow_silence(silence)

    def _pass_on(self, changes: list[Change]) -> None:
        if changes and not self._stopped.is_set():
            self._deliver(changes)

    def _tell(self) -> None:
        """Log a problem when it begins, when it becomes another one, each ten minutes, and when it is over."""
        problem, now = self.machine.problem, time.monotonic()
        if self._stopped.is_set() or (problem == self._told and (not problem or now - self._told_at < REMIND_AFTER)):
            return
        if problem:
            log.warning("watching %s: %s; what is known stays in force", self.machine.resource.path, problem)
        else:
            log.info("watching %s: all is well again", self.machine.resource.path)
        self._told, self._told_at = problem, now


class _Attempt:
    """When a stream was accepted."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun = 0.0
        self.accepted = False

    def begin(self) -> None:
        self._begun, self.accepted = self._clock(), True

    @property
    def lived(self) -> float:
        """Seconds since, 0 if it never was."""
        return self._clock() - self._begun if self.accepted else 0.0
