"""A small HTTP server for many addresses: one thread accepts for all, and each request gets a thread for its short life."""

import contextlib
import http.server
import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, cast

from attrs import field, frozen

from kproxy_core.model.addresses import Address, Family
from kproxy_core.runtime.logs import LOGGER

log = logging.getLogger(LOGGER)

PATIENCE: Final = 10.0
"""Seconds that a client may take over a request."""
MOST_CLIENTS: Final = 64
"""Clients served at once; further ones wait in the sockets' queues."""


@frozen(kw_only=True, order=True, cache_hash=True)
class ListenAddress:
    """Where to listen. ``::`` takes IPv4 clients, too, where the kernel lets it."""

    address: Address
    port: int

    def __str__(self) -> str:
        host = f"[{self.address}]" if self.address.family is Family.IPV6 else str(self.address)
        return f"{host}:{self.port}"


@frozen(kw_only=True)
class Request:
    """A request: method and path, without the query."""

    method: str
    path: str


@frozen(kw_only=True)
class Response:
    """An answer."""

    status: HTTPStatus = HTTPStatus.OK
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(factory=dict)


Answer = Callable[[Request], Response]


class HttpListeners:
    """Listens where it is told to, and answers. ``serve`` and ``close`` are for one thread."""

    def __init__(self) -> None:
        self._answers: dict[ListenAddress, Answer] = {}
        self._sockets: dict[ListenAddress, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(MOST_CLIENTS)
        self._awake, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._awake, selectors.EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(target=self._accept_all, name="http", daemon=True)
        self._thread.start()

    def serve(self, wanted: Mapping[ListenAddress, Answer]) -> dict[ListenAddress, str]:
        """Listen at these addresses and no others; return why for each that cannot be had. To try again, call it again."""
        failures: dict[ListenAddress, str] = {}
        for gone in self._sockets.keys() - wanted.keys():
            self._drop(gone)
        for where, answer in wanted.items():
            self._answers[where] = answer
            if where not in self._sockets:
                try:
                    self._listen(where)
                except OSError as error:
                    failures[where] = error.strerror or str(error)
        self._notify()
        return failures

    def close(self) -> None:
        """Stop listening; requests that are being answered go on."""
        self._closing = True
        self._notify()
        self._thread.join()
        for where in list(self._sockets):
            self._drop(where)
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
            listener.listen(128)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        with self._lock:
            self._sockets[where] = listener
            self._selector.register(listener, selectors.EVENT_READ, where)

    def _drop(self, where: ListenAddress) -> None:
        with self._lock:
            listener = self._sockets.pop(where)
            self._selector.unregister(listener)
        self._answers.pop(where, None)
        listener.close()

    def _notify(self) -> None:
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes, too
            os.write(self._wake, b"\0")

    def _accept_all(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                if key.data is None:
                    os.read(self._awake, 4096)
                else:
                    self._accept(key.fileobj, key.data)

    def _accept(self, listener: Any, where: ListenAddress) -> None:
        self._room.acquire()
        try:
            connection, client = listener.accept()
        except OSError:  # the client has gone, or the listener has
            self._room.release()
            return
        threading.Thread(target=self._handle, args=(connection, client, where), name=f"http {where}", daemon=True).start()

    def _handle(self, connection: socket.socket, client: Any, where: ListenAddress) -> None:
        try:
            connection.settimeout(PATIENCE)
            answer = self._answers.get(where)
            if answer is not None:
                _Handler(connection, client, cast("Any", _Holder(answer)))
        except OSError as error:
            log.debug("a client of %s went away: %s", where, error)
        finally:
            connection.close()
            self._room.release()


@frozen
class _Holder:
    """What http.server's handlers call their server."""

    answer: Answer


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection, one request."""

    server_version = "kproxy"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer, whatever the path."""
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self._respond(with_body=False)

    def _respond(self, *, with_body: bool) -> None:
        holder: Any = self.server
        try:
            response = holder.answer(Request(method=self.command, path=self.path.partition("?")[0]))
        except Exception:
            log.exception("a request for %s could not be answered", self.path)
            response = Response(status=HTTPStatus.INTERNAL_SERVER_ERROR, body=b"an error, see the log\n")
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(response.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Log requests for debugging only."""
        log.debug(format, *args)
