"""A small HTTP server for many addresses in one thread: slow, silent and garbled clients cost nobody else anything."""

import contextlib
import errno
import logging
import math
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from attrs import define, frozen

from kproxy_core.model.addresses import Address, Family
from kproxy_core.runtime.http_messages import BadRequestError, Request, Response, encode_response, parse_request
from kproxy_core.runtime.logs import LOGGER

log = logging.getLogger(LOGGER)

PATIENCE: Final = 10.0
"""Seconds from a client's connection to its end; none may take longer."""
MOST_CLIENTS: Final = 256
"""Clients at once; when there are more, the one that has been there longest has to go."""
BACKLOG: Final = 128
_PIECE: Final = 65536
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_STALL: Final = 0.1
"""Seconds to wait when there are no descriptors left and no client of ours could give one back."""
_LINGER: Final = 1.0
"""Seconds for which a client that was answered may go on sending: a reset would take its answer away."""


@frozen(kw_only=True, order=True, cache_hash=True)
class ListenAddress:
    """Where to listen. ``::`` takes IPv4 clients, too, where the kernel lets it."""

    address: Address
    port: int

    def __str__(self) -> str:
        host = f"[{self.address}]" if self.address.family is Family.IPV6 else str(self.address)
        return f"{host}:{self.port}"


Answer = Callable[[Request], Response]


@frozen(kw_only=True)
class _Listener:
    """A listening socket and what answers there."""

    socket: socket.socket
    where: ListenAddress


@define(kw_only=True, eq=False)
class _Client:
    """A connection: what it has sent, what is still to be sent to it, and when it ends at the latest (monotonic)."""

    socket: socket.socket
    where: ListenAddress
    deadline: float
    received: bytes = b""
    unsent: memoryview | None = None
    answered: bool = False
    finished: bool = False


