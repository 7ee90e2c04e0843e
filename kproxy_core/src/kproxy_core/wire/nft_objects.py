"""Tables, chains, sets and rules as typed values, each with its encoding and its reading.

Handles are the kernel's and do not take part in comparisons, so a wanted object equals the one read back.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Self

from attrs import field, frozen

from kproxy_core.wire import netlink, nfnetlink
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.nfnetlink import Family
from kproxy_core.wire.nft_compare import same_expressions
from kproxy_core.wire.nft_constants import USERDATA_LIMIT, DataType, SetFlag, TableFlag, VerdictCode
from kproxy_core.wire.nft_data import decode_comment, encode_comment, encode_userdata
from kproxy_core.wire.nft_expressions import (
    AnyExpression,
    Counter,
    decode_expressions,
    encode_expression,
    encode_expressions,
)

_LIST_ELEMENT: Final = 1
_SET_KEY_BYTE_ORDER: Final = 0
_SET_DATA_BYTE_ORDER: Final = 1
_SET_COMMENT: Final = 7
_HOST_ORDER: Final = 1
_HOST_ORDER_TYPES: Final = frozenset(
    {DataType.STRING, DataType.MARK, DataType.IFACE_INDEX, DataType.FIB_ADDRTYPE, DataType.IFNAME}
)


@frozen(kw_only=True)
class Table:
    """A table; `comment` is shown by nft. A fresh process knows its own by family and name."""

    family: Family
    name: str
    flags: int = 0
    comment: str | None = None
    handle: int | None = field(default=None, eq=False)
    owner: int | None = field(default=None, eq=False)
    """Port id of the owning socket, of a table with TableFlag.OWNER."""

    def encode(self) -> bytes:
        """The attributes of a NEWTABLE message."""
        parts = [self.encode_key(), netlink.u32be(2, self.flags)]
        if self.comment is not None:
            parts.append(netlink.attribute(6, encode_comment(self.comment)))
        return b"".join(parts)

    def encode_key(self) -> bytes:
        """The attributes that name it, for get and delete requests."""
        return netlink.string(1, self.name)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read the payload of a NEWTABLE message."""
        family, found = _read(payload)
        return cls(
            family=family,
            name=_text(found, 1),
            flags=TableFlag(_optional(found, 2, 4) or 0),
            comment=decode_comment(found.get(6, b"")),
            handle=_optional(found, 4, 8),
            owner=_optional(found, 7, 4),
        )


@frozen(kw_only=True)
class BaseChain:
    """What makes a chain a base chain: its type (filter, nat, route), hook, priority and policy.

    The kernel refuses to change type, hook or priority of a chain that is there (EEXIST or EOPNOTSUPP).
    """

    type: str
    hook: int
    priority: int
    policy: int = VerdictCode.ACCEPT


