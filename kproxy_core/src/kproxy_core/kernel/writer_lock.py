"""One writer per network namespace: an abstract unix socket is the lock, and the line on which others talk to its holder.

Abstract names belong to a network namespace and vanish with their process, however it ends. Anybody in the namespace can
take or call such a name, so the holder answers only its own user and root, and says who it is.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import frozen

from kproxy_core.kernel import namespaces
from kproxy_core.kernel.closing import Closing
from kproxy_core.kernel.errors import KernelError
from kproxy_core.kernel.namespaces import Namespace

NAME: Final = "kproxy"
_CREDENTIALS: Final = struct.Struct("iII")
_CLIENTS: Final = 16
"""Connections at a time; a further one takes the place of the oldest, so that stalled ones do no harm."""
_REQUEST_LIMIT: Final = 4096
_ANSWER_LIMIT: Final = 1 << 20
_PAUSE: Final = 0.1
_EVENTS: Final = 64

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Takes a request (an object with a text "ask") and returns the answer, both fit for JSON."""


@frozen(kw_only=True)
class Peer:
    """A process at the other end; pid is 0 when it is in a pid namespace that we do not see."""

    pid: int
    uid: int

    @property
    def trusted(self) -> bool:
        """Whether it is root or our own user."""
        return self.uid in (0, os.geteuid())


class LockedError(KernelError):
    """Another process is the writer in this network namespace."""

    def __init__(self, holder: Peer | None) -> None:
        who = "a process that has just gone" if holder is None else f"process {holder.pid} of user {holder.uid}"
        super().__init__(f"{who} already programs this network namespace")
        self.holder = holder


class ControlError(KernelError):
    """The holder cannot be asked: there is none, it does not answer, or it is not to be trusted."""


class NoHolderError(ControlError):
    """Nobody is the writer in this network namespace."""


class WriterLock(Closing):
    """The lock, held from construction until close() or the end of the process, and the answering of requests.

    The owner's loop waits on fileno() and calls handle(); nothing here ever blocks.
    """

    def __init__(self, *, namespace: Namespace | None = None, name: str = NAME) -> None:
        """Take the lock; LockedError when another process has it."""
        self._listener = _socket(namespace)
        try:
            self._listener.bind(_address(name))
        except OSError as error:
            self._listener.close()
            if error.errno != errno.EADDRINUSE:
                raise KernelError(f"take the writer's lock: {error.strerror}") from error
            raise LockedError(holder(namespace=namespace, name=name)) from error
        self._listener.setblocking(False)
        self._listener.listen(_CLIENTS)
        self._clients: dict[int, _Client] = {}
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)

    def fileno(self) -> int:
        """Readable when handle() has something to do."""
        return self._epoll.fileno()

    def close(self) -> None:
        """Release the lock and hang up."""
        for client in self._clients.values():
            client.socket.close()
        self._clients = {}
        self._epoll.close()
        self._listener.close()

    def handle(self, answer: Answer) -> None:
        """Accept, read, answer and send whatever can be done now.

        What is no request gets an error and is hung up on, as are strangers. Exceptions of `answer` come through.
        """
        for descriptor, _ in self._epoll.poll(0, _EVENTS):
            client = self._clients.get(descriptor)
            if client is None:
                self._accept()
                continue
            open_still = client.progress(answer)
            if not open_still:
                self._drop(descriptor)
            else:
                self._epoll.modify(descriptor, select.EPOLLOUT if client.busy else select.EPOLLIN)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        connection.setblocking(False)
        if not _peer(connection).trusted:
            connection.close()
            return
        if len(self._clients) >= _CLIENTS:
            self._drop(next(iter(self._clients)))
        self._clients[connection.fileno()] = _Client(connection)
        self._epoll.register(connection, select.EPOLLIN)

    def _drop(self, descriptor: int) -> None:
        client = self._clients.pop(descriptor)
        self._epoll.unregister(descriptor)
        client.socket.close()


