"""The connections of one pool, so that another thread can end whatever is being waited for on them."""

import contextlib
import socket
import threading
import weakref
from typing import Any

import urllib3
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from kproxy_core.sources.kubernetes.errors import InterruptedRequestError


class OpenSockets:
    """The sockets of a pool. Once interrupted, it stays so: connections that are made later are refused too."""

    def __init__(self) -> None:
        self._sockets: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self.interrupted = False

    def add(self, sock: Any, how: int = socket.SHUT_RDWR) -> None:
        """Take in a new connection's socket, and how to shut it down. Raises InterruptedRequestError when it comes too late."""
        with self._lock:
            if self.interrupted:
                raise InterruptedRequestError("the connection is not wanted any more")
            self._sockets[sock] = how

    def discard(self, sock: Any) -> None:
        """Take a socket out again."""
        with self._lock:
            self._sockets.pop(sock, None)

    def interrupt(self) -> None:
        """Shut all of them down: reads and writes on them end at once."""
        with self._lock:
            self.interrupted = True
            for sock, how in list(self._sockets.items()):
                # The plain method: SSLSocket's own would pull the session from under the thread that reads. Within a TLS
                # connection to a proxy the socket is one level deeper.
                plain = sock if isinstance(sock, socket.socket) else getattr(sock, "socket", None)
                if isinstance(plain, socket.socket):
                    with contextlib.suppress(OSError):
                        socket.socket.shutdown(plain, how)

    def __len__(self) -> int:
        with self._lock:
            return sum(sock.fileno() >= 0 for sock in self._sockets)


def track(manager: urllib3.PoolManager, sockets: OpenSockets) -> None:
    """Have every connection that ``manager`` makes from now on taken into ``sockets``."""
    manager.pool_classes_by_scheme = {
        "http": _tracked(HTTPConnectionPool, sockets),
        "https": _tracked(HTTPSConnectionPool, sockets),
    }


def _tracked(pool: type[HTTPConnectionPool], sockets: OpenSockets) -> type[HTTPConnectionPool]:
    base: Any = pool.ConnectionCls

    class Connection(base):  # type: ignore[misc]
        _second: socket.socket | None = None

        def _new_conn(self) -> socket.socket:
            # By a second descriptor it can be shut down even while TLS has taken the first away for its handshake; for reading
            # only, since Python's ssl loses track of a socket that is not connected any more when the handshake begins.
            made: socket.socket = super()._new_conn()
            self._second = made.dup()
            try:
                sockets.add(self._second, socket.SHUT_RD)
            except InterruptedRequestError:
                made.close()
                raise
            return made

        def connect(self) -> None:
            try:
                super().connect()
                sockets.add(self.sock)
            except InterruptedRequestError:
                self.close()
                raise
            finally:
                second, self._second = self._second, None
                if second is not None:
                    sockets.discard(second)
                    second.close()

    return type(pool.__name__, (pool,), {"ConnectionCls": Connection})