class HttpListeners:
    """Listens where it is told to, and answers, in a thread of its own. ``serve`` and ``close`` are for one thread."""

    def __init__(self) -> None:
        self._answers: dict[ListenAddress, Answer] = {}
        self._listeners: dict[ListenAddress, _Listener] = {}
        self._clients: dict[_Client, None] = {}
        self._selector = selectors.DefaultSelector()
        # Held while sockets are opened, served or closed, never while waiting.
        self._lock = threading.Lock()
        self._awake, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._awake, selectors.EVENT_READ)
        self._closing = False
        self._stalled = False
        self._thread = threading.Thread(target=self._serve_all, name="http", daemon=True)
        self._thread.start()

    @property
    def clients(self) -> int:
        """How many connections there are."""
        return len(self._clients)

    def serve(self, wanted: Mapping[ListenAddress, Answer]) -> dict[ListenAddress, str]:
        """Listen at these addresses and no others; return why for each that cannot be had. To try again, call it again."""
        failures: dict[ListenAddress, str] = {}
        with self._lock:
            self._answers = dict(wanted)
            for gone in self._listeners.keys() - wanted.keys():
                self._drop(gone)
            for where in wanted:
                if where not in self._listeners:
                    try:
                        self._listen(where)
                    except OSError as error:
                        failures[where] = error.strerror or str(error)
        return failures

    def close(self) -> None:
        """Stop listening, and end all connections."""
        self._closing = True
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes, too
            os.write(self._wake, b"\0")
        self._thread.join()
        for where in list(self._listeners):
            self._drop(where)
        for client in list(self._clients):
            self._end(client)
        self._selector.close()
        os.close(self._awake)
        os.close(self._wake)

    def _listen(self, where: ListenAddress) -> None:
        listener = socket.socket(socket.AddressFamily(where.address.family), socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if where.address.family is Family.IPV6:
                # Only the unspecified address can stand for both families.
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(any(where.address)))
            listener.bind((str(where.address), where.port))
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        self._listeners[where] = _Listener(socket=listener, where=where)
        self._selector.register(listener, selectors.EVENT_READ, self._listeners[where])

    def _drop(self, where: ListenAddress) -> None:
        listener = self._listeners.pop(where)
        self._selector.unregister(listener.socket)
        listener.socket.close()

    # -- in the thread

    def _serve_all(self) -> None:
        while not self._closing:
            first = min((client.deadline for client in self._clients), default=math.inf)
            ready = self._selector.select(None if math.isinf(first) else max(0.0, first - time.monotonic()))
            with self._lock:
                for key, events in ready:
                    self._attend(key.data, events)
                self._end_late_ones(time.monotonic())
            if self._stalled:
                self._stalled = False
                time.sleep(_STALL)

    def _attend(self, what: "_Listener | _Client | None", events: int) -> None:
        if isinstance(what, _Listener):
            if what.where in self._listeners:
                self._accept(what)
        elif isinstance(what, _Client):
            if what in self._clients:
                self._go_on(what, events)
        else:
            with contextlib.suppress(BlockingIOError):
                os.read(self._awake, _PIECE)

    def _accept(self, listener: _Listener) -> None:
        try:
            connection, _ = listener.socket.accept()
        except OSError as error:
            if error.errno in _NO_DESCRIPTORS:
                # The connection stays in the queue, and the socket ready, until there is room.
                self._stalled = not self._clients
                if self._clients:
                    self._end(next(iter(self._clients)))
            return
        connection.setblocking(False)
        while len(self._clients) >= MOST_CLIENTS:
            self._end(next(iter(self._clients)))
        client = _Client(socket=connection, where=listener.where, deadline=time.monotonic() + PATIENCE)
        self._clients[client] = None
        self._selector.register(connection, selectors.EVENT_READ, client)
        # What it asks has mostly arrived with the connection.
        self._go_on(client, selectors.EVENT_READ)

    def _go_on(self, client: _Client, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                self._receive(client)
            if client.unsent is not None and client in self._clients:
                self._send(client)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            log.debug("a client of %s went away: %s", client.where, error)
            self._end(client)

    def _receive(self, client: _Client) -> None:
        data = client.socket.recv(_PIECE)
        if not data:
            # It may have closed its side only, and still wait for the answer.
            client.finished = True
            if client.unsent is None:
                self._end(client)
            return
        if client.answered:
            return
        client.received += data
        try:
            request = parse_request(client.received)
        except BadRequestError as error:
            self._answer(client, encode_response(Response(status=error.status, body=error.status.phrase.encode() + b"\n")))
            return
        if request is not None:
            response = self._response(client.where, request)
            self._answer(client, encode_response(response, with_body=request.method != "HEAD"))

    def _response(self, where: ListenAddress, request: Request) -> Response:
        answer = self._answers.get(where)
        if answer is None:
            return Response(status=HTTPStatus.NOT_FOUND)
        try:
            return answer(request)
        except Exception:
            log.exception("a request for %s could not be answered", request.path)
            return Response(status=HTTPStatus.INTERNAL_SERVER_ERROR, body=b"an error, see the log\n")

    def _answer(self, client: _Client, data: bytes) -> None:
        client.answered = True
        client.received = b""
        client.unsent = memoryview(data)

    def _send(self, client: _Client) -> None:
        assert client.unsent is not None
        client.unsent = client.unsent[client.socket.send(client.unsent) :]
        if client.unsent:
            both = selectors.EVENT_READ | selectors.EVENT_WRITE
            self._selector.modify(client.socket, selectors.EVENT_WRITE if client.finished else both, client)
            return
        client.unsent = None
        if client.finished:
            self._end(client)
            return
        client.socket.shutdown(socket.SHUT_WR)
        self._selector.modify(client.socket, selectors.EVENT_READ, client)
        client.deadline = min(client.deadline, time.monotonic() + _LINGER)

    def _end_late_ones(self, now: float) -> None:
        for client in [client for client in self._clients if client.deadline <= now]:
            self._end(client)

    def _end(self, client: _Client) -> None:
        if self._clients.pop(client, self) is None:
            self._selector.unregister(client.socket)
            client.socket.close()
