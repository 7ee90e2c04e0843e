"""TCP servers: greet with who answers and whom it saw, then answer every line, or misbehave as told."""

import contextlib
import json
import select
import socket
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .loop import Loop

_BATCH = 128
_LONGEST_LINE = 1 << 16


def _reset_on_close(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Listener:
    """A listening socket and the connections that came through it."""

    def __init__(self, listening: socket.socket, description: dict[str, Any]) -> None:
        listening.setblocking(False)
        self._listening = listening
        self.name: str = description["name"]
        self.behaviour: str = description["behaviour"]
        self.delay: float = description["delay"]
        self.port: int = listening.getsockname()[1]
        self.connections: set[Connection] = set()
        self.served = 0

    def fileno(self) -> int:
        """The descriptor to watch."""
        return self._listening.fileno()

    def ready(self, loop: "Loop", _events: int) -> None:
        """Accept what waits."""
        for _ in range(_BATCH):
            try:
                accepted, address = self._listening.accept()
            except OSError:  # nothing left, or a client that went away meanwhile; a full table of descriptors is tried again
                return
            self.served += 1
            if self.behaviour == "reset":
                _reset_on_close(accepted)
                accepted.close()
                continue
            connection = Connection(accepted, address, self)
            self.connections.add(connection)
            connection.start(loop)

    def stop(self, loop: "Loop", connections: str) -> None:
        """Listen no more; ``connections`` are kept, closed or reset. May be called again."""
        if self.fileno() >= 0:
            loop.forget(self)
            self._listening.close()
        if connections != "keep":
            for connection in tuple(self.connections):
                connection.end(loop, reset=connections == "reset")


class Connection:
    """One accepted connection: a greeting, then one answer per line received."""

    def __init__(self, accepted: socket.socket, client: tuple[Any, ...], listener: Listener) -> None:
        accepted.setblocking(False)
        self._socket = accepted
        self._listener = listener
        local = accepted.getsockname()
        self._facts = {
            "server": listener.name,
            "port": listener.port,
            "protocol": "TCP",
            "client": client[0],
            "client_port": client[1],
            "local": local[0],
        }
        self._lines = 0
        self._received = b""
        self._unsent = b""
        self._closing = False

    def fileno(self) -> int:
        """The descriptor to watch."""
        return self._socket.fileno()

    def start(self, loop: "Loop") -> None:
        """Greet, unless told to stay silent, and wait for lines."""
        loop.watch(self, select.EPOLLIN)
        loop.later(self._listener.delay, lambda: self._greet(loop))

    def _greet(self, loop: "Loop") -> None:
        self._answer(loop, "")
        if self._listener.behaviour == "close":
            self._finish(loop)

    def _answer(self, loop: "Loop", said: str) -> None:
        if self._listener.behaviour != "silent":
            line = json.dumps({**self._facts, "line": self._lines, "said": said})
            self._send(loop, line.encode() + b"\n")

    def _send(self, loop: "Loop", data: bytes) -> None:
        if self.fileno() < 0:
            return
        self._unsent += data
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.end(loop, reset=False)
            return
        self._unsent = self._unsent[sent:]
        loop.watch(self, select.EPOLLIN | (select.EPOLLOUT if self._unsent else 0))
        if self._closing and not self._unsent:
            self.end(loop, reset=False)

    def _finish(self, loop: "Loop") -> None:
        self._closing = True
        self._send(loop, b"")

    def ready(self, loop: "Loop", events: int) -> None:
        """Read lines, send what could not be sent."""
        if events & select.EPOLLOUT and self._unsent:
            self._send(loop, b"")
        if events & ~select.EPOLLOUT and self.fileno() >= 0:
            self._receive(loop)

    def _receive(self, loop: "Loop") -> None:
        try:
            data = self._socket.recv(_LONGEST_LINE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end(loop, reset=False)
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._lines += 1
            said = line.decode(errors="replace").rstrip("\r")
            loop.later(self._listener.delay, lambda said=said: self._answer(loop, said))
        if len(self._received) > _LONGEST_LINE:
            self.end(loop, reset=True)

    def end(self, loop: "Loop", *, reset: bool) -> None:
        """Close, with RST when ``reset``. May be called again."""
        if self.fileno() < 0:
            return
        loop.forget(self)
        self._listener.connections.discard(self)
        if reset:
            with contextlib.suppress(OSError):
                _reset_on_close(self._socket)
        self._socket.close()
