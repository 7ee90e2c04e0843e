"""Netlink messages, attributes and acknowledgements (linux/netlink.h), whatever the subsystem."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

from attrs import frozen

from kproxy_core.wire.errors import EncodingError, MalformedMessageError


class Protocol(IntEnum):
    """Netlink families (the third argument of socket(2))."""

    ROUTE = 0
    SOCK_DIAG = 4
    NETFILTER = 12
    GENERIC = 16


class ControlType(IntEnum):
    """Message types below 0x10, common to all subsystems."""

    NOOP = 1
    ERROR = 2
    DONE = 3
    OVERRUN = 4


class MessageFlag(IntFlag):
    """Header flags; the values from 0x100 mean different things for get, new and delete requests."""

    REQUEST = 0x01
    MULTI = 0x02
    ACK = 0x04
    ECHO = 0x08
    DUMP_INTR = 0x10
    DUMP_FILTERED = 0x20
    DUMP = 0x300
    REPLACE = 0x100
    EXCL = 0x200
    CREATE = 0x400
    APPEND = 0x800
    CAPPED = 0x100
    ACK_TLVS = 0x200


class SocketOption(IntEnum):
    """Options of level SOL_NETLINK."""

    ADD_MEMBERSHIP = 1
    DROP_MEMBERSHIP = 2
    NO_ENOBUFS = 5
    CAP_ACK = 10
    EXT_ACK = 11
    GET_STRICT_CHK = 12


SOL_NETLINK: Final = 270
HEADER: Final = struct.Struct("=IHHII")
ATTRIBUTE_HEADER: Final = struct.Struct("=HH")
NESTED: Final = 0x8000
TYPE_MASK: Final = 0x3FFF
ATTRIBUTE_LIMIT: Final = 0xFFFF
"""Longest attribute in bytes, its header of 4 included (the length field has 16 bits)."""

_PADDING: Final = (b"", b"\0\0\0", b"\0\0", b"\0")
_ERROR: Final = struct.Struct("=iIHHII")
_ERRNO: Final = struct.Struct("=i")
_U32: Final = struct.Struct("=I")
_ERROR_TEXT: Final = 1
_ERROR_OFFSET: Final = 2


class Message(NamedTuple):
    """One netlink message without its header's length."""

    type: int
    flags: int
    sequence: int
    port: int
    payload: bytes


@frozen(kw_only=True)
class Acknowledgement:
    """What the kernel says about one request.

    error: 0 for success, otherwise the positive errno. text: the kernel's own words (extended acknowledgement).
    offset: where in the request, counted from its header, the offending attribute begins.
    """

    sequence: int
    error: int
    text: str | None = None
    offset: int | None = None


def padding(length: int) -> bytes:
    """The zero bytes that follow something of this length, so that the next thing is aligned to 4."""
    return _PADDING[length & 3]


