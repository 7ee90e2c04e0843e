"""Adding and deleting elements in bulk: many in one message, many messages in one send, and who was refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from attrs import frozen

from kproxy_core.kernel.errors import OutcomeUnknownError
from kproxy_core.kernel.ipset_errors import ipset_error
from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.wire import netlink
from kproxy_core.wire.ipset_elements import pack_elements, refused_line
from kproxy_core.wire.netlink import ControlType, MessageFlag

_ERROR_ROOM: Final = 200_000
"""Bytes of receive buffer that an error about a full message of elements takes: the kernel sends that message back."""
_SMALL_ERROR_ROOM: Final = 2048
"""The same for a message of one element."""


@frozen(kw_only=True)
class RefusedElement:
    """An element that the kernel did not take, or did not find to delete.

    index: which of those given. key: packed. error: an errno or ErrorCode. reason: the same in words, with element and set.
    """

    index: int
    key: bytes
    error: int
    reason: str


@frozen(kw_only=True)
class ChangeResult:
    """What became of a change of elements: how many took effect, and those that were refused, in order."""

    done: int
    refused: tuple[RefusedElement, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all of it took effect."""
        return not self.refused


@frozen(kw_only=True)
class ElementChange:
    """A change of the elements of one set: `head` are the attributes that say which, `what` is for messages to people."""

    socket: NetlinkSocket
    kind: int
    flags: int
    head: bytes
    what: str

    def make(self, encoded: Sequence[bytes]) -> dict[int, int]:
        """Make it; returns the error for each index that was refused.

        The kernel stops at the first element of a message that it refuses; those behind it are sent once more, each in a message
        of its own, so that the work stays linear. Raises NetlinkError for the change as a whole (no such set), and
        OutcomeUnknownError.
        """
        refused, unseen = self._pass(list(range(len(encoded))), encoded, None)
        more, none = self._pass(unseen, encoded, 1)
        if none:
            raise OutcomeUnknownError(f"{self.what}: the kernel left elements out")
        return refused | more

    def _pass(self, indices: Sequence[int], encoded: Sequence[bytes], most: int | None) -> tuple[dict[int, int], list[int]]:
        """Send these, at most so many in a message: the error by index, and the indices that the kernel did not come to."""
        refused: dict[int, int] = {}
        unseen: list[int] = []
        start = 0
        room = _ERROR_ROOM if most is None else _SMALL_ERROR_ROOM
        for messages in self._groups(pack_elements((encoded[index] for index in indices), most), room):
            errors = self._send([body for _, body in messages])
            for position, (count, _) in enumerate(messages):
                if position in errors:
                    error, line = errors[position]
                    refused[indices[start + line - 1]] = error
                    unseen += indices[start + line : start + count]
                start += count
        return refused, unseen

    def _groups(self, messages: Iterable[tuple[int, bytes]], error_room: int) -> Iterator[list[tuple[int, bytes]]]:
        """As many messages at a time as can all be refused without overflowing the receive buffer, and as can be sent."""
        most = max(1, self.socket.receive_room // error_room)
        group: list[tuple[int, bytes]] = []
        size = 0
        for message in messages:
            length = netlink.HEADER.size + len(self.head) + len(message[1])
            if group and (len(group) == most or size + length > self.socket.reserve(size + length)):
                yield group
                group, size = [], 0
            group.append(message)
            size += length
        if group:
            yield group

    def _send(self, bodies: Sequence[bytes]) -> dict[int, tuple[int, int]]:
        """Send one group: the error and the number of the element at fault, for each message that was refused."""
        first = self.socket.next_sequence(len(bodies))
        last = len(bodies) - 1
        data = [
            netlink.message(self.kind, self._flags(position == last), first + position, self.head + body)
            for position, body in enumerate(bodies)
        ]
        self.socket.received()
        self.socket.send_parts(data, self.what)
        errors: dict[int, tuple[int, int]] = {}
        answered = False
        for message in self.socket.received():
            if message.type != ControlType.ERROR:
                continue
            told = netlink.acknowledgement(message)
            answered |= told.sequence == first + last
            if told.error:
                line = refused_line(message.payload)
                if line is None:
                    raise ipset_error(self.what, told.error, told.text)
                errors[told.sequence - first] = told.error, line
        if not answered:
            raise OutcomeUnknownError(f"{self.what}: the kernel did not answer")
        return errors

    def _flags(self, last: bool) -> int:
        return MessageFlag.REQUEST | self.flags | (MessageFlag.ACK if last else 0)
