"""One netlink socket: sending, answers, dumps that are complete or fail."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import select
import socket
import struct
from collections.abc import Generator, Iterator, Sequence
from typing import Final

from kproxy_core.kernel import namespaces
from kproxy_core.kernel.closing import Closing
from kproxy_core.kernel.errors import DumpInterruptedError, OverrunError, netlink_error
from kproxy_core.kernel.namespaces import Namespace
from kproxy_core.wire import netlink
from kproxy_core.wire.errors import MalformedMessageError
from kproxy_core.wire.netlink import SOL_NETLINK, ControlType, Message, MessageFlag, Protocol, SocketOption

_SO_ATTACH_FILTER: Final = 26
_SO_SNDBUFFORCE: Final = 32
_SO_RCVBUFFORCE: Final = 33
_RESERVE: Final = 32
"""What the kernel keeps of the send buffer (netlink_sendmsg)."""
_MOST_PARTS: Final = 1024
"""What the kernel takes in one call (UIO_MAXIOV)."""
_ANSWER_SIZE: Final = 1 << 17
"""Largest buffer of messages taken at once; the kernel fills at most 32 KiB of it in a dump."""
_FIRST_TYPE: Final = 0x10
"""Message types below are netlink's own."""
_RECEIVE_BUFFER: Final = 4 << 20
DUMP_ATTEMPTS: Final = 10
"""How often a listing is tried that others disturb."""
_ANSWER_TIMEOUT: Final = 10.0
"""Seconds; the kernel answers at once, so this only bounds a fault."""


