"""Set elements: the bulk of everything, so packed keys and data go through with as little Python as possible.

`ElementCodec` handles the elements of one set: plain ones as (key, data) pairs of bytes, and those with more to them
(verdicts, comments, timeouts, intervals) as `Element`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Final, Self

from attrs import frozen

from kproxy_core.wire import netlink, nfnetlink
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.netlink import ATTRIBUTE_HEADER, ATTRIBUTE_LIMIT, NESTED, TYPE_MASK, MessageFlag
from kproxy_core.wire.nfnetlink import Family
from kproxy_core.wire.nft_constants import ElementFlag, MessageKind
from kproxy_core.wire.nft_data import (
    Verdict,
    decode_comment,
    decode_data,
    encode_comment,
    encode_data,
)
from kproxy_core.wire.nft_expressions import Counter, decode_expression
from kproxy_core.wire.nft_objects import Set
from kproxy_core.wire.nft_operations import Operation

_LIST_ELEMENT: Final = 1
_KEY: Final = 1
_DATA: Final = 2
_FLAGS: Final = 3
_TIMEOUT: Final = 4
_EXPIRATION: Final = 5
_USERDATA: Final = 6
_EXPRESSION: Final = 7
_KEY_END: Final = 10
_VALUE: Final = 1
_ELEMENTS: Final = 3
_ROOM: Final = ATTRIBUTE_LIMIT - 4

_COMMENT: Final = struct.Struct("=HHBB")
"""The header of a userdata attribute, and of the comment in it."""

_first = itemgetter(0)
_second = itemgetter(1)


@frozen(kw_only=True)
class Element:
    """A set element with all that it can have.

    key_end: end of an interval (inclusive), in sets of concatenations. data: value or verdict of a map. timeout: milliseconds,
    instead of the set's own. expires: milliseconds left, when read. comment: shown by nft. flags: ElementFlag.
    packets, bytes: counts, when read from a set with counters.
    """

    key: bytes
    key_end: bytes | None = None
    data: bytes | Verdict | None = None
    timeout: int | None = None
    expires: int | None = None
    comment: str | None = None
    flags: int = 0
    packets: int | None = None
    bytes: int | None = None


@frozen(kw_only=True)
class ElementCodec:
    """Elements of one set to messages and back. data_length is 0 for a plain set and for a map of verdicts."""

    family: Family
    table: str
    set_name: str
    key_length: int
    data_length: int = 0

    @classmethod
    def of(cls, target: Set) -> Self:
        """The codec for a set."""
        verdicts = target.data_type is not None and target.data_type >> 8 == 0xFFFFFF
        return cls(
            family=target.family,
            table=target.table,
            set_name=target.name,
            key_length=target.key_length,
            data_length=0 if verdicts else target.data_length or 0,
        )

    # -- writing

    def add(self, pairs: Iterable[tuple[bytes, bytes]], *, exclusive: bool = False) -> list[Operation]:
        """Add elements of a map, given as packed key and data.

        The same key with the same data is let be (with `exclusive`: EEXIST); with other data it is EEXIST always, so
        delete and add in one transaction. Raises EncodingError for a key or data of the wrong length.
        """
        if not self.data_length:
            raise EncodingError(f"{self.set_name} holds no packed data")
        items = pairs if isinstance(pairs, list | tuple) else list(pairs)
        self._check(map(_first, items), self.key_length, "key")
        self._check(map(_second, items), self.data_length, "data")
        prefix, middle, suffix = self._frame(NESTED)
        between = suffix + prefix
        step = _ROOM // (len(prefix) + self.key_length + len(middle) + self.data_length + len(suffix))
        bodies = (
            prefix + between.join(map(middle.join, items[start : start + step])) + suffix for start in range(0, len(items), step)
        )
        return self._operations(MessageKind.NEWSETELEM, _new_flags(exclusive), bodies)

    def add_commented(self, rows: Iterable[tuple[bytes, bytes, str]], *, exclusive: bool = False) -> list[Operation]:
        """Add elements of a map, given as packed key, data and comment: as add_elements(), several times as fast."""
        items = rows if isinstance(rows, list | tuple) else list(rows)
        self._check(map(_first, items), self.key_length, "key")
        self._check(map(_second, items), self.data_length, "data")
        frames: dict[int, tuple[bytes, bytes, bytes]] = {}
        return self._operations(MessageKind.NEWSETELEM, _new_flags(exclusive), _packed(self._commented(items, frames)))

    def _commented(
        self, items: Iterable[tuple[bytes, bytes, str]], frames: dict[int, tuple[bytes, bytes, bytes]]
    ) -> Iterator[bytes]:
        """Encode elements by frames (before the key, after it, after the data), which depend on the comment's length alone."""
        for key, data, comment in items:
            userdata = encode_comment(comment)
            frame = frames.get(len(userdata))
            if frame is None:
                prefix, middle, suffix = self._frame(NESTED)
                more = ATTRIBUTE_HEADER.size + len(userdata) + len(netlink.padding(len(userdata)))
                total, mark = ATTRIBUTE_HEADER.unpack_from(prefix)
                prefix = ATTRIBUTE_HEADER.pack(total + more, mark) + prefix[ATTRIBUTE_HEADER.size :]
                suffix += ATTRIBUTE_HEADER.pack(ATTRIBUTE_HEADER.size + len(userdata), _USERDATA)
                frame = frames[len(userdata)] = prefix, middle, suffix
            yield b"".join((frame[0], key, frame[1], data, frame[2], userdata, netlink.padding(len(userdata))))

    def add_keys(self, keys: Iterable[bytes], *, exclusive: bool = False) -> list[Operation]:
        """Add elements of a plain set, given as packed keys."""
        return self._operations(MessageKind.NEWSETELEM, _new_flags(exclusive), self._keys(keys))

    def delete(self, keys: Iterable[bytes]) -> list[Operation]:
        """Delete elements of a set or map by packed key; ENOENT for one that is not there."""
        return self._operations(MessageKind.DELSETELEM, 0, self._keys(keys))

    def add_elements(self, elements: Iterable[Element], *, exclusive: bool = False) -> list[Operation]:
        """Add elements of any sort."""
        bodies = _packed(map(_encode_element, elements))
        return self._operations(MessageKind.NEWSETELEM, _new_flags(exclusive), bodies)

    def delete_elements(self, elements: Iterable[Element]) -> list[Operation]:
        """Delete elements of any sort; only their keys and flags count."""
        return self._operations(MessageKind.DELSETELEM, 0, _packed(map(_encode_element_key, elements)))

    def encode_get(self, key: bytes) -> bytes:
        """The attributes of a request for one element."""
        return self._list(_encode_element_key(Element(key=key)))

    def _keys(self, keys: Iterable[bytes]) -> Iterator[bytes]:
        items = keys if isinstance(keys, list | tuple) else list(keys)
        self._check(items, self.key_length, "key")
        size = (self.key_length + 3) & ~3
        prefix = struct.pack(
            "=HHHHHH",
            *(12 + size, _LIST_ELEMENT | NESTED),
            *(8 + size, _KEY | NESTED),
            *(4 + self.key_length, _VALUE),
        )
        suffix = netlink.padding(self.key_length)
        between = suffix + prefix
        step = _ROOM // (12 + size)
        return (prefix + between.join(items[start : start + step]) + suffix for start in range(0, len(items), step))

    def _check(self, values: Iterable[bytes], length: int, what: str) -> None:
        wrong = set(map(len, values)) - {length}
        if wrong:
            raise EncodingError(f"{self.set_name}: a {what} of {min(wrong)} bytes, {length} expected")

    def _frame(self, mark: int) -> tuple[bytes, bytes, bytes]:
        """The constant bytes before the key, between key and data, and after the data of every element."""
        key = (self.key_length + 3) & ~3
        data = (self.data_length + 3) & ~3
        rest = 8 + data if self.data_length else 0
        prefix = struct.pack(
            "=HHHHHH",
            *(12 + key + rest, _LIST_ELEMENT | mark),
            *(8 + key, _KEY | mark),
            *(4 + self.key_length, _VALUE),
        )
        middle = netlink.padding(self.key_length)
        if self.data_length:
            middle += struct.pack("=HHHH", 8 + data, _DATA | mark, 4 + self.data_length, _VALUE)
        return prefix, middle, netlink.padding(self.data_length)

    def _operations(self, kind: MessageKind, flags: int, bodies: Iterable[bytes]) -> list[Operation]:
        return [Operation(kind=kind, flags=flags, family=self.family, attributes=self._list(body)) for body in bodies]

    def _list(self, body: bytes) -> bytes:
        names = netlink.string(1, self.table) + netlink.string(2, self.set_name)
        return names + netlink.attribute(_ELEMENTS | NESTED, body)

    # -- reading

    def decode(self, payload: bytes) -> list[tuple[bytes, bytes]]:
        """Read the payload of a NEWSETELEM message as pairs of packed key and data (b"" in a plain set).

        Comments, timeouts and counts are passed over. Raises MalformedMessageError for verdicts and for other lengths.
        """
        body = _elements_of(payload)
        rows = self._uniform(body)
        return [(key, data) for key, data, _ in self._varied(body)] if rows is None else rows

    def decode_with_comments(self, payload: bytes) -> list[tuple[bytes, bytes, str | None]]:
        """As decode(), with each element's comment."""
        return [(key, data, _comment_in(rest)) for key, data, rest in self._varied(_elements_of(payload))]

    def _uniform(self, body: bytes) -> list[tuple[bytes, bytes]] | None:
        """Read elements that all have the plain form; None if they do not."""
        mark = NESTED if len(body) >= 4 and body[3] & 0x80 else 0
        prefix, middle, suffix = self._frame(mark)
        form = struct.Struct(f"{len(prefix)}s{self.key_length}s{len(middle)}s{self.data_length}s{len(suffix)}x")
        if len(body) % form.size:
            return None
        rows = list(form.iter_unpack(body))
        if {row[0] for row in rows} != {prefix} or {row[2] for row in rows} != {middle}:
            return None
        return [(key, data) for _, key, _, data in rows]

    def _varied(self, body: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Read elements of any form: key, data, and what follows these as packed attributes."""
        mark = NESTED if len(body) >= 4 and body[3] & 0x80 else 0
        prefix, middle, suffix = self._frame(mark)
        constant = (_LIST_ELEMENT | mark, prefix[4:], middle)
        form = struct.Struct(f"=HH{len(prefix) - 4}s{self.key_length}s{len(middle)}s{self.data_length}s{len(suffix)}x")
        start, stop, size, unpack = 0, len(body), form.size, form.unpack_from
        while start < stop:
            row = unpack(body, start) if stop - start >= size else (0, 0, b"", b"", b"", b"")
            length, kind, head, key, between, data = row
            if (kind, head, between) != constant or not size <= length <= stop - start:
                found = body[start : start + 200].hex()
                raise MalformedMessageError(f"{self.set_name}: an element that is not packed key and data: {found}")
            yield key, data, body[start + size : start + length]
            start += (length + 3) & ~3


def decode_elements(payload: bytes) -> list[Element]:
    """Read the payload of a NEWSETELEM message, whatever the set."""
    return [_decode_element(inside) for _, inside in netlink.iter_attributes(_elements_of(payload))]


def interval(start: bytes, end: bytes | None, data: bytes | Verdict | None = None) -> tuple[Element, ...]:
    """An interval of a set without concatenation: from `start` up to, but without, `end` (None: to the last value)."""
    first = Element(key=start, data=data)
    return (first,) if end is None else (first, Element(key=end, flags=ElementFlag.INTERVAL_END))


def element_at(operation: Operation, offset: int) -> int | None:
    """Which element of an element message lies at this offset from the message's header (as an error tells it)."""
    at = offset - netlink.HEADER.size - nfnetlink.FAMILY_HEADER_SIZE
    raw = operation.attributes
    start = 0
    while start + 4 <= len(raw):
        length, kind = ATTRIBUTE_HEADER.unpack_from(raw, start)
        if kind & TYPE_MASK == _ELEMENTS and start + 4 <= at < start + length:
            return _index_at(raw, start + 4, at)
        start += max(4, (length + 3) & ~3)
    return None


def _index_at(raw: bytes, start: int, at: int) -> int | None:
    index = 0
    while start + 4 <= len(raw):
        length, _ = ATTRIBUTE_HEADER.unpack_from(raw, start)
        start += max(4, (length + 3) & ~3)
        if at < start:
            return index
        index += 1
    return None


def _new_flags(exclusive: bool) -> int:
    return MessageFlag.CREATE | (MessageFlag.EXCL if exclusive else 0)


def _packed(elements: Iterable[bytes]) -> Iterator[bytes]:
    """Join encoded elements into as few as possible bodies that fit an attribute."""
    batch: list[bytes] = []
    room = _ROOM
    for element in elements:
        if len(element) > room:
            yield b"".join(batch)
            batch, room = [], _ROOM
        batch.append(element)
        room -= len(element)
    if batch:
        yield b"".join(batch)


def _encode_element_key(element: Element) -> bytes:
    return netlink.nested(_LIST_ELEMENT, *_key_parts(element))


def _encode_element(element: Element) -> bytes:
    parts = _key_parts(element)
    if element.data is not None:
        parts.append(netlink.nested(_DATA, encode_data(element.data)))
    if element.timeout is not None:
        parts.append(netlink.u64be(_TIMEOUT, element.timeout))
    if element.expires is not None:
        parts.append(netlink.u64be(_EXPIRATION, element.expires))
    if element.comment is not None:
        parts.append(netlink.attribute(_USERDATA, encode_comment(element.comment)))
    return netlink.nested(_LIST_ELEMENT, *parts)


def _key_parts(element: Element) -> list[bytes]:
    parts = [netlink.u32be(_FLAGS, element.flags)] if element.flags else []
    if not element.flags & ElementFlag.CATCHALL:
        parts.append(netlink.nested(_KEY, encode_data(element.key)))
    if element.key_end is not None:
        parts.append(netlink.nested(_KEY_END, encode_data(element.key_end)))
    return parts


def _elements_of(payload: bytes) -> bytes:
    found = netlink.attributes(payload, nfnetlink.FAMILY_HEADER_SIZE)
    return found.get(_ELEMENTS, b"")


def _comment_in(rest: bytes) -> str | None:
    """The comment in what follows an element's key and data: quickly where there is nothing else, as there mostly is."""
    if not rest:
        return None
    if len(rest) > 8:
        length, kind, field, size = _COMMENT.unpack_from(rest)
        if kind == _USERDATA and field == 0 and length == 6 + size <= len(rest):
            return netlink.decode_string(rest[6 : 6 + size])
    return decode_comment(netlink.attributes(rest).get(_USERDATA, b""))


def _decode_element(inside: bytes) -> Element:
    found = netlink.attributes(inside)
    counter = _counter(found)
    return Element(
        key=_decode_key(found.get(_KEY)) or b"",
        key_end=_decode_key(found.get(_KEY_END)),
        data=decode_data(found[_DATA]) if _DATA in found else None,
        flags=ElementFlag(_optional(found, _FLAGS, 4) or 0),
        timeout=_optional(found, _TIMEOUT, 8),
        expires=_optional(found, _EXPIRATION, 8),
        comment=decode_comment(found.get(_USERDATA, b"")),
        packets=None if counter is None else counter.packets,
        bytes=None if counter is None else counter.bytes,
    )


def _decode_key(value: bytes | None) -> bytes | None:
    if value is None:
        return None
    key = decode_data(value)
    if isinstance(key, Verdict):
        raise MalformedMessageError("an element whose key is a verdict")
    return key


def _optional(found: dict[int, bytes], kind: int, width: int) -> int | None:
    return netlink.decode_number(found[kind], width) if kind in found else None


def _counter(found: dict[int, bytes]) -> Counter | None:
    if _EXPRESSION not in found:
        return None
    expression = decode_expression(found[_EXPRESSION])
    return expression if isinstance(expression, Counter) else None
