"""UDP and SCTP servers: each datagram is answered from the very address it was sent to, which matters to hosts with several."""

import contextlib
import json
import socket
import struct
import zlib
from typing import TYPE_CHECKING, Any

from . import sctp

if TYPE_CHECKING:
    from .loop import Loop

_BATCH = 128
_LARGEST = 1 << 16
_IP_PKTINFO = 8  # not in Python's socket module before 3.14
_CONTROL_SPACE = 128


class DatagramServer:
    """A UDP socket that answers each datagram with one JSON line."""

    connections: tuple[()] = ()

    def __init__(self, bound: socket.socket, description: dict[str, Any]) -> None:
        bound.setblocking(False)
        self._socket = bound
        self.name: str = description["name"]
        self.behaviour: str = description["behaviour"]
        self.delay: float = description["delay"]
        self.port: int = description["port"]
        self.served = 0
        if bound.family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        else:
            bound.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)

    def fileno(self) -> int:
        """The descriptor to watch."""
        return self._socket.fileno()

    def ready(self, loop: "Loop", _events: int) -> None:
        """Answer what has come."""
        for _ in range(_BATCH):
            try:
                data, control, _flags, client = self._socket.recvmsg(_LARGEST, _CONTROL_SPACE)
            except BlockingIOError:
                return
            except OSError:  # an ICMP error about an earlier answer
                continue
            local, reply_from = _destination(control)
            answer = self.answer(data, client, local)
            if answer is not None and self.behaviour != "silent":
                loop.later(self.delay, lambda a=answer, f=reply_from, c=client: self._send(a, f, c))

    def _send(self, answer: bytes, reply_from: list[tuple[int, int, bytes]], client: tuple[Any, ...]) -> None:
        if self.fileno() >= 0:
            with contextlib.suppress(OSError):
                self._socket.sendmsg([answer], reply_from, 0, client)

    def answer(self, data: bytes, client: tuple[Any, ...], local: str) -> bytes | None:
        """What to say to a datagram, None for nothing."""
        self.served += 1
        said = data[:1024].decode(errors="replace").rstrip("\r\n")
        return json.dumps({**self.facts("UDP", client[:2], local), "line": self.served, "said": said}).encode() + b"\n"

    def facts(self, protocol: str, client: tuple[Any, ...], local: str) -> dict[str, Any]:
        """Who answers, and whom it saw."""
        return {
            "server": self.name,
            "port": self.port,
            "protocol": protocol,
            "client": client[0],
            "client_port": client[1],
            "local": local,
        }

    def stop(self, loop: "Loop", _connections: str) -> None:
        """Answer no more. May be called again."""
        if self.fileno() >= 0:
            loop.forget(self)
            self._socket.close()


class SctpServer(DatagramServer):
    """A raw socket that answers INIT for one port with an INIT ACK, whose state cookie is the JSON line.

    Nothing is kept: the client's answer to the INIT ACK, if any, is not listened to.
    """

    def answer(self, data: bytes, client: tuple[Any, ...], local: str) -> bytes | None:
        """An INIT ACK for an INIT to our port, else None: other ports have servers and sockets of their own."""
        ipv6 = self._socket.family == socket.AF_INET6
        packet = sctp.decode(sctp.without_ip_header(data, ipv6=ipv6))
        if packet is None or packet.chunk != sctp.INIT or packet.destination_port != self.port:
            return None
        self.served += 1
        facts = self.facts("SCTP", (client[0], packet.source_port), local)
        cookie = json.dumps({**facts, "line": 0, "said": ""}).encode()
        tag = zlib.crc32(cookie) or 1
        return sctp.encode(sctp.Handshake(self.port, packet.source_port, sctp.INIT_ACK, packet.initiate_tag, tag, cookie))


def _destination(control: list[tuple[int, int, bytes]]) -> tuple[str, list[tuple[int, int, bytes]]]:
    """The address a datagram was sent to, and the ancillary data that make the answer leave from it."""
    for level, kind, data in control:
        if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO:
            return socket.inet_ntop(socket.AF_INET6, data[:16]), [(level, kind, data[:16] + bytes(4))]
        if level == socket.IPPROTO_IP and kind == _IP_PKTINFO:
            # in_pktinfo: interface, local address of the packet, its destination; the second chooses the source of the answer
            local = data[8:12]
            return socket.inet_ntop(socket.AF_INET, local), [(level, kind, struct.pack("=I4s4s", 0, local, bytes(4)))]
    return "", []
