"""Connections held open and UDP flows from one source port: asked again and again, they tell who answers now."""

import select
import socket
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from attrs import evolve

from kproxy_core.model.names import Protocol
from kproxy_core.testing.lab import icmp
from kproxy_core.testing.lab.outcomes import Answer, Closed, Dropped, Outcome, parse_answer
from kproxy_core.testing.lab.questions import (
    HowToAsk,
    Question,
    TcpAttempt,
    open_socket,
    reset_on_close,
)

if TYPE_CHECKING:
    from kproxy_core.testing.lab.host import Host

_LARGEST = 1 << 16


class NotConnectedError(Exception):
    """A connection to be held did not come about; ``outcome`` is why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"no connection: {outcome}")
        self.outcome = outcome


class _Conversation:
    """A socket on which lines are numbered, so that a late answer is not taken for that to a later line."""

    def __init__(self, client: socket.socket, timeout: float) -> None:
        self._socket = client
        self._timeout = timeout
        self._lines = 0

    def exchange(self, line: str = "", timeout: float | None = None) -> Outcome:
        """Say a line (up to 900 characters) and wait for its answer, ``timeout`` seconds or as long as the conversation says."""
        self._lines += 1
        started = time.monotonic()
        deadline = started + (self._timeout if timeout is None else timeout)
        number = f"{self._lines} "
        locally = False
        try:
            self._socket.send(f"{number}{line}\n".encode())
        except PermissionError:  # dropped by rules of the host itself; if it was refused, that is still to be told
            locally = True
        except OSError as error:
            return self._failed(error)
        while (patience := deadline - time.monotonic()) > 0:
            outcome = self._listen(patience, started)
            if isinstance(outcome, Answer) and not outcome.said.startswith(number):
                continue
            if outcome is not None:
                return evolve(outcome, said=line) if isinstance(outcome, Answer) else outcome
        return self._silence(locally)

    def _listen(self, patience: float, started: float) -> Outcome | None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(patience * 1000):
            return None
        error = icmp.queued_error(self._socket)
        if error is not None:
            return icmp.outcome_of(error, self._socket)
        try:
            line = self._receive()
        except BlockingIOError:
            return None
        except OSError as failure:
            return self._failed(failure)
        if not line:
            return Closed(by="fin")
        return parse_answer(line, self._socket.getsockname()[:2], time.monotonic() - started)

    def _failed(self, error: OSError) -> Outcome:
        queued = icmp.queued_error(self._socket)
        if queued is not None:
            return icmp.outcome_of(queued, self._socket)
        if isinstance(error, ConnectionResetError | BrokenPipeError):
            return Closed(by="rst" if isinstance(error, ConnectionResetError) else "fin")
        return icmp.outcome_of_errno(error.errno or 0, self._socket)

    def _receive(self) -> bytes:
        return self._socket.recv(_LARGEST)

    def _silence(self, locally: bool) -> Outcome:
        return Dropped(locally=locally)

    @property
    def source(self) -> tuple[str, int]:
        """The client's own address and port."""
        address, port = self._socket.getsockname()[:2]
        return str(address), int(port)

    def close(self) -> None:
        """Close the socket. May be called again."""
        self._socket.close()

    def __enter__(self) -> Self:
        """Itself, to be closed at the end."""
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self.close()


class HeldConnection(_Conversation):
    """An open TCP connection. ``greeting`` is what the server said at first, ``server`` who it is."""

    def __init__(self, client: socket.socket, greeting: Answer, timeout: float) -> None:
        super().__init__(client, timeout)
        self.greeting = greeting
        self._unread = b""

    @property
    def server(self) -> str:
        """The server at the other end."""
        return self.greeting.server

    def alive(self, timeout: float | None = None) -> bool:
        """Whether the same server still answers on it."""
        outcome = self.exchange("alive?", timeout)
        return isinstance(outcome, Answer) and outcome.server == self.server

    def reset(self) -> None:
        """Close it with RST."""
        reset_on_close(self._socket)
        self.close()

    def _receive(self) -> bytes:
        while b"\n" not in self._unread:
            data = self._socket.recv(_LARGEST)
            if not data:
                return b""
            self._unread += data
        line, _newline, self._unread = self._unread.partition(b"\n")
        return line

    def _silence(self, locally: bool) -> Outcome:
        return Dropped(connected=True, locally=locally)


class UdpFlow(_Conversation):
    """A connected UDP socket: every datagram is of one flow, as conntrack and session affinity see it.

    ``connected`` among the options is not heeded. Raises ``OSError`` when the source asked for is not to be had, or there is no
    route.
    """

    def __init__(self, host: "Host", address: object, port: int, **how: Unpack[HowToAsk]) -> None:
        question = Question(host=host, address=address, port=port, protocol=Protocol.UDP, **how)
        client = open_socket(question)
        try:
            client.connect((question.address, question.port))
        except BaseException:
            client.close()
            raise
        super().__init__(client, question.timeout)


def hold(host: "Host", address: object, port: int, **how: Unpack[HowToAsk]) -> HeldConnection:
    """Open a TCP connection and keep it. Raises :class:`NotConnectedError` with the outcome when no server greets."""
    question = Question(host=host, address=address, port=port, **how)
    attempt = TcpAttempt(question)
    try:
        outcome = attempt.begin()
        while outcome is None and (patience := attempt.deadline - time.monotonic()) > 0:
            assert attempt.socket is not None
            poll = select.poll()
            poll.register(attempt.socket, select.POLLOUT if attempt.wants_write else select.POLLIN)
            if poll.poll(patience * 1000):
                outcome = attempt.proceed()
        if not isinstance(outcome, Answer):
            raise NotConnectedError(outcome or attempt.give_up())
    except BaseException:
        attempt.close()
        raise
    assert attempt.socket is not None
    return HeldConnection(attempt.socket, outcome, question.timeout)
