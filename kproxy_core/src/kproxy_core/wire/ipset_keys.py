"""The keys of the types of sets: packed bytes with the parts in the order of the type's name, their text, their attributes."""

from __future__ import annotations

import struct
from enum import Enum
from functools import cache
from ipaddress import ip_address
from operator import itemgetter
from typing import Final

from attrs import frozen

from kproxy_core.wire import netlink
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.ipset_constants import NETWORK_ORDER, DataAttribute
from kproxy_core.wire.netlink import ATTRIBUTE_HEADER, NESTED
from kproxy_core.wire.nfnetlink import Family


class SetType(Enum):
    """The types of sets; the value is the kernel's name. HASH_IP_MARK is missing in some kernels."""

    HASH_IP = "hash:ip"
    HASH_NET = "hash:net"
    HASH_IP_PORT = "hash:ip,port"
    HASH_NET_PORT = "hash:net,port"
    HASH_IP_PORT_IP = "hash:ip,port,ip"
    HASH_IP_PORT_NET = "hash:ip,port,net"
    HASH_IP_MARK = "hash:ip,mark"
    BITMAP_PORT = "bitmap:port"

    @property
    def is_bitmap(self) -> bool:
        """Whether it has a range and no family, instead of a hash."""
        return self is SetType.BITMAP_PORT

    @property
    def revision(self) -> int:
        """The revision that has all that is used here (kernel 3.18 and later).

        Not the kernel's newest: an `ipset` program older than the kernel refuses to list a set whose revision it does not know.
        """
        return _REVISIONS[self]


_REVISIONS: Final = {
    SetType.HASH_IP: 4,
    SetType.HASH_NET: 6,
    SetType.HASH_IP_PORT: 5,
    SetType.HASH_NET_PORT: 7,
    SetType.HASH_IP_PORT_IP: 5,
    SetType.HASH_IP_PORT_NET: 7,
    SetType.HASH_IP_MARK: 2,
    SetType.BITMAP_PORT: 3,
}
_PROTOCOLS: Final = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6", 132: "sctp", 136: "udplite"}
_IP_IN: Final = {Family.IPV4: (1, 4), Family.IPV6: (2, 16)}
_WIRE_ORDER: Final = (
    DataAttribute.IP,
    DataAttribute.IP2,
    DataAttribute.PORT,
    DataAttribute.CIDR,
    DataAttribute.CIDR2,
    DataAttribute.PROTO,
    DataAttribute.MARK,
)
"""The order in which the kernel lists them; it takes them in any."""
_LENGTHS: Final = {DataAttribute.CIDR: DataAttribute.IP, DataAttribute.CIDR2: DataAttribute.IP2}

Part = bytes | int


@frozen
class _Field:
    """One part of a key: its attribute, where it lies in the packed key, and how wide it is in bytes."""

    attribute: DataAttribute
    start: int
    width: int

    @property
    def place(self) -> slice:
        return slice(self.start, self.start + self.width)