@frozen(kw_only=True)
class Chain:
    """A chain; one with `base` is entered by the kernel, others by jump and goto."""

    family: Family
    table: str
    name: str
    base: BaseChain | None = None
    comment: str | None = None
    handle: int | None = field(default=None, eq=False)

    def encode(self) -> bytes:
        """The attributes of a NEWCHAIN message."""
        parts = [self.encode_key()]
        if self.base is not None:
            hook = netlink.u32be(1, self.base.hook), netlink.u32be(2, self.base.priority & 0xFFFFFFFF)
            parts += [netlink.nested(4, *hook), netlink.u32be(5, self.base.policy), netlink.string(7, self.base.type)]
        if self.comment is not None:
            parts.append(netlink.attribute(12, encode_comment(self.comment)))
        return b"".join(parts)

    def encode_key(self) -> bytes:
        """The attributes that name it, for get and delete requests."""
        return netlink.string(1, self.table) + netlink.string(3, self.name)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read the payload of a NEWCHAIN message."""
        family, found = _read(payload)
        return cls(
            family=family,
            table=_text(found, 1),
            name=_text(found, 3),
            base=_decode_base(found) if 4 in found else None,
            comment=decode_comment(found.get(12, b"")),
            handle=_optional(found, 2, 8),
        )


def _decode_base(found: dict[int, bytes]) -> BaseChain:
    hook = netlink.attributes(found[4])
    priority = netlink.decode_number(hook.get(2, b""), 4)
    return BaseChain(
        type=_text(found, 7),
        hook=netlink.decode_number(hook.get(1, b""), 4),
        priority=priority - (1 << 32) if priority >> 31 else priority,
        policy=_optional(found, 5, 4) or 0,
    )


@frozen(kw_only=True)
class Set:
    """A set or, with `data_length`, a map.

    key_type, data_type: nft's data types (DataType, concatenated()), for nft's listing only; DataType.VERDICT makes a map
    of verdicts. key_length, data_length: bytes, every field of a concatenation rounded up to 4. size: the most elements it
    may hold (0: no limit; a set that packets add to should have one). timeout, gc_interval: milliseconds, 0 for none.
    field_lengths: bytes of each field of a concatenation, only with SetFlag.CONCAT, which only intervals of concatenations
    need. counter: every element counts packets and bytes (kernel 5.7 and later). userdata: see set_userdata().
    """

    family: Family
    table: str
    name: str
    key_type: int
    key_length: int
    data_type: int | None = None
    data_length: int | None = None
    flags: int = 0
    size: int = 0
    timeout: int = 0
    gc_interval: int = 0
    policy: int = 0
    """0: for speed, 1: for memory; a hint for the kernel's choice of a structure."""
    field_lengths: tuple[int, ...] = ()
    counter: bool = False
    userdata: bytes = b""
    handle: int | None = field(default=None, eq=False)

    @property
    def comment(self) -> str | None:
        """The comment that nft shows."""
        return decode_comment(self.userdata, _SET_COMMENT)

    def encode(self) -> bytes:
        """The attributes of a NEWSET message."""
        parts = [self.encode_key(), netlink.u32be(3, self.flags)]
        parts += [netlink.u32be(4, self.key_type), netlink.u32be(5, self.key_length)]
        if self.data_type is not None:
            parts += [netlink.u32be(6, self.data_type), netlink.u32be(7, self.data_length or 0)]
        parts += [netlink.u32be(8, self.policy)] if self.policy else []
        parts += [self._encode_description()] if self.size or self.field_lengths else []
        # The kernel demands a number for the set; it would be used only if a lookup named no set.
        parts.append(netlink.u32be(10, zlib.crc32(self.name.encode())))
        parts += [netlink.u64be(11, self.timeout)] if self.timeout else []
        parts += [netlink.u32be(12, self.gc_interval)] if self.gc_interval else []
        userdata = _byte_orders(self.key_type, self.data_type) + self.userdata
        if len(userdata) > USERDATA_LIMIT:
            raise EncodingError(f"set {self.name}: userdata of {len(userdata)} bytes, at most {USERDATA_LIMIT} fit")
        parts += [netlink.attribute(13, userdata)] if userdata else []
        parts += [netlink.nested(17, encode_expression(Counter()))] if self.counter else []
        return b"".join(parts)

    def _encode_description(self) -> bytes:
        parts = [netlink.u32be(1, self.size)] if self.size else []
        if self.field_lengths:
            lengths = (netlink.nested(_LIST_ELEMENT, netlink.u32be(1, length)) for length in self.field_lengths)
            parts.append(netlink.nested(2, *lengths))
        return netlink.nested(9, *parts)

    def encode_key(self) -> bytes:
        """The attributes that name it, for get and delete requests."""
        return netlink.string(1, self.table) + netlink.string(2, self.name)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read the payload of a NEWSET message."""
        family, found = _read(payload)
        description = netlink.attributes(found.get(9, b""))
        key_type, data_type = _optional(found, 4, 4) or 0, _optional(found, 6, 4)
        return cls(
            family=family,
            table=_text(found, 1),
            name=_text(found, 2),
            flags=SetFlag(_optional(found, 3, 4) or 0),
            key_type=key_type,
            key_length=_number(found, 5, 4),
            data_type=data_type,
            data_length=_optional(found, 7, 4),
            policy=_optional(found, 8, 4) or 0,
            size=_optional(description, 1, 4) or 0,
            field_lengths=_decode_field_lengths(description.get(2, b"")),
            timeout=_optional(found, 11, 8) or 0,
            gc_interval=_optional(found, 12, 4) or 0,
            userdata=found.get(13, b"").removeprefix(_byte_orders(key_type, data_type)),
            counter=17 in found,
            handle=_optional(found, 16, 8),
        )


def _decode_field_lengths(value: bytes) -> tuple[int, ...]:
    fields = (netlink.attributes(inside) for _, inside in netlink.iter_attributes(value))
    return tuple(_number(found, 1, 4) for found in fields)


def _byte_orders(key_type: int, data_type: int | None) -> bytes:
    """The userdata without which nft prints numbers of these types with their bytes swapped.

    Only for types in host order: nft 1.0.6 aborts when a map of verdicts has a byte order.
    """
    types = {_SET_KEY_BYTE_ORDER: key_type, _SET_DATA_BYTE_ORDER: data_type}
    host = _HOST_ORDER.to_bytes(4, sys.byteorder)
    return encode_userdata({kind: host for kind, data_type in types.items() if data_type in _HOST_ORDER_TYPES})


def set_userdata(*, comment: str | None = None, others: Mapping[int, bytes] = MappingProxyType({})) -> bytes:
    """Userdata of a set: a comment that nft shows, and other fields of nft's by number."""
    return encode_userdata(others) + (b"" if comment is None else encode_comment(comment, _SET_COMMENT))


