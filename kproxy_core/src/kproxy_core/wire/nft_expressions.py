"""The expressions of which rules are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, Self

from attrs import evolve, field, frozen

from kproxy_core.wire import netlink
from kproxy_core.wire.errors import MalformedMessageError
from kproxy_core.wire.nfnetlink import Family
from kproxy_core.wire.nft_constants import (
    CompareOp,
    CtDirection,
    CtKey,
    DynsetOp,
    FibFlag,
    FibResult,
    MetaKey,
    NatFlag,
    NatType,
    NumgenType,
    PayloadBase,
    Register,
    RejectType,
)
from kproxy_core.wire.nft_data import Verdict
from kproxy_core.wire.nft_layout import (
    DATA,
    REGISTER,
    TEXT,
    U8,
    U32,
    U64,
    Attribute,
    Expression,
    UnknownExpression,
    numbered,
)

_LIST_ELEMENT: Final = 1
_NAME: Final = 1
_DATA: Final = 2


@frozen(kw_only=True)
class PayloadLoad(Expression):
    """Load `length` bytes of the packet, from `offset` in the header `base`, into `dreg` (network order)."""

    NAME: ClassVar[str] = "payload"
    KNOWN: ClassVar[int] = 8
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(1, "dreg", REGISTER),
        Attribute(2, "base", numbered(PayloadBase)),
        Attribute(3, "offset", U32),
        Attribute(4, "length", U32),
    )
    dreg: int
    base: int
    offset: int
    length: int


@frozen(kw_only=True)
class MetaLoad(Expression):
    """Load a fact about the packet (numbers in host order, names padded to 16 bytes)."""

    NAME: ClassVar[str] = "meta"
    KNOWN: ClassVar[int] = 3
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(1, "dreg", REGISTER),
        Attribute(2, "key", numbered(MetaKey)),
    )
    dreg: int
    key: int


@frozen(kw_only=True)
class MetaSet(Expression):
    """Write a register into a fact about the packet (the mark, mostly)."""

    NAME: ClassVar[str] = "meta"
    KNOWN: ClassVar[int] = 3
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(2, "key", numbered(MetaKey)),
        Attribute(3, "sreg", REGISTER),
    )
    key: int
    sreg: int


@frozen(kw_only=True)
class CtLoad(Expression):
    """Load a fact about the connection; `direction` for those that each of its two tuples has."""

    NAME: ClassVar[str] = "ct"
    KNOWN: ClassVar[int] = 4
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(1, "dreg", REGISTER),
        Attribute(2, "key", numbered(CtKey)),
        Attribute(3, "direction", numbered(CtDirection, 1), None),
    )
    dreg: int
    key: int
    direction: int | None = None


@frozen(kw_only=True)
class CtSet(Expression):
    """Write a register into a fact about the connection (its mark, mostly)."""

    NAME: ClassVar[str] = "ct"
    KNOWN: ClassVar[int] = 4
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(2, "key", numbered(CtKey)),
        Attribute(4, "sreg", REGISTER),
    )
    key: int
    sreg: int


@frozen(kw_only=True)
class Compare(Expression):
    """Go on only if `sreg` compares so with `data`."""

    NAME: ClassVar[str] = "cmp"
    KNOWN: ClassVar[int] = 3
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(1, "sreg", REGISTER),
        Attribute(2, "op", numbered(CompareOp)),
        Attribute(3, "data", DATA),
    )
    sreg: int
    op: int = CompareOp.EQ
    data: bytes


@frozen(kw_only=True)
class Bitwise(Expression):
    """dreg = (sreg & mask) ^ xor; mask and xor are equally long."""

    NAME: ClassVar[str] = "bitwise"
    KNOWN: ClassVar[int] = 7
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(1, "sreg", REGISTER),
        Attribute(2, "dreg", REGISTER),
        Attribute(3, "length", U32, derived=True),
        Attribute(4, "mask", DATA),
        Attribute(5, "xor", DATA),
        Attribute(6, "op", U32, 0),
    )
    sreg: int
    dreg: int
    mask: bytes
    xor: bytes
    op: int = 0

    @property
    def length(self) -> int:
        """Bytes that are changed."""
        return len(self.mask)


@frozen(kw_only=True)
class Immediate(Expression):
    """Load a constant into `dreg`, or, with a Verdict and Register.VERDICT, end the rule with it."""

    NAME: ClassVar[str] = "immediate"
    KNOWN: ClassVar[int] = 2
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(1, "dreg", REGISTER),
        Attribute(2, "data", DATA),
    )
    dreg: int = Register.VERDICT
    data: bytes | Verdict


@frozen(kw_only=True)
class Lookup(Expression):
    """Look `sreg` up in a set: go on only if it is there (or, `inverted`, if it is not).

    With `dreg` the value found goes there; Register.VERDICT for a map of verdicts.
    """

    NAME: ClassVar[str] = "lookup"
    KNOWN: ClassVar[int] = 5
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(1, "set_name", TEXT),
        Attribute(2, "sreg", REGISTER),
        Attribute(3, "dreg", REGISTER, None),
        Attribute(5, "flags", U32, 0),
    )
    set_name: str
    sreg: int
    dreg: int | None = None
    flags: int = 0
    """1: inverted."""


@frozen(kw_only=True)
class Numgen(Expression):
    """Put a number from `offset` to `offset + modulus - 1` into `dreg` (host order)."""

    NAME: ClassVar[str] = "numgen"
    KNOWN: ClassVar[int] = 6
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(1, "dreg", REGISTER),
        Attribute(2, "modulus", U32),
        Attribute(3, "type", numbered(NumgenType)),
        Attribute(4, "offset", U32, 0),
    )
    dreg: int
    modulus: int
    type: int = NumgenType.RANDOM
    offset: int = 0


@frozen(kw_only=True)
class Dynset(Expression):
    """Let the packet add to, refresh in or delete from a set the key in `key` (and for a map the value in `data`).

    timeout: milliseconds; the kernel counts in ticks, so use multiples of 10 if a listing must give the same number back.
    """

    NAME: ClassVar[str] = "dynset"
    KNOWN: ClassVar[int] = 10
    IGNORED: ClassVar[frozenset[int]] = frozenset({8})
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(1, "set_name", TEXT),
        Attribute(3, "op", numbered(DynsetOp)),
        Attribute(4, "key", REGISTER),
        Attribute(5, "data", REGISTER, None),
        Attribute(6, "timeout", U64, 0),
        Attribute(9, "flags", U32, 0),
    )
    set_name: str
    op: int
    key: int
    data: int | None = None
    timeout: int = 0
    flags: int = 0


@frozen(kw_only=True)
class Nat(Expression):
    """Rewrite an address (and port), taken from registers; in ranges up to `address_max` and `port_max`."""

    NAME: ClassVar[str] = "nat"
    KNOWN: ClassVar[int] = 7
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(1, "type", numbered(NatType)),
        Attribute(2, "family", numbered(Family)),
        Attribute(3, "address", REGISTER, None),
        Attribute(4, "address_max", REGISTER, None),
        Attribute(5, "port", REGISTER, None),
        Attribute(6, "port_max", REGISTER, None),
        Attribute(7, "flags", numbered(NatFlag), 0),
    )
    type: int = NatType.DNAT
    family: int
    address: int | None = None
    address_max: int | None = None
    port: int | None = None
    port_max: int | None = None
    flags: int = 0

    def normal(self) -> Self:
        """Without the range ends and flags that the kernel derives from the rest."""
        return evolve(
            self,
            address_max=None if self.address_max == self.address else self.address_max,
            port_max=None if self.port_max == self.port else self.port_max,
            flags=self.flags & ~(NatFlag.MAP_IPS | NatFlag.PROTO_SPECIFIED),
        )


@frozen(kw_only=True)
class Masquerade(Expression):
    """Rewrite the source address to the outgoing interface's; flags RANDOM, FULLY_RANDOM, PERSISTENT."""

    NAME: ClassVar[str] = "masq"
    KNOWN: ClassVar[int] = 3
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(1, "flags", numbered(NatFlag), 0),
        Attribute(2, "port", REGISTER, None),
        Attribute(3, "port_max", REGISTER, None),
    )
    flags: int = 0
    port: int | None = None
    port_max: int | None = None

    def normal(self) -> Self:
        """Without the range ends and flags that the kernel derives from the rest."""
        return evolve(
            self,
            port_max=None if self.port_max == self.port else self.port_max,
            flags=self.flags & ~NatFlag.PROTO_SPECIFIED,
        )


