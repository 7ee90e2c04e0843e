"""Generations of the nf_tables rule set: each transaction that changes something makes a new one, and is announced."""

from __future__ import annotations

import struct
from typing import ClassVar, Final, Self

from attrs import frozen

from kproxy_core.wire import netlink, nfnetlink
from kproxy_core.wire.netlink import ControlType, Message
from kproxy_core.wire.nfnetlink import Subsystem
from kproxy_core.wire.nft_constants import MessageKind

_LOAD_HALF: Final = 0x28
_JUMP_IF_EQUAL: Final = 0x15
_RETURN: Final = 0x06
_WHOLE: Final = 0x40000


@frozen(kw_only=True)
class Generation:
    """A generation, and who made it.

    port: the port id of the netlink socket that committed; within a network namespace it tells one socket from all others.
    pid: of the committing thread, as numbered in the first pid namespace (so not comparable with os.getpid() in a
    container); None, as `process`, where the kernel does not say. In the answer to a question both are the asker's.
    """

    MESSAGE_TYPE: ClassVar[int] = nfnetlink.message_type(Subsystem.NFTABLES, MessageKind.NEWGEN)

    id: int
    port: int
    pid: int | None = None
    process: str | None = None

    @classmethod
    def decode(cls, message: Message) -> Self:
        """Read a NEWGEN message."""
        found = netlink.attributes(message.payload, nfnetlink.FAMILY_HEADER_SIZE)
        return cls(
            id=netlink.decode_number(found.get(1, b""), 4),
            port=message.port,
            pid=netlink.decode_number(found[2], 4) if 2 in found else None,
            process=netlink.decode_string(found[3]) if 3 in found else None,
        )


def generation_filter() -> bytes:
    """A classic BPF program that lets only NEWGEN messages (and errors) into a socket, not the changes themselves."""
    program = (
        (_LOAD_HALF, 0, 0, 4),
        (_JUMP_IF_EQUAL, 2, 0, _as_loaded(Generation.MESSAGE_TYPE)),
        (_JUMP_IF_EQUAL, 1, 0, _as_loaded(ControlType.ERROR)),
        (_RETURN, 0, 0, 0),
        (_RETURN, 0, 0, _WHOLE),
    )
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _as_loaded(kind: int) -> int:
    """A message type as the filter sees it: it loads in network order what is written in the host's."""
    return int.from_bytes(struct.pack("=H", kind), "big")
