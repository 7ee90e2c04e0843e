"""Many requests of one type in few sends: only the last of a send is acknowledged, of the others only errors come back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from attrs import frozen

from kproxy_core.kernel.errors import OutcomeUnknownError
from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.wire import netlink
from kproxy_core.wire.netlink import ControlType, Message, MessageFlag

_MOST: Final = 2000
"""Requests in one send; more gain nothing."""
ERROR_ROOM: Final = 2048
"""Bytes of receive buffer that one error message takes, generously, unless it repeats a long request."""


@frozen(kw_only=True)
class NetlinkBatch:
    """How to send them: their type and flags beside REQUEST; error_room: receive buffer that one error may take.

    `what` is for messages to people.
    """

    socket: NetlinkSocket
    kind: int
    what: str
    flags: int = 0
    error_room: int = ERROR_ROOM

    def refusals(self, payloads: Iterable[bytes]) -> dict[int, Message]:
        """Send requests, each of which the kernel handles by itself; returns the error messages by the request's index.

        Raises OutcomeUnknownError when answers are lost, and NetlinkError when nothing can be sent.
        """
        refused: dict[int, Message] = {}
        start = 0
        for group in self._groups(payloads):
            refused |= {start + index: message for index, message in self._send(group).items()}
            start += len(group)
        return refused

    def _groups(self, payloads: Iterable[bytes]) -> Iterator[list[bytes]]:
        """As many at a time as can all be refused without overflowing the receive buffer, and as can be sent."""
        most = max(1, min(_MOST, self.socket.receive_room // self.error_room))
        group: list[bytes] = []
        size = 0
        for payload in payloads:
            length = netlink.HEADER.size + len(payload)
            if group and (len(group) == most or size + length > self.socket.reserve(size + length)):
                yield group
                group, size = [], 0
            group.append(payload)
            size += length
        if group:
            yield group

    def _send(self, group: list[bytes]) -> dict[int, Message]:
        first, last = self.socket.next_sequence(len(group)), len(group) - 1
        flags = MessageFlag.REQUEST | self.flags
        data = [netlink.message(self.kind, flags, first + index, payload) for index, payload in enumerate(group[:last])]
        data.append(netlink.message(self.kind, flags | MessageFlag.ACK, first + last, group[last]))
        self.socket.received()
        self.socket.send_parts(data, self.what)
        refused: dict[int, Message] = {}
        answered = False
        for message in self.socket.received():
            if message.type == ControlType.ERROR:
                answered |= message.sequence == first + last
                if netlink.acknowledgement(message).error:
                    refused[message.sequence - first] = message
        if not answered:
            raise OutcomeUnknownError(f"{self.what}: the kernel did not answer")
        return refused