class NetlinkSocket(Closing):
    """A netlink socket, for one thread at a time.

    Opened in the calling thread's network namespace or in the one given; it stays there wherever the thread goes.
    """

    def __init__(self, protocol: Protocol, *, namespace: Namespace | None = None) -> None:
        """Open it; NetlinkError, or NamespaceError when the namespace cannot be entered."""
        with namespaces.entered(namespace):
            try:
                self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
            except OSError as error:
                raise netlink_error(f"open a netlink socket ({protocol.name})", error.errno or 0) from error
        self._socket.bind((0, 0))
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[0]
        """The port id that the kernel gave: it tells this socket's commits from others'."""
        self._sequence = 1
        for option in (SocketOption.CAP_ACK, SocketOption.EXT_ACK, SocketOption.GET_STRICT_CHK):
            self._try_option(option)
        self.receive_room = self._grow(_SO_RCVBUFFORCE, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        """Bytes of receive buffer granted."""
        self.send_room = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) - _RESERVE
        """Bytes that one send may have at present; see reserve()."""

    def _try_option(self, option: SocketOption) -> None:
        try:
            self._socket.setsockopt(SOL_NETLINK, option, 1)
        except OSError as error:
            if error.errno != errno.ENOPROTOOPT:  # GET_STRICT_CHK came with 4.20; answers are checked anyway
                raise

    def fileno(self) -> int:
        """The descriptor, to wait on."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close it; doing so twice is fine."""
        self._socket.close()

    def reserve(self, size: int) -> int:
        """Try to make room for one send of this many bytes; returns the bytes that one send may have.

        Beyond net.core.wmem_max that takes CAP_NET_ADMIN in the first user namespace; without it the rest must be split.
        """
        if size > self.send_room:
            self.send_room = self._grow(_SO_SNDBUFFORCE, socket.SO_SNDBUF, size + _RESERVE) - _RESERVE
        return self.send_room

    def _grow(self, forced: int, plain: int, size: int) -> int:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, forced, size)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, plain, size)
        return self._socket.getsockopt(socket.SOL_SOCKET, plain)

    def join(self, group: int) -> None:
        """Subscribe to a multicast group."""
        self._membership(SocketOption.ADD_MEMBERSHIP, group)

    def leave(self, group: int) -> None:
        """Unsubscribe from a multicast group; what has arrived stays in the buffer."""
        self._membership(SocketOption.DROP_MEMBERSHIP, group)

    def _membership(self, option: SocketOption, group: int) -> None:
        try:
            self._socket.setsockopt(SOL_NETLINK, option, group)
        except OSError as error:
            raise netlink_error(f"{option.name} {group}", error.errno or 0) from error

    def attach_filter(self, program: bytes) -> None:
        """Let a classic BPF program (struct sock_filter, packed) decide what reaches the receive buffer."""
        buffer = ctypes.create_string_buffer(program, len(program))
        descriptor = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, descriptor)

    def next_sequence(self, count: int = 1) -> int:
        """Take `count` sequence numbers; returns the first."""
        first = self._sequence
        if first + count > 0xFFFFFFFF:
            first = 1
        self._sequence = first + count
        return first

    def send(self, data: bytes, what: str) -> None:
        """Send one buffer of messages; the kernel has handled them all when this returns.

        Raises NetlinkError: EMSGSIZE for more than `send_room`.
        """
        self.send_parts([data], what)

    def send_parts(self, parts: Sequence[bytes], what: str) -> None:
        """Send one buffer that is given in parts: as send(), without a copy of it all."""
        if len(parts) > _MOST_PARTS:
            step = len(parts) // _MOST_PARTS + 1
            parts = [b"".join(parts[start : start + step]) for start in range(0, len(parts), step)]
        try:
            self._socket.sendmsg(parts)
        except OSError as error:
            raise netlink_error(what, error.errno or 0) from error

    def received(self) -> list[Message]:
        """Everything that has arrived, without waiting.

        Raises OverrunError when something was lost, and MalformedMessageError.
        """
        messages: list[Message] = []
        while (buffer := self._receive()) is not None:
            messages += netlink.iter_messages(buffer)
        return messages

    def _receive(self) -> bytes | None:
        """One buffer of messages, None when there is none at present."""
        try:
            buffer, _, status, _ = self._socket.recvmsg(_ANSWER_SIZE)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                raise OverrunError("the netlink receive buffer overflowed: messages are lost") from error
            raise
        if status & socket.MSG_TRUNC:
            raise MalformedMessageError(f"a netlink datagram longer than {_ANSWER_SIZE} bytes")
        return buffer

    def request(self, kind: int, payload: bytes, what: str, flags: int = 0) -> list[Message]:
        """Send one request and return its answers (none for a request that only does something).

        Raises NetlinkError when the kernel refuses.
        """
        sequence = self.next_sequence()
        more = MessageFlag.REQUEST | MessageFlag.ACK | flags
        self.send(netlink.message(kind, more, sequence, payload), what)
        answers: list[Message] = []
        while True:
            for message in netlink.iter_messages(self._awaited(what)):
                if message.sequence != sequence:
                    continue
                if message.type == ControlType.ERROR:
                    _raise_for(message, what)
                    return answers
                answers.append(message)

    def dump(self, kind: int, payload: bytes, what: str) -> list[Message]:
        """List objects: the answers' messages, complete and consistent.

        Raises NetlinkError when the kernel refuses, DumpInterruptedError when what is listed changes all the time.
        """
        buffers = self.dump_buffers(kind, payload, what)
        return [message for buffer in buffers for message in answers_in(buffer)]

    def dump_buffers(self, kind: int, payload: bytes, what: str) -> list[bytes]:
        """List objects: the answers as received, for a caller that reads them faster than one by one."""
        for _ in range(DUMP_ATTEMPTS):
            with contextlib.suppress(DumpInterruptedError):
                return list(self.dump_once(kind, payload, what))
        raise DumpInterruptedError(f"{what}: it changed during each of {DUMP_ATTEMPTS} attempts")

    def dump_once(self, kind: int, payload: bytes, what: str) -> Generator[bytes, None, None]:
        """Yield the answers as they arrive, so that they need not all be there together; close it if it is not read to its end.

        Raises NetlinkError when the kernel refuses; DumpInterruptedError, at the end, when what is listed changed meanwhile: then
        nothing of it is good.
        """
        sequence = self.next_sequence()
        flags = MessageFlag.REQUEST | MessageFlag.DUMP
        self.send(netlink.message(kind, flags, sequence, payload), what)
        end, interrupted = None, False
        while end is None:
            buffer = self._awaited(what)
            end, own, broken = _survey(buffer, sequence)
            interrupted |= broken
            if own:
                try:
                    yield buffer
                except GeneratorExit:
                    # The kernel begins no other dump on this socket before the end of this one has been taken.
                    while end is None:
                        end, _, _ = _survey(self._awaited(what), sequence)
                    raise
        _raise_for(end, what)
        if interrupted:
            raise DumpInterruptedError(f"{what}: it changed meanwhile")

    def _awaited(self, what: str) -> bytes:
        buffer = self._receive()
        if buffer is None:
            poll = select.poll()
            poll.register(self, select.POLLIN)
            poll.poll(_ANSWER_TIMEOUT * 1000)
            buffer = self._receive()
        if buffer is None:
            raise netlink_error(what, errno.ETIMEDOUT)
        return buffer


def answers_in(buffer: bytes) -> Iterator[Message]:
    """Yield the messages of a buffer that are no control messages of netlink's own."""
    return (message for message in netlink.iter_messages(buffer) if message.type >= _FIRST_TYPE)


def _survey(buffer: bytes, sequence: int) -> tuple[Message | None, bool, bool]:
    """Of one buffer of a dump: its end if it is in there, whether it belongs to this dump, whether it is inconsistent.

    Only headers are read. What belongs to an earlier, abandoned request is not ours.
    """
    start, stop, seen = 0, len(buffer), 0
    end: Message | None = None
    own = False
    while start + netlink.HEADER.size <= stop:
        length, kind, flags, number, port = netlink.HEADER.unpack_from(buffer, start)
        if length < netlink.HEADER.size or start + length > stop:
            raise MalformedMessageError(f"message of type {kind} claims {length} bytes, {stop - start} are left")
        if number == sequence:
            own = True
            seen |= flags
            if kind in (ControlType.DONE, ControlType.ERROR):
                end = Message(kind, flags, number, port, buffer[start + netlink.HEADER.size : start + length])
        start += (length + 3) & ~3
    return end, own, bool(seen & MessageFlag.DUMP_INTR)


def _raise_for(answer: Message, what: str) -> None:
    told = netlink.acknowledgement(answer)
    if told.error:
        raise netlink_error(what, told.error, told.text)
