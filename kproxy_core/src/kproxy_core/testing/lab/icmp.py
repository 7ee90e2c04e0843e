"""Reading the error queue of a socket: which ICMP error came back, and from whom (ip(7), IP_RECVERR)."""

import errno
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple

from kproxy_core.testing.lab.outcomes import Outcome, Refused, Unreachable

_IP_RECVERR = 11
_IPV6_RECVERR = 25
_FROM_ICMP, _FROM_ICMP6 = 2, 3  # SO_EE_ORIGIN_*
_CONTROL_SPACE = 512
_PACKET_SPACE = 64
_TCP_CLOSE = 7

_NAMES = {
    (3, 0): "network unreachable",
    (3, 1): "host unreachable",
    (3, 2): "protocol unreachable",
    (3, 3): "port unreachable",
    (3, 9): "network prohibited",
    (3, 10): "host prohibited",
    (3, 13): "prohibited by a filter",
    (11, 0): "time exceeded",
}
_NAMES6 = {
    (1, 0): "no route",
    (1, 1): "prohibited",
    (1, 3): "address unreachable",
    (1, 4): "port unreachable",
    (1, 5): "source address failed policy",
    (1, 6): "reject route",
    (3, 0): "time exceeded",
    (4, 1): "unknown next header",
}


class IcmpError(NamedTuple):
    """One ICMP error about a packet of this socket."""

    name: str
    sender: str


def report_errors(client: socket.socket) -> None:
    """Have the kernel queue ICMP errors for the socket."""
    if client.family == socket.AF_INET6:
        client.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
    else:
        client.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)


def queued_error(client: socket.socket, about: Callable[[bytes], bool] | None = None) -> IcmpError | None:
    """Take the next ICMP error from the queue, if there is one. TCP sockets have them from Linux 5.8 on.

    ``about`` picks by the beginning of the packet that the error is about: raw sockets hear of others' as well.
    """
    while True:
        try:
            packet, control, _flags, _address = client.recvmsg(_PACKET_SPACE, _CONTROL_SPACE, socket.MSG_ERRQUEUE)
        except OSError:
            return None
        if about is not None and not about(packet):
            continue
        for level, kind, data in control:
            if (level, kind) in ((socket.IPPROTO_IP, _IP_RECVERR), (socket.IPPROTO_IPV6, _IPV6_RECVERR)):
                error = _parse(data)
                if error is not None:
                    return error


def _parse(data: bytes) -> IcmpError | None:
    _number, origin, kind, code = struct.unpack_from("=IBBB", data)
    if origin == _FROM_ICMP:
        name = _NAMES.get((kind, code), f"ICMP type {kind} code {code}")
        return IcmpError(name, socket.inet_ntop(socket.AF_INET, data[20:24]))  # the sockaddr_in after the 16 bytes
    if origin == _FROM_ICMP6:
        name = _NAMES6.get((kind, code), f"ICMPv6 type {kind} code {code}")
        return IcmpError(name, socket.inet_ntop(socket.AF_INET6, data[24:40]))
    return None


def outcome_of(error: IcmpError, client: socket.socket) -> Outcome:
    """What an ICMP error means to the client."""
    if error.name != "port unreachable":
        return Unreachable(reason=error.name, sender=error.sender)
    return Refused(by="icmp", sender=error.sender, at_once=not _still_connecting(client))


def _still_connecting(client: socket.socket) -> bool:
    if client.type != socket.SOCK_STREAM:
        return False
    return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_CLOSE


def outcome_of_errno(number: int, client: socket.socket) -> Outcome:
    """What an errno of connect or send means when no ICMP error was queued."""
    if number == errno.ECONNREFUSED:
        return Refused(by="rst" if client.type == socket.SOCK_STREAM else "icmp")
    return Unreachable(reason=errno.errorcode.get(number, str(number)))
