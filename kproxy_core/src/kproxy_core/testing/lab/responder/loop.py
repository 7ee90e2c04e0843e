"""One epoll loop that answers for every server of a lab, on sockets that were made inside the lab's namespaces.

A socket belongs to the namespace it was made in, whoever holds it: the lab makes listening sockets in its pods and sends them
here over a Unix socket, one JSON request and its descriptors per message. The process ends with that socket: with the lab.
"""

import contextlib
import heapq
import json
import resource
import select
import signal
import socket
import time
from typing import Any

from .connections import Connection, Listener
from .datagrams import DatagramServer, SctpServer

_BATCH = 128  # events, accepts and datagrams handled in one go before others get their turn
_MESSAGE = 1 << 20
_DESCRIPTORS = 250  # SCM_MAX_FD is 253

Request = dict[str, Any]
Served = Listener | Connection | DatagramServer | SctpServer


class Loop:
    """The servers and their connections. Every handler is called with the loop when its descriptor is ready."""

    def __init__(self, control: socket.socket) -> None:
        self.epoll = select.epoll()
        self._control = control
        self._ready: dict[int, Served] = {}
        self._servers: dict[int, Listener | DatagramServer | SctpServer] = {}
        self._due: list[tuple[float, int, Any]] = []
        self._sequence = 0
        self.epoll.register(control.fileno(), select.EPOLLIN)

    def watch(self, served: Served, events: int) -> None:
        """Call ``served.ready`` when its descriptor is."""
        descriptor = served.fileno()
        if descriptor in self._ready:
            self.epoll.modify(descriptor, events)
        else:
            self.epoll.register(descriptor, events)
            self._ready[descriptor] = served

    def forget(self, served: Served) -> None:
        """Stop watching; to be called before the descriptor is closed."""
        descriptor = served.fileno()
        if self._ready.pop(descriptor, None) is not None:
            self.epoll.unregister(descriptor)

    def later(self, delay: float, action: Any) -> None:
        """Call ``action()`` after ``delay`` seconds, or at once for 0."""
        if delay <= 0:
            action()
            return
        self._sequence += 1
        heapq.heappush(self._due, (time.monotonic() + delay, self._sequence, action))

    def run(self) -> None:
        """Serve until the control socket ends."""
        while True:
            for descriptor, events in self.epoll.poll(self._patience(), _BATCH):
                if descriptor == self._control.fileno():
                    if not self._obey():
                        return
                elif served := self._ready.get(descriptor):
                    served.ready(self, events)
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[2]()

    def _patience(self) -> float:
        return max(0.0, self._due[0][0] - time.monotonic()) if self._due else -1

    def _obey(self) -> bool:
        message, descriptors, _flags, _address = socket.recv_fds(self._control, _MESSAGE, _DESCRIPTORS)
        if not message:
            return False
        request: Request = json.loads(message)
        reply = getattr(self, f"_do_{request['do']}")(request, descriptors)
        self._control.send(json.dumps(reply).encode())
        return True

    def _do_listen(self, request: Request, descriptors: list[int]) -> dict[str, Any]:
        kinds: dict[str, type[Listener] | type[DatagramServer]] = {"TCP": Listener, "UDP": DatagramServer, "SCTP": SctpServer}
        for descriptor, server in zip(descriptors, request["servers"], strict=True):
            served = kinds[server["protocol"]](socket.socket(fileno=descriptor), server)
            self._servers[server["id"]] = served
            self.watch(served, select.EPOLLIN)
        return {}

    def _do_stop(self, request: Request, _descriptors: list[int]) -> dict[str, Any]:
        for identity in request["ids"]:
            self._servers[identity].stop(self, request["connections"])
        return {}

    def _do_count(self, request: Request, _descriptors: list[int]) -> dict[str, Any]:
        servers = [self._servers[identity] for identity in request["ids"]]
        return {"served": sum(server.served for server in servers), "open": sum(len(server.connections) for server in servers)}


def _be_out_of_the_way() -> None:
    # Ctrl-C is for the lab's owner, who then closes the control socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def serve(control_descriptor: int) -> None:
    """Be the server process until the other end of the control socket is closed."""
    _be_out_of_the_way()
    with socket.socket(fileno=control_descriptor) as control, contextlib.suppress(ConnectionResetError):
        Loop(control).run()
