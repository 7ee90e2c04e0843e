"""Elements of sets, many in one message: from keys and what else they have to bytes, and back."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import frozen

from kproxy_core.wire import netlink, nfnetlink
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.ipset_constants import (
    LONGEST_COMMENT,
    LONGEST_TIMEOUT,
    NETWORK_ORDER,
    Attribute,
    DataAttribute,
    DataFlag,
)
from kproxy_core.wire.ipset_keys import KeyForm
from kproxy_core.wire.netlink import ATTRIBUTE_HEADER, ATTRIBUTE_LIMIT, NESTED, TYPE_MASK

_HEAD: Final = struct.Struct("=HHHHI")
"""The header of an element, and the line number that begins it."""
_ROOM: Final = ATTRIBUTE_LIMIT - 4
_LEAST_ELEMENT: Final = 4
_U32: Final = struct.Struct("=I")
_REFUSED: Final = netlink.attribute(Attribute.LINE, bytes(4))
"""Where the kernel writes the number of the element at fault, in the copy of the message that it sends back."""


@frozen(kw_only=True)
class Element:
    """An element of a set.

    key: packed, see KeyForm. timeout: seconds, instead of the set's own, 0 for ever; when read, seconds left (None in a set
    without). comment: at most 255 bytes. nomatch: an exception from a wider network. mark: packet mark and its mask, which the
    SET target's `--map-mark` gives to packets. packets, bytes: counts. The set must have been made for what is not None.
    """

    key: bytes
    timeout: int | None = None
    comment: str | None = None
    nomatch: bool = False
    mark: tuple[int, int] | None = None
    packets: int | None = None
    bytes: int | None = None


def encode_keys(form: KeyForm, keys: Iterable[bytes]) -> list[bytes]:
    """Elements that are nothing but keys, each as its attributes.

    Raises EncodingError for a key of the wrong length.
    """
    items = list(keys)
    for wrong in set(map(len, items)) - {form.length}:
        raise EncodingError(f"{form.type.value}: a key of {wrong} bytes, {form.length} expected")
    return list(map(form.encode, items))


def encode_elements(form: KeyForm, elements: Iterable[Element]) -> list[bytes]:
    """Elements of any sort, each as its attributes.

    Raises EncodingError for what does not fit, naming the element.
    """
    return [_encode(form, element) for element in elements]


def _encode(form: KeyForm, element: Element) -> bytes:
    form.check(element.key)
    try:
        return form.encode(element.key) + b"".join(_extras(element))
    except EncodingError as error:
        raise EncodingError(f"{form.text(element.key)}: {error}") from None


def _extras(element: Element) -> Iterator[bytes]:
    if element.timeout is not None:
        if element.timeout > LONGEST_TIMEOUT:
            raise EncodingError(f"a timeout of {element.timeout} seconds, at most {LONGEST_TIMEOUT} are possible")
        yield netlink.u32be(DataAttribute.TIMEOUT | NETWORK_ORDER, element.timeout)
    if element.nomatch:
        yield netlink.u32be(DataAttribute.FLAGS | NETWORK_ORDER, DataFlag.NOMATCH)
    if element.bytes is not None:
        yield netlink.u64be(DataAttribute.BYTES | NETWORK_ORDER, element.bytes)
    if element.packets is not None:
        yield netlink.u64be(DataAttribute.PACKETS | NETWORK_ORDER, element.packets)
    if element.comment is not None:
        if len(element.comment.encode()) > LONGEST_COMMENT:
            raise EncodingError(f"a comment of more than {LONGEST_COMMENT} bytes")
        yield netlink.string(DataAttribute.COMMENT, element.comment)
    if element.mark is not None:
        mark, mask = element.mark
        if not (0 <= mark < 1 << 32 and 0 <= mask < 1 << 32):
            raise EncodingError(f"a mark of more than 32 bits: {mark:#x}/{mask:#x}")
        yield netlink.u64be(DataAttribute.SKB_MARK | NETWORK_ORDER, mark << 32 | mask)


def pack_elements(encoded: Iterable[bytes], most: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Put elements into as few messages as possible, at most so many into one.

    Yields for each message how many it has, and the attributes that follow the set's name. The elements of a message are numbered
    from 1, by which the kernel says which of them it refused.
    """
    parts: list[bytes] = []
    room, line = _ROOM, 0
    for body in encoded:
        size = _HEAD.size + len(body)
        if size > room or line == most:
            yield line, _numbered(parts)
            parts, room, line = [], _ROOM, 0
        line += 1
        room -= size
        parts += (_HEAD.pack(size, Attribute.DATA | NESTED, 8, DataAttribute.LINE, line), body)
    if parts:
        yield line, _numbered(parts)


def _numbered(parts: Iterable[bytes]) -> bytes:
    return _REFUSED + netlink.attribute(Attribute.ELEMENTS | NESTED, b"".join(parts))


def refused_line(error_payload: bytes) -> int | None:
    """The number of the element at fault, from 1, in the payload of an error message; None where it is not about one."""
    start = 4 + netlink.HEADER.size + nfnetlink.FAMILY_HEADER_SIZE
    if len(error_payload) <= start:
        return None
    try:
        value = netlink.attributes(error_payload, start).get(Attribute.LINE, b"")
    except MalformedMessageError:
        return None
    (line,) = _U32.unpack(value) if len(value) == _U32.size else (0,)
    return line or None


def decode_elements(form: KeyForm, payload: bytes) -> list[Element]:
    """The elements in the payload of a listing's message.

    Raises MalformedMessageError.
    """
    found: list[Element] = []
    for body, start, end in _bodies(payload):
        key, rest = form.decode(body, start, end)
        found.append(Element(key=key) if rest == end else _with_extras(key, netlink.attributes(body, rest, end)))
    return found


def decode_keys(form: KeyForm, payload: bytes) -> list[bytes]:
    """As decode_elements(), but only the keys."""
    return [form.decode(body, start, end)[0] for body, start, end in _bodies(payload)]


def _bodies(payload: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Each element as the buffer it is in, and where its attributes begin and end there."""
    body = netlink.attributes(payload, nfnetlink.FAMILY_HEADER_SIZE).get(Attribute.ELEMENTS, b"")
    start, stop, unpack = 0, len(body), ATTRIBUTE_HEADER.unpack_from
    while start < stop:
        length, kind = unpack(body, start) if stop - start >= _LEAST_ELEMENT else (0, 0)
        if not _LEAST_ELEMENT <= length <= stop - start or kind & TYPE_MASK != Attribute.DATA:
            raise MalformedMessageError(f"what should be an element claims {length} bytes, {stop - start} are left")
        yield body, start + 4, start + length
        start += (length + 3) & ~3


def _with_extras(key: bytes, found: dict[int, bytes]) -> Element:
    comment = found.get(DataAttribute.COMMENT)
    mark = _number(found, DataAttribute.SKB_MARK, 8)
    flags = _number(found, DataAttribute.FLAGS, 4)
    return Element(
        key=key,
        timeout=_number(found, DataAttribute.TIMEOUT, 4),
        comment=None if comment is None else netlink.decode_string(comment),
        nomatch=bool((flags or 0) & DataFlag.NOMATCH),
        mark=None if mark is None else (mark >> 32, mark & 0xFFFFFFFF),
        packets=_number(found, DataAttribute.PACKETS, 8),
        bytes=_number(found, DataAttribute.BYTES, 8),
    )


def _number(found: dict[int, bytes], kind: int, width: int) -> int | None:
    return netlink.decode_number(found[kind], width) if kind in found else None
