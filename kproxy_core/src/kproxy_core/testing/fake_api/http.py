"""HTTP/1.1 and TLS of the fake API server: a thread a connection, chunked responses, connections broken on demand."""

import contextlib
import http.server
import select
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from attrs import field, frozen

from kproxy_core.testing.fake_api.faults import Faults
from kproxy_core.testing.fake_api.streams import Writer

NO_LINGER = struct.pack("ii", 1, 0)
"""SO_LINGER with a time of zero: closing sends a reset."""

BACKLOG = 128


@frozen(kw_only=True)
class HttpRequest:
    """A request as it came in.

    The names of ``headers`` are in lower case. ``certificate`` is the client certificate as ssl tells it, or empty.
    """

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes
    certificate: Mapping[str, Any]


@frozen(kw_only=True)
class HttpAnswer:
    """An answer: a body, or a ``stream`` that writes chunks until it returns."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(factory=dict)
    stream: Callable[[Writer], None] | None = None


class BrokenStreamError(Exception):
    """The connection was broken on purpose; nothing more can be sent on it."""


class ChunkWriter:
    """Writes one chunked response."""

    def __init__(self, connection: socket.socket, faults: Faults) -> None:
        self._connection = connection
        self._faults = faults

    def chunk(self, data: bytes) -> None:
        """Send data as one chunk, or as several when the faults say so."""
        step = self._faults.chunk_size or len(data)
        for start in range(0, len(data), max(1, step)):
            self._faults.wait()
            piece = data[start : start + step]
            self._connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))

    def part_of_chunk(self, data: bytes) -> None:
        """Announce a chunk and send only the first half of it."""
        self._faults.wait()
        self._connection.sendall(b"%x\r\n%b" % (len(data), data[: len(data) // 2]))

    def end(self) -> None:
        """End the response as HTTP wants it."""
        self._faults.wait()
        self._connection.sendall(b"0\r\n\r\n")

    def close(self, *, reset: bool = False) -> None:
        """Close the connection without ending the response; with a reset instead of a FIN when asked. Raises to say so."""
        if reset:
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        raise BrokenStreamError

    def check(self) -> None:
        """Raise when the client has closed the connection: it has nothing to send while it watches, not even in TLS."""
        if select.select([self._connection], [], [], 0)[0]:
            raise BrokenStreamError


class Handler(http.server.BaseHTTPRequestHandler):
    """Reads requests of one connection and writes what the server's ``answer`` returns."""

    protocol_version = "HTTP/1.1"
    server_version = "fake-kube-apiserver"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: "HttpServer"

    def _serve(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        request = HttpRequest(
            method=self.command,
            path=url.path,
            query=dict(parse_qsl(url.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(length) if length else b"",
            certificate=self._peer_certificate(),
        )
        self.server.faults.wait()
        answer = self.server.answer(request)
        self.send_response(answer.status)
        self.send_header("Cache-Control", "no-cache, private")
        self.send_header("Content-Type", answer.content_type)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.stream is None:
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
            self.wfile.flush()
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        answer.stream(ChunkWriter(self.connection, self.server.faults))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - the names that http.server looks for

    def handle(self) -> None:
        """Serve the connection until either side has enough of it."""
        with contextlib.suppress(BrokenStreamError, OSError, ValueError):
            super().handle()

    def finish(self) -> None:
        """Flush what is left; the client may be gone."""
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's signature
        """Log nothing: the server keeps its own log of requests."""

    def _peer_certificate(self) -> Mapping[str, Any]:
        if isinstance(self.connection, ssl.SSLSocket):
            return self.connection.getpeercert() or {}
        return {}


class HttpServer(socketserver.ThreadingTCPServer):
    """Accepts connections and keeps track of them, so that they can be broken from outside.

    ``context`` may be replaced at any time and holds for new connections; None serves plain HTTP.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = BACKLOG

    def __init__(self, address: tuple[str, int], answer: Callable[[HttpRequest], HttpAnswer], faults: Faults) -> None:
        self.answer = answer
        self.faults = faults
        self.context: ssl.SSLContext | None = None
        self.accepted = 0
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, Handler)

    @property
    def port(self) -> int:
        """The TCP port."""
        return int(self.server_address[1])

    @property
    def open_connections(self) -> int:
        """How many connections clients hold at present."""
        with self._open_lock:
            return len(self._open)

    def break_connections(self) -> None:
        """Break all connections at once, as when the server's process is killed."""
        with self._open_lock:
            for connection in self._open:
                # Not the method of SSLSocket, which would also pull the session from under the connection's own thread.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection in its thread; the TLS handshake is part of it, so that none can hold up another."""
        with self._open_lock:
            self._open.add(request)
            self.accepted += 1
        connection = request
        try:
            self.faults.wait()
            if self.context is not None:
                connection = self._encrypted(request)
            self.finish_request(connection, client_address)
        except (OSError, ssl.SSLError, ValueError):
            pass  # the client gave up, or did not like the certificate
        finally:
            with self._open_lock:
                self._open.discard(request)
                self._open.discard(connection)
            connection.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing that a client does is an error of the server."""

    def _encrypted(self, request: socket.socket) -> socket.socket:
        assert self.context is not None
        connection = self.context.wrap_socket(request, server_side=True)
        with self._open_lock:
            self._open.discard(request)
            self._open.add(connection)
        return connection
