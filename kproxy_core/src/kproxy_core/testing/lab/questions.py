"""Questions to servers, and the sockets that carry them: non-blocking, made in the namespace of the host that asks."""

import abc
import contextlib
import errno
import itertools
import math
import random
import socket
import struct
import time
from collections.abc import Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING, ClassVar, NotRequired, TypedDict

from attrs import field, frozen

from kproxy_core.model.names import Protocol
from kproxy_core.testing.lab import icmp
from kproxy_core.testing.lab.outcomes import Answer, Closed, Dropped, Outcome, Refused, parse_answer
from kproxy_core.testing.lab.responder import sctp

if TYPE_CHECKING:
    from kproxy_core.testing.lab.host import Host

DROP_TIMEOUT = 0.4
"""Seconds after which no answer means dropped: drops have to be waited for, and TCP sends its first retransmission after one."""

_LARGEST = 1 << 16
_SCTP_PORTS = range(10000, 30000)
_BUSY = (errno.EINPROGRESS, errno.EAGAIN, errno.EINTR)


class HowToAsk(TypedDict):
    """Options of :func:`ask` and its kin. ``timeout`` is in seconds, a source left out is the kernel's choice.

    ``connected`` is for UDP: False sends from an unconnected socket, which hears of no ICMP errors.
    """

    timeout: NotRequired[float]
    source_address: NotRequired[str | None]
    source_port: NotRequired[int | None]
    connected: NotRequired[bool]


class HowToAskMany(HowToAsk):
    """Options of :func:`ask_many`: those of :func:`ask`, and the protocol."""

    protocol: NotRequired[Protocol]


def _canonical(address: object) -> str:
    return str(ip_address(str(address)))


@frozen(kw_only=True)
class Question:
    """One connection, datagram or INIT from a host to an address and port. The address tells the family.

    Raises ``ValueError`` for what is no address.
    """

    host: "Host"
    address: str = field(converter=_canonical)
    port: int
    protocol: Protocol = Protocol.TCP
    timeout: float = DROP_TIMEOUT
    source_address: str | None = None
    source_port: int | None = None
    connected: bool = True

    @property
    def family(self) -> socket.AddressFamily:
        """The socket family of the address."""
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET


def open_socket(question: Question) -> socket.socket:
    """A non-blocking socket in the host's namespace, bound to the source asked for. Raises ``OSError``."""
    kinds = {
        Protocol.TCP: (socket.SOCK_STREAM, 0),
        Protocol.UDP: (socket.SOCK_DGRAM, 0),
        Protocol.SCTP: (socket.SOCK_RAW, sctp.IPPROTO_SCTP),
    }
    with question.host.enter():
        client = socket.socket(question.family, *kinds[question.protocol])
    try:
        client.setblocking(False)
        if question.connected:
            icmp.report_errors(client)
        _bind(client, question)
    except BaseException:
        client.close()
        raise
    return client


def _bind(client: socket.socket, question: Question) -> None:
    if question.source_address is None and question.source_port is None:
        return
    client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port = question.source_port or 0
    if question.protocol is Protocol.TCP and port:
        # Closing with RST leaves no TIME_WAIT, so the same source port can be used again at once.
        reset_on_close(client)
    any_address = "::" if question.family == socket.AF_INET6 else "0.0.0.0"
    client.bind((question.source_address or any_address, 0 if question.protocol is Protocol.SCTP else port))