def message(kind: int, flags: int, sequence: int, payload: bytes, port: int = 0) -> bytes:
    """One message with its header; the payload's length must already be a multiple of 4 (attributes are)."""
    return HEADER.pack(HEADER.size + len(payload), kind, flags, sequence, port) + payload


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded.

    Raises EncodingError when it would be longer than 65,535 bytes with its header.
    """
    length = 4 + len(value)
    if length > ATTRIBUTE_LIMIT:
        raise EncodingError(f"attribute {kind & TYPE_MASK}: {length} bytes, at most {ATTRIBUTE_LIMIT} fit")
    return ATTRIBUTE_HEADER.pack(length, kind) + value + _PADDING[length & 3]


def nested(kind: int, *parts: bytes) -> bytes:
    """An attribute made of attributes, marked as such."""
    return attribute(kind | NESTED, b"".join(parts))


def string(kind: int, text: str) -> bytes:
    """A text attribute, ended by a zero byte.

    Raises EncodingError for text that contains one.
    """
    raw = text.encode()
    if 0 in raw:
        raise EncodingError(f"attribute {kind}: text with a zero byte: {text!r}")
    return attribute(kind, raw + b"\0")


def u32be(kind: int, value: int) -> bytes:
    """A 32-bit attribute in network order (as all of netfilter's are)."""
    return _number(kind, value, 4)


def u64be(kind: int, value: int) -> bytes:
    """A 64-bit attribute in network order."""
    return _number(kind, value, 8)


def u16be(kind: int, value: int) -> bytes:
    """A 16-bit attribute in network order."""
    return _number(kind, value, 2)


def _number(kind: int, value: int, width: int) -> bytes:
    try:
        return attribute(kind, int(value).to_bytes(width, "big"))
    except OverflowError:
        raise EncodingError(f"attribute {kind}: {value} does not fit {8 * width} bits") from None


def decode_number(value: bytes, width: int) -> int:
    """An unsigned number in network order that must be `width` bytes long."""
    if len(value) != width:
        raise MalformedMessageError(f"a number of {len(value)} bytes where {width} were expected")
    return int.from_bytes(value, "big")


def decode_string(value: bytes) -> str:
    """Text up to its zero byte; undecodable bytes are kept as escapes, since names come from anybody."""
    return value.partition(b"\0")[0].decode(errors="backslashreplace")


def iter_attributes(buffer: bytes, start: int = 0, end: int | None = None, mask: int = TYPE_MASK) -> Iterator[tuple[int, bytes]]:
    """Walk the attributes in buffer[start:end]: (type, by default without the nested and byte-order flags; value).

    Raises MalformedMessageError where a length contradicts what is there; what came before has been yielded by then.
    """
    stop = len(buffer) if end is None else end
    unpack = ATTRIBUTE_HEADER.unpack_from
    while start < stop:
        if stop - start < 4:
            raise MalformedMessageError(f"{stop - start} stray bytes after the last attribute")
        length, kind = unpack(buffer, start)
        if length < 4 or start + length > stop:
            raise MalformedMessageError(f"attribute {kind & TYPE_MASK} claims {length} bytes, {stop - start} are left")
        yield kind & mask, buffer[start + 4 : start + length]
        start += (length + 3) & ~3


def attributes(buffer: bytes, start: int = 0, end: int | None = None) -> dict[int, bytes]:
    """The attributes by type; of a repeated one the last counts, as in the kernel."""
    return dict(iter_attributes(buffer, start, end))


def iter_messages(buffer: bytes) -> Iterator[Message]:
    """Walk the messages of one received buffer.

    Raises MalformedMessageError where a length contradicts what is there.
    """
    start, stop = 0, len(buffer)
    unpack = HEADER.unpack_from
    while start < stop:
        if stop - start < HEADER.size:
            raise MalformedMessageError(f"{stop - start} stray bytes after the last message")
        length, kind, flags, sequence, port = unpack(buffer, start)
        if length < HEADER.size or start + length > stop:
            raise MalformedMessageError(f"message of type {kind} claims {length} bytes, {stop - start} are left")
        yield Message(kind, flags, sequence, port, buffer[start + HEADER.size : start + length])
        start += (length + 3) & ~3


def acknowledgement(answer: Message) -> Acknowledgement:
    """Read an NLMSG_ERROR (also the one with error 0, which is an acknowledgement) or the NLMSG_DONE of a dump.

    Works with and without NETLINK_CAP_ACK and NETLINK_EXT_ACK.
    """
    if answer.type == ControlType.DONE:
        return _done(answer)
    if len(answer.payload) < _ERROR.size:
        raise MalformedMessageError(f"error message of {len(answer.payload)} bytes")
    error, length, _, _, _, _ = _ERROR.unpack_from(answer.payload)
    start = _ERROR.size
    if error and not answer.flags & MessageFlag.CAPPED:
        start = 4 + ((length + 3) & ~3)
    return _with_details(answer, error, start)


def _done(answer: Message) -> Acknowledgement:
    if len(answer.payload) < 4:
        return Acknowledgement(sequence=answer.sequence, error=0)
    (error,) = _ERRNO.unpack_from(answer.payload)
    return _with_details(answer, min(error, 0), 4)


def _with_details(answer: Message, error: int, start: int) -> Acknowledgement:
    text: str | None = None
    offset: int | None = None
    if answer.flags & MessageFlag.ACK_TLVS:
        for kind, value in iter_attributes(answer.payload, start):
            if kind == _ERROR_TEXT:
                text = decode_string(value)
            elif kind == _ERROR_OFFSET and len(value) == 4:
                (offset,) = _U32.unpack(value)
    return Acknowledgement(sequence=answer.sequence, error=-error, text=text, offset=offset)