class KeyForm:
    """The keys of one type and family.

    A key is packed from these parts, by the words of the type's name: `ip` is an address (4 or 16 bytes); `net` an address and a
    prefix length (a number); `port` a protocol and a port (numbers; in a bitmap only the port); `mark` a number. So a key of
    hash:ip,port,net has the parts address, protocol, port, address, length.
    """

    def __init__(self, kind: SetType, family: Family) -> None:
        """Made once per type and family by key_form()."""
        self.type = kind
        self._words = kind.value.partition(":")[2].split(",")
        self._address_kind, size = _IP_IN.get(family, (0, 0))
        if not size and not kind.is_bitmap:
            raise EncodingError(f"a set of type {kind.value} needs the family IPv4 or IPv6")
        self._fields = _fields(self._words, size, kind)
        self._struct = struct.Struct("!" + "".join(_format(field) for field in self._fields))
        self.length = self._struct.size
        """Bytes of a packed key."""
        self._on_wire = sorted(self._fields, key=lambda field: _WIRE_ORDER.index(field.attribute))
        self._pick = itemgetter(*(field.place for field in self._on_wire))
        order = [self._on_wire.index(field) for field in self._fields]
        self._key_order = itemgetter(*order) if len(order) > 1 else lambda parts: parts
        parts = [self._around(field, NETWORK_ORDER) for field in self._on_wire]
        self._template = b"".join(before.replace(b"%", b"%%") + b"%b" + after for before, after in parts)
        listed = [self._around(field, 0) for field in self._on_wire]
        self._constants = tuple(before for before, _ in listed)
        self._listed = struct.Struct(
            "=" + "".join(f"{len(b)}s{f.width}s{len(a)}x" for f, (b, a) in zip(self._on_wire, listed, strict=True))
        )
        self.encoded_length = len(self._template % self._pick(bytes(self.length)))
        """Bytes of a key's attributes."""

    def _around(self, field: _Field, address_flag: int) -> tuple[bytes, bytes]:
        """The bytes before and after a field's value: headers and padding.

        The kernel wants to be told the order of the bytes of an address, but does not tell it.
        """
        pack, width = ATTRIBUTE_HEADER.pack, field.width
        if field.attribute in (DataAttribute.IP, DataAttribute.IP2):
            inner = pack(4 + width, self._address_kind | address_flag)
            return pack(8 + width, field.attribute | NESTED) + inner, b""
        flag = NETWORK_ORDER if width > 1 else 0
        return pack(4 + width, field.attribute | flag), netlink.padding(width)

    def pack(self, *parts: Part) -> bytes:
        """A key from its parts; host bits of networks are let be (the kernel clears them).

        Raises EncodingError for a wrong number of parts, an address of another family, numbers out of range, and a prefix of
        length 0, which sets cannot hold (see halves()).
        """
        if len(parts) != len(self._fields):
            raise EncodingError(f"{self.type.value}: {len(parts)} parts of a key, {len(self._fields)} expected")
        for field, part in zip(self._fields, parts, strict=True):
            self._check(field, part)
        try:
            return self._struct.pack(*parts)
        except struct.error as error:
            raise EncodingError(f"{self.type.value}: {error}") from None

    def _check(self, field: _Field, part: Part) -> None:
        if isinstance(part, bytes) and len(part) != field.width:
            raise EncodingError(f"{self.type.value}: an address of {len(part)} bytes, {field.width} expected")
        if field.attribute in _LENGTHS and isinstance(part, int) and not 1 <= part <= 8 * self._address_size:
            raise EncodingError(f"{self.type.value}: a prefix length of {part}, allowed are 1 to {8 * self._address_size}")

    @property
    def _address_size(self) -> int:
        return 4 if self._address_kind == 1 else 16

    def parts(self, key: bytes) -> tuple[Part, ...]:
        """The parts of a packed key."""
        self.check(key)
        return self._struct.unpack(key)

    def check(self, key: bytes) -> None:
        """Raises EncodingError unless a key has the right length."""
        if len(key) != self.length:
            raise EncodingError(f"{self.type.value}: a key of {len(key)} bytes, {self.length} expected")

    def text(self, key: bytes) -> str:
        """The key as the `ipset` program writes it: `10.0.0.1,tcp:80,10.1.0.0/16`."""
        rest = list(self.parts(key))
        return ",".join(self._word(word, rest) for word in self._words)

    def _word(self, word: str, rest: list[Part]) -> str:
        first = rest.pop(0)
        if isinstance(first, bytes):
            address = str(ip_address(first))
            length = rest.pop(0) if word == "net" else 8 * len(first)
            return address if length == 8 * len(first) else f"{address}/{length!s}"
        if word == "mark":
            return f"0x{first:08x}"
        return str(first) if self.type.is_bitmap else f"{_PROTOCOLS.get(first, first)}:{rest.pop(0)!s}"

    def encode(self, key: bytes) -> bytes:
        """The attributes of a key, which must have the right length."""
        encoded: bytes = self._template % self._pick(key)
        return encoded

    def decode(self, buffer: bytes, start: int, end: int) -> tuple[bytes, int]:
        """Read a key from the attributes in buffer[start:end]: it, and where those begin that are not the key's.

        Raises MalformedMessageError where a part is missing.
        """
        if end - start >= self._listed.size:
            row = self._listed.unpack_from(buffer, start)
            if row[::2] == self._constants:
                return b"".join(self._key_order(row[1::2])), start + self._listed.size
        return self._decode_any(netlink.attributes(buffer, start, end)), start

    def _decode_any(self, found: dict[int, bytes]) -> bytes:
        return b"".join(self._value(field, found) for field in self._fields)

    def _value(self, field: _Field, found: dict[int, bytes]) -> bytes:
        value = found.get(field.attribute)
        if value is None and field.attribute in _LENGTHS:
            return bytes((8 * self._address_size,))
        if value is not None and field.attribute in (DataAttribute.IP, DataAttribute.IP2):
            value = netlink.attributes(value).get(self._address_kind)
        if value is None or len(value) != field.width:
            raise MalformedMessageError(f"{self.type.value}: an element without {field.attribute.name}")
        return value


def _fields(words: list[str], address_size: int, kind: SetType) -> list[_Field]:
    shape: list[tuple[DataAttribute, int]] = []
    for word in words:
        if word in ("ip", "net"):
            second = any(attribute == DataAttribute.IP for attribute, _ in shape)
            shape.append((DataAttribute.IP2 if second else DataAttribute.IP, address_size))
            if word == "net":
                shape.append((DataAttribute.CIDR2 if second else DataAttribute.CIDR, 1))
        elif word == "mark":
            shape.append((DataAttribute.MARK, 4))
        else:
            shape += [(DataAttribute.PORT, 2)] if kind.is_bitmap else [(DataAttribute.PROTO, 1), (DataAttribute.PORT, 2)]
    starts = [sum(width for _, width in shape[:index]) for index in range(len(shape))]
    return [_Field(attribute, start, width) for (attribute, width), start in zip(shape, starts, strict=True)]


def _format(field: _Field) -> str:
    if field.attribute in (DataAttribute.IP, DataAttribute.IP2):
        return f"{field.width}s"
    return {1: "B", 2: "H", 4: "I"}[field.width]


@cache
def key_form(kind: SetType, family: Family) -> KeyForm:
    """The form of the keys of a type and family (of a bitmap: any family)."""
    return KeyForm(kind, family)


def halves(family: Family) -> tuple[tuple[bytes, int], tuple[bytes, int]]:
    """Both halves of all addresses, each as address and prefix length: what to put in a set for 0.0.0.0/0 or ::/0."""
    size = _IP_IN[family][1]
    return (bytes(size), 1), (b"\x80" + bytes(size - 1), 1)