class _Client:
    """One connection to the holder: lines in, lines out, one answer at a time, both bounded."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._inbox = b""
        self._outbox = b""
        self._ending = False

    @property
    def busy(self) -> bool:
        """Whether it goes on without anything more being received."""
        return bool(self._outbox) or b"\n" in self._inbox

    def progress(self, answer: Answer) -> bool:
        """Do one step of what can be done without waiting; returns whether the connection goes on."""
        try:
            if not self.busy and not self._receive():
                return False
            if not self._outbox:
                self._respond(answer)
            if self._outbox:
                self._outbox = self._outbox[self.socket.send(self._outbox) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return bool(self._outbox) or not self._ending

    def _receive(self) -> bool:
        received = self.socket.recv(_REQUEST_LIMIT)
        self._inbox += received
        return bool(received)

    def _respond(self, answer: Answer) -> None:
        line, end, rest = self._inbox.partition(b"\n")
        if len(line) > _REQUEST_LIMIT:
            self._refuse(f"a request has at most {_REQUEST_LIMIT} bytes")
        elif end:
            self._inbox = rest
            request = _parse(line)
            if request is None:
                self._refuse('a request is one line of JSON such as {"ask": "status"}')
            else:
                self._outbox = json.dumps(answer(request)).encode() + b"\n"

    def _refuse(self, reason: str) -> None:
        self._outbox = json.dumps({"error": reason}).encode() + b"\n"
        self._ending = True


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return request if isinstance(request, dict) and isinstance(request.get("ask"), str) else None


def holder(*, namespace: Namespace | None = None, name: str = NAME) -> Peer | None:
    """Who is the writer in this network namespace; None when nobody is.

    pid 0 and uid -1 when it has not taken calls for so long that it cannot even be identified.
    """
    with _socket(namespace) as connection:
        try:
            _connect(connection, name)
        except NoHolderError:
            return None
        except ControlError:
            return Peer(pid=0, uid=-1)
        return _peer(connection)


def wait_until_free(*, timeout: float | None = None, namespace: Namespace | None = None, name: str = NAME) -> bool:
    """Wait until there seems to be no holder (another may be quicker to take the lock), at most `timeout` seconds.

    Returns whether it came to that. It sleeps on a connection to the holder, which ends when the holder does.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        with _socket(namespace) as connection:
            try:
                _connect(connection, name)
                _hung_up(connection, deadline)
            except NoHolderError:
                return True
            except ControlError:
                pass
        if _left(deadline) == 0:
            return holder(namespace=namespace, name=name) is None
        # Either the holder is gone, or it has no room for us: then do not rush it.
        time.sleep(_PAUSE)


def ask(
    request: Mapping[str, Any], *, timeout: float = 5.0, namespace: Namespace | None = None, name: str = NAME
) -> dict[str, Any]:
    """Send the holder a request and return its answer, within `timeout` seconds.

    Raises NoHolderError when there is none, ControlError when it is of another user (not root), or does not answer properly.
    """
    deadline = time.monotonic() + timeout
    with _socket(namespace) as connection:
        _connect(connection, name)
        peer = _peer(connection)
        if not peer.trusted:
            raise ControlError(f"process {peer.pid} of user {peer.uid} holds the lock, which is not kproxy's user")
        try:
            connection.settimeout(timeout)
            connection.sendall(json.dumps(request).encode() + b"\n")
            line = _line(connection, deadline)
            answer = json.loads(line)
        except (OSError, ValueError) as error:
            raise ControlError(f"process {peer.pid}, which holds the lock, does not answer: {error}") from error
    if not isinstance(answer, dict):
        raise ControlError(f"process {peer.pid}, which holds the lock, answers with something else than an object")
    return answer


def _line(connection: socket.socket, deadline: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size <= _ANSWER_LIMIT:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        received = connection.recv(1 << 16)
        if not received:
            raise ConnectionError("it hung up")
        head, end, _ = received.partition(b"\n")
        parts.append(head)
        if end:
            return b"".join(parts)
        size += len(head)
    raise ConnectionError(f"more than {_ANSWER_LIMIT} bytes")


def _hung_up(connection: socket.socket, deadline: float | None) -> None:
    """Wait until the other end hangs up, or the deadline."""
    poll = select.poll()
    poll.register(connection, select.POLLIN | select.POLLHUP)
    while True:
        left = _left(deadline)
        if not poll.poll(None if left is None else left * 1000):
            return
        try:
            if not connection.recv(_REQUEST_LIMIT):
                return
        except BlockingIOError:
            continue
        except OSError:
            return


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _connect(connection: socket.socket, name: str) -> None:
    """Connect without waiting (and leave the socket non-blocking)."""
    connection.setblocking(False)
    try:
        connection.connect(_address(name))
    except BlockingIOError as error:
        raise ControlError("the process that programs this network namespace takes no more calls") from error
    except ConnectionRefusedError as error:
        raise NoHolderError("no kproxy programs this network namespace") from error
    except OSError as error:
        raise ControlError(f"call the process that programs this network namespace: {error.strerror}") from error


def _socket(namespace: Namespace | None) -> socket.socket:
    with namespaces.entered(namespace):
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)


def _address(name: str) -> bytes:
    return b"\0" + name.encode()


def _peer(connection: socket.socket) -> Peer:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(pid=pid, uid=uid)
