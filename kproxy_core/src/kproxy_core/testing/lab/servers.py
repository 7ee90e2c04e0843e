"""The lab's end of its server process: makes sockets in the pods and hands them over."""

import contextlib
import enum
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attrs import field, frozen

from kproxy_core.model.names import Protocol
from kproxy_core.testing.lab.faults import LabError
from kproxy_core.testing.lab.host import Host
from kproxy_core.testing.lab.responder.sctp import IPPROTO_SCTP

_START = "import sys, runpy; sys.path.append(sys.argv.pop(1)); runpy.run_module('responder', run_name='__main__')"
_BACKLOG = 4096
_DESCRIPTORS = 200
_MESSAGE = 1 << 20


class Behaviour(enum.Enum):
    """What a server does with a client."""

    ANSWER = "answer"
    """Greet, answer every line (TCP) or datagram."""
    CLOSE = "close"
    """TCP: greet and close."""
    RESET = "reset"
    """TCP: reset the connection as soon as it is accepted."""
    SILENT = "silent"
    """Take everything, say nothing."""


class Connections(enum.Enum):
    """What becomes of established connections when a server stops listening."""

    KEEP = "keep"
    CLOSE = "close"
    RESET = "reset"


@frozen(kw_only=True)
class ServerPlan:
    """What a server does. ``name`` is what it calls itself (by default its host's name).

    ``delay`` is how many seconds (0 to 60) it takes to answer. ``address`` restricts it to one address of its host; by default it
    listens on all, in both families.
    """

    ports: tuple[int, ...] = (8080,)
    protocols: tuple[Protocol, ...] = (Protocol.TCP, Protocol.UDP)
    name: str = ""
    behaviour: Behaviour = Behaviour.ANSWER
    delay: float = field(default=0.0)
    address: str | None = None

    @delay.validator
    def _check_delay(self, _attribute: object, value: float) -> None:
        if not 0 <= value <= 60:
            raise ValueError(f"delay is {value} s, not from 0 to 60")


@frozen(kw_only=True)
class Served:
    """Counts of a server: connections accepted and datagrams answered so far, and connections that are open."""

    total: int
    open: int


class Server:
    """A server in a host, on one or several ports."""

    def __init__(self, process: "ServerProcess", host: Host, plan: ServerPlan, identities: tuple[int, ...]) -> None:
        self._process = process
        self._identities = identities
        self.host = host
        self.plan = plan
        self.name = plan.name or host.name

    def __repr__(self) -> str:
        return f"<Server {self.name} on {self.host.name}, ports {self.plan.ports}>"

    def served(self) -> Served:
        """What it has done so far."""
        reply = self._process.request({"do": "count", "ids": self._identities})
        return Served(total=reply["served"], open=reply["open"])

    def stop(self, connections: Connections = Connections.KEEP) -> None:
        """Listen no more: new connections are refused. Established ones are kept, closed or reset. May be called again."""
        self._process.request({"do": "stop", "ids": self._identities, "connections": connections.value})


class ServerProcess:
    """The process that serves for all hosts of a lab. It ends with the lab, even if the lab is killed."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        self._lock = threading.Lock()
        self._made = 0
        argv = [sys.executable, "-I", "-S", "-c", _START, str(Path(__file__).parent), str(theirs.fileno())]
        try:
            # Its own process group: Ctrl-C at the terminal is for the lab's owner.
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], process_group=0)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

    def request(self, request: dict[str, Any], descriptors: Iterable[int] = ()) -> dict[str, Any]:
        """Send a request and wait for the reply. Raises :class:`LabError` when the process is gone."""
        with self._lock:
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], list(descriptors))
                reply = self._control.recv(_MESSAGE)
            except OSError as error:
                raise LabError(f"the lab's servers are gone: {error}") from error
        if not reply:
            raise LabError("the lab's servers have died, see their message on standard error")
        answer: dict[str, Any] = json.loads(reply)
        return answer

    def listen(self, host: Host, plan: ServerPlan, families: Iterable[int]) -> Server:
        """Make a server's sockets in its host and have them served. Raises ``OSError``, for a port in use for example."""
        sockets: list[socket.socket] = []
        descriptions: list[dict[str, Any]] = []
        try:
            for family, protocol, port in _combinations(plan, families):
                sockets.append(_bound(host, family, protocol, (plan.address or "", port)))
                descriptions.append(self._describe(host, plan, protocol, port))
            for start in range(0, len(sockets), _DESCRIPTORS):
                part = slice(start, start + _DESCRIPTORS)
                descriptors = [each.fileno() for each in sockets[part]]
                self.request({"do": "listen", "servers": descriptions[part]}, descriptors)
        finally:
            for each in sockets:
                each.close()
        return Server(self, host, plan, tuple(description["id"] for description in descriptions))

    def _describe(self, host: Host, plan: ServerPlan, protocol: Protocol, port: int) -> dict[str, Any]:
        self._made += 1
        return {
            "id": self._made,
            "name": plan.name or host.name,
            "protocol": protocol.name,
            "port": port,
            "behaviour": plan.behaviour.value,
            "delay": plan.delay,
        }

    def close(self) -> None:
        """End it and wait for its end. May be called again."""
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
            return
        self._process.kill()
        self._process.wait()


def _combinations(plan: ServerPlan, families: Iterable[int]) -> Iterable[tuple[int, Protocol, int]]:
    for family in families:
        if plan.address is None or (":" in plan.address) == (family == socket.AF_INET6):
            for protocol in plan.protocols:
                for port in plan.ports:
                    yield family, protocol, port


def _bound(host: Host, family: int, protocol: Protocol, address: tuple[str, int]) -> socket.socket:
    kinds = {
        Protocol.TCP: (socket.SOCK_STREAM, 0),
        Protocol.UDP: (socket.SOCK_DGRAM, 0),
        Protocol.SCTP: (socket.SOCK_RAW, IPPROTO_SCTP),
    }
    with host.enter():
        bound = socket.socket(family, *kinds[protocol])
    try:
        if family == socket.AF_INET6 and protocol is not Protocol.SCTP:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if protocol is Protocol.TCP:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address[0], 0 if protocol is Protocol.SCTP else address[1]))
        if protocol is Protocol.TCP:
            bound.listen(_BACKLOG)
    except BaseException:
        bound.close()
        raise
    return bound