def reset_on_close(client: socket.socket) -> None:
    """Have close() send RST instead of FIN."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _shifted(numbers: range, by: int) -> Iterator[int]:
    """All numbers, beginning with another one than the first, so that processes beside each other differ."""
    return itertools.chain(numbers[by:], numbers[:by])


class Attempt(abc.ABC):
    """A question on its way. ``begin`` and ``proceed`` return the outcome once known, ``give_up`` the one at the deadline.

    What has got no answer is sent again, ``repeat_after`` seconds after the last time, by ``repeat`` at ``wake_at``.
    """

    repeat_after: ClassVar[float] = math.inf

    def __init__(self, question: Question) -> None:
        self.question = question
        self.started = time.monotonic()
        self.deadline = self.started + question.timeout
        self.wake_at = min(self.deadline, self.started + self.repeat_after)
        self.socket: socket.socket | None = None
        self.wants_write = False
        self._locally_dropped = False

    def begin(self) -> Outcome | None:
        """Make the socket and send the first packet. Raises ``OSError`` when there can be no such socket (source in use, ...)."""
        self.socket = open_socket(self.question)
        try:
            return self._start(self.socket)
        except OSError as error:
            return self._failed(error)

    def proceed(self) -> Outcome | None:
        """Go on after the socket got ready."""
        assert self.socket is not None
        error = self._queued_error(self.socket)
        if error is not None:
            return icmp.outcome_of(error, self.socket)
        try:
            return self._continue(self.socket)
        except OSError as failure:
            return self._failed(failure)

    def repeat(self) -> None:
        """Send again what may have got lost."""
        if self.socket is not None:
            # An error that is queued by now comes out with the answer, or with the next attempt to take one.
            with contextlib.suppress(OSError):
                self._start(self.socket)
        self.wake_at = min(self.deadline, self.wake_at + self.repeat_after)

    def give_up(self) -> Outcome:
        """The outcome when the time is over."""
        return Dropped(locally=self._locally_dropped)

    def close(self) -> None:
        """Close the socket."""
        if self.socket is not None:
            self.socket.close()

    def _failed(self, error: OSError) -> Outcome | None:
        if error.errno in _BUSY:
            return None
        assert self.socket is not None
        queued = self._queued_error(self.socket)
        if queued is not None:
            return icmp.outcome_of(queued, self.socket)
        return icmp.outcome_of_errno(error.errno or 0, self.socket)

    def _queued_error(self, client: socket.socket) -> icmp.IcmpError | None:
        return icmp.queued_error(client)

    def _send(self, client: socket.socket, data: bytes, to: tuple[str, int] | None = None) -> None:
        try:
            client.send(data) if to is None else client.sendto(data, to)
        except PermissionError:
            # Rules of the host itself dropped it; a reject among them is told by an ICMP error that is still to come.
            self._locally_dropped = True

    @abc.abstractmethod
    def _start(self, client: socket.socket) -> Outcome | None:
        """Send the first thing; return the outcome if that tells it already."""

    @abc.abstractmethod
    def _continue(self, client: socket.socket) -> Outcome | None:
        """Take what has arrived; return the outcome once it is known."""

    def _answer(self, line: bytes, source: tuple[str, int]) -> Answer:
        return parse_answer(line, source, time.monotonic() - self.started)


class TcpAttempt(Attempt):
    """Connect, then wait for the server's greeting."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.wants_write = True
        self._received = b""

    def _start(self, client: socket.socket) -> Outcome | None:
        number = client.connect_ex((self.question.address, self.question.port))
        return self._failed(OSError(number, "")) if number else None

    def _continue(self, client: socket.socket) -> Outcome | None:
        if self.wants_write:
            number = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number == errno.ECONNRESET:  # a SYN is refused by ECONNREFUSED: this one was accepted first
                return Closed(by="rst")
            if number:
                return self._failed(OSError(number, ""))
            self.wants_write = False
        try:
            data = client.recv(_LARGEST)
        except ConnectionResetError:
            return Closed(by="rst")
        self._received += data
        if not data:
            return Closed(by="fin")
        if not self._received.endswith(b"\n"):
            return None
        return self._answer(self._received, client.getsockname()[:2])

    def give_up(self) -> Outcome:
        """Dropped, before or after the connection was established."""
        return Dropped(connected=not self.wants_write, locally=self._locally_dropped)


class UdpAttempt(Attempt):
    """Send a datagram, wait for one.

    One that got lost on the way, on a busy machine say, is sent again by the same socket, as the kernel does for TCP: what the
    question is about, where the flow is led to, has been decided by the first one.
    """

    repeat_after = 1.0

    def _start(self, client: socket.socket) -> Outcome | None:
        to = (self.question.address, self.question.port)
        if self.question.connected:
            client.connect(to)
            self._send(client, b"who\n")
        else:
            self._send(client, b"who\n", to)
        return None

    def _continue(self, client: socket.socket) -> Outcome | None:
        line, sender = client.recvfrom(_LARGEST)
        if sender[:2] != (self.question.address, self.question.port):
            return None  # an answer whose address was not translated back is no answer
        return self._answer(line, client.getsockname()[:2])


# In turn, not at random: a second INIT from one port to one server would be of the first one's association to conntrack.
_sctp_ports = itertools.cycle(_shifted(_SCTP_PORTS, random.randrange(len(_SCTP_PORTS))))


class SctpAttempt(Attempt):
    """Send an INIT, wait for the INIT ACK or ABORT that belongs to it."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self._port = question.source_port or next(_sctp_ports)
        self._tag = random.randrange(1, 1 << 32)

    def _start(self, client: socket.socket) -> Outcome | None:
        client.connect((self.question.address, 0))
        init = sctp.encode(sctp.Handshake(self._port, self.question.port, sctp.INIT, 0, self._tag))
        with contextlib.suppress(ConnectionRefusedError):
            self._send(client, init)
            return None
        self._send(client, init)  # that was an error about the packet of another raw socket
        return None

    def _failed(self, error: OSError) -> Outcome | None:
        # A raw socket is told of every refusal by its peer, whoever was refused; the queue tells whose it is.
        return None if error.errno == errno.ECONNREFUSED else super()._failed(error)

    def _queued_error(self, client: socket.socket) -> icmp.IcmpError | None:
        ports = struct.pack("!HH", self._port, self.question.port)
        return icmp.queued_error(client, about=lambda packet: packet.startswith(ports))

    def _continue(self, client: socket.socket) -> Outcome | None:
        while True:
            data = sctp.without_ip_header(client.recv(_LARGEST), ipv6=client.family == socket.AF_INET6)
            packet = sctp.decode(data)
            if packet is None or packet.tag != self._tag or packet.source_port != self.question.port:
                continue
            if packet.destination_port != self._port:
                continue
            if packet.chunk == sctp.ABORT:
                return Refused(by="abort")
            return self._answer(packet.cookie, (client.getsockname()[0], self._port))


_ATTEMPTS: dict[Protocol, type[Attempt]] = {
    Protocol.TCP: TcpAttempt,
    Protocol.UDP: UdpAttempt,
    Protocol.SCTP: SctpAttempt,
}


def attempt(question: Question) -> Attempt:
    """A way to put the question, not yet begun."""
    return _ATTEMPTS[question.protocol](question)
