"""Adding and deleting elements in bulk: many in one message, many messages in one send, and who was refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from kproxy_core.kernel.errors import OutcomeUnknownError
from kproxy_core.kernel.ipset_errors import ipset_error
from kproxy_core.kernel.netlink_batch import ERROR_ROOM, NetlinkBatch
from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.wire import netlink
from kproxy_core.wire.ipset_elements import pack_elements, refused_line
from kproxy_core.wire.netlink import Message

_ERROR_ROOM: Final = 200_000
"""Bytes of receive buffer that an error about a full message of elements takes: the kernel sends that message back."""


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
        refused, unseen = self._pass(range(len(encoded)), encoded, None)
        more, none = self._pass(unseen, encoded, 1)
        if none:
            raise OutcomeUnknownError(f"{self.what}: the kernel left elements out")
        return refused | more

    def _pass(self, indices: Sequence[int], encoded: Sequence[bytes], most: int | None) -> tuple[dict[int, int], list[int]]:
        """Send these, at most so many in a message: the error by index, and the indices that the kernel did not come to."""
        room = _ERROR_ROOM if most is None else ERROR_ROOM
        batch = NetlinkBatch(socket=self.socket, kind=self.kind, flags=self.flags, what=self.what, error_room=room)
        messages = list(pack_elements((encoded[index] for index in indices), most))
        answers = batch.refusals(self.head + body for _, body in messages)
        refused: dict[int, int] = {}
        unseen: list[int] = []
        start = 0
        for position, (count, _) in enumerate(messages):
            if position in answers:
                error, line = self._blamed(answers[position])
                refused[indices[start + line - 1]] = error
                unseen += indices[start + line : start + count]
            start += count
        return refused, unseen

    def _blamed(self, answer: Message) -> tuple[int, int]:
        """The error and the number of the element at fault; an error about no element is raised."""
        told = netlink.acknowledgement(answer)
        line = refused_line(answer.payload)
        if line is None:
            raise ipset_error(self.what, told.error, told.text)
        return told.error, line