@frozen(kw_only=True)
class Rule:
    """A rule that is wanted; `comment` is shown by nft. With a handle it replaces that rule."""

    family: Family
    table: str
    chain: str
    expressions: tuple[AnyExpression, ...]
    comment: str | None = None
    handle: int | None = field(default=None, eq=False)
    position: int | None = field(default=None, eq=False)
    """Handle of the rule after which (when added) or before which (when inserted) it goes."""

    def encode(self) -> bytes:
        """The attributes of a NEWRULE message."""
        parts = [netlink.string(1, self.table), netlink.string(2, self.chain)]
        parts += [netlink.u64be(3, self.handle)] if self.handle is not None else []
        parts.append(netlink.nested(4, self.encode_expressions()))
        parts += [netlink.u64be(6, self.position)] if self.position is not None else []
        if self.comment is not None:
            parts.append(netlink.attribute(7, encode_comment(self.comment)))
        return b"".join(parts)

    def encode_expressions(self) -> bytes:
        """The list of expressions, as same_expressions() compares it."""
        return encode_expressions(self.expressions)

    def matches(self, dumped: DumpedRule) -> bool:
        """Whether the kernel's rule is this one: same place, same comment, and it does the same."""
        return (
            (self.family, self.table, self.chain, self.comment) == (dumped.family, dumped.table, dumped.chain, dumped.comment)
        ) and same_expressions(self.encode_expressions(), dumped.expressions)


@frozen(kw_only=True)
class DumpedRule:
    """A rule as the kernel lists it, its expressions still packed."""

    family: Family
    table: str
    chain: str
    handle: int
    expressions: bytes
    comment: str | None = None

    def encode_key(self) -> bytes:
        """The attributes that name it, for get and delete requests."""
        return netlink.string(1, self.table) + netlink.string(2, self.chain) + netlink.u64be(3, self.handle)

    def decoded(self) -> tuple[AnyExpression, ...]:
        """The expressions as typed values.

        Raises MalformedMessageError when they cannot be read.
        """
        return decode_expressions(self.expressions)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read the payload of a NEWRULE message."""
        family, found = _read(payload)
        return cls(
            family=family,
            table=_text(found, 1),
            chain=_text(found, 2),
            handle=_number(found, 3, 8),
            expressions=found.get(4, b""),
            comment=decode_comment(found.get(7, b"")),
        )


@frozen(kw_only=True)
class NamedObject:
    """A counter, quota, limit or the like that rules share by its name: which one it is, not what it holds."""

    family: Family
    table: str
    name: str
    type: int
    """The kernel's number for its kind (NFT_OBJECT_*), of which each has names of its own."""

    def encode_key(self) -> bytes:
        """The attributes that name it, for get and delete requests."""
        return netlink.string(1, self.table) + netlink.string(2, self.name) + netlink.u32be(3, self.type)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read the payload of a NEWOBJ message."""
        family, found = _read(payload)
        return cls(family=family, table=_text(found, 1), name=_text(found, 2), type=_number(found, 3, 4))


@frozen(kw_only=True)
class Flowtable:
    """A table of connections that pass the usual way by: which one it is."""

    family: Family
    table: str
    name: str

    def encode_key(self) -> bytes:
        """The attributes that name it, for get and delete requests."""
        return netlink.string(1, self.table) + netlink.string(2, self.name)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read the payload of a NEWFLOWTABLE message."""
        family, found = _read(payload)
        return cls(family=family, table=_text(found, 1), name=_text(found, 2))


def _read(payload: bytes) -> tuple[Family, dict[int, bytes]]:
    number = nfnetlink.decode_family(payload)
    try:
        family = Family(number)
    except ValueError as error:
        raise MalformedMessageError(str(error)) from None
    return family, netlink.attributes(payload, nfnetlink.FAMILY_HEADER_SIZE)


def _text(found: dict[int, bytes], kind: int) -> str:
    if kind not in found:
        raise MalformedMessageError(f"attribute {kind} is missing")
    return netlink.decode_string(found[kind])


def _number(found: dict[int, bytes], kind: int, width: int) -> int:
    if kind not in found:
        raise MalformedMessageError(f"attribute {kind} is missing")
    return netlink.decode_number(found[kind], width)


def _optional(found: dict[int, bytes], kind: int, width: int) -> int | None:
    return netlink.decode_number(found[kind], width) if kind in found else None