@frozen(kw_only=True)
class Reject(Expression):
    """Refuse the packet; `code` is the ICMP code of the two ICMP types, None for TCP_RST."""

    NAME: ClassVar[str] = "reject"
    KNOWN: ClassVar[int] = 2
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(1, "type", numbered(RejectType)),
        Attribute(2, "code", U8, None),
    )
    type: int
    code: int | None = None


@frozen(kw_only=True)
class Fib(Expression):
    """Ask the routing tables about the packet's source or destination."""

    NAME: ClassVar[str] = "fib"
    KNOWN: ClassVar[int] = 3
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(1, "dreg", REGISTER),
        Attribute(2, "result", numbered(FibResult)),
        Attribute(3, "flags", numbered(FibFlag)),
    )
    dreg: int
    result: int
    flags: int


@frozen(kw_only=True)
class Counter(Expression):
    """Count packets and bytes; the counts do not take part in comparisons."""

    NAME: ClassVar[str] = "counter"
    KNOWN: ClassVar[int] = 3
    IGNORED: ClassVar[frozenset[int]] = frozenset({3})
    LAYOUT: ClassVar[tuple[Attribute, ...]] = (
        Attribute(1, "bytes", U64, 0),
        Attribute(2, "packets", U64, 0),
    )
    bytes: int = field(default=0, eq=False)
    packets: int = field(default=0, eq=False)


