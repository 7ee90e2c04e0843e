"""A forward proxy for tests of HTTPS_PROXY: the CONNECT method, and a list of what was asked for."""

import contextlib
import select
import socket
import socketserver
import threading
from types import TracebackType
from typing import Self

READ_SIZE = 65536
LONGEST_HEAD = 65536


class _Tunnel(socketserver.BaseRequestHandler):
    server: "_Server"

    def handle(self) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = self.request.recv(READ_SIZE)
            if not piece or len(head) > LONGEST_HEAD:
                return
            head += piece
        method, authority, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        self.server.asked.append(authority)
        if method != "CONNECT":
            self.request.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            return
        host, _, port = authority.rpartition(":")
        with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), timeout=10) as upstream:
            upstream.settimeout(None)
            self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            _relay(self.request, upstream)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _Tunnel)


class ConnectProxy:
    """A proxy on 127.0.0.1, as a context manager; ``asked`` are the ``host:port`` it was asked to connect to."""

    def __init__(self) -> None:
        self._server = _Server()
        self.asked = self._server.asked

    @property
    def url(self) -> str:
        """What belongs into HTTPS_PROXY."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), name="connect-proxy", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


def _relay(one: socket.socket, other: socket.socket) -> None:
    peers = {one: other, other: one}
    while True:
        readable, _, _ = select.select(list(peers), [], [])
        for end in readable:
            data = end.recv(READ_SIZE)
            if not data:
                return
            peers[end].sendall(data)