AnyExpression = Expression | UnknownExpression

_BY_NAME: Final[Mapping[str, tuple[type[Expression], ...]]] = {
    "payload": (PayloadLoad,),
    "meta": (MetaLoad, MetaSet),
    "ct": (CtLoad, CtSet),
    "cmp": (Compare,),
    "bitwise": (Bitwise,),
    "immediate": (Immediate,),
    "lookup": (Lookup,),
    "numgen": (Numgen,),
    "dynset": (Dynset,),
    "nat": (Nat,),
    "masq": (Masquerade,),
    "reject": (Reject,),
    "fib": (Fib,),
    "counter": (Counter,),
}


def verdict(value: Verdict) -> Immediate:
    """End the rule with this verdict."""
    return Immediate(dreg=Register.VERDICT, data=value)


def encode_expression(expression: AnyExpression) -> bytes:
    """Name and data, as inside a list element or a set's expression attribute."""
    name = expression.name if isinstance(expression, UnknownExpression) else expression.NAME
    return netlink.string(_NAME, name) + netlink.nested(_DATA, expression.encode())


def decode_expression(value: bytes) -> AnyExpression:
    """Read name and data; what no class here can express becomes an UnknownExpression.

    Raises MalformedMessageError for bytes that are no expression at all.
    """
    found = netlink.attributes(value)
    if _NAME not in found:
        raise MalformedMessageError("an expression without a name")
    name, data = netlink.decode_string(found[_NAME]), found.get(_DATA, b"")
    for candidate in _BY_NAME.get(name, ()):
        try:
            return candidate.decode(data)
        except MalformedMessageError:
            continue
    return UnknownExpression(name=name, data=data)


def encode_expressions(expressions: Iterable[AnyExpression]) -> bytes:
    """A rule's list of expressions (the inside of its attribute)."""
    return b"".join(netlink.nested(_LIST_ELEMENT, encode_expression(e)) for e in expressions)


def decode_expressions(value: bytes) -> tuple[AnyExpression, ...]:
    """Read a rule's list of expressions.

    Raises MalformedMessageError for bytes that are no such list.
    """
    return tuple(decode_expression(inside) for kind, inside in netlink.iter_attributes(value) if kind == _LIST_ELEMENT)
