"""How expressions declare their attributes once, so that writing, reading and comparing follow from one table."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, IntFlag
from typing import Any, ClassVar, Final, Self, TypeVar

from attrs import frozen

from kproxy_core.wire import netlink
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.nft_constants import Register
from kproxy_core.wire.nft_data import decode_data, encode_data

_E = TypeVar("_E", bound=IntEnum | IntFlag)
REQUIRED: Final = object()
"""Marks an attribute without which an expression makes no sense."""


@frozen
class Kind:
    """How one sort of attribute is written and read."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    nested: bool = False


@frozen
class Attribute:
    """One attribute of an expression: its number, and the field of the class that holds it.

    absent: the value that a missing attribute stands for; a field with that value is not sent.
    derived: the field is a property that follows from others; it is written, and passed over when read.
    """

    number: int
    name: str
    kind: Kind
    absent: Any = REQUIRED
    derived: bool = False


def _encode_register(register: int) -> bytes:
    number = register
    if register >= Register.R0 and not register & 3:
        number = (register - Register.R0) // 4 + 1
    return number.to_bytes(4, "big")


def _decode_register(value: bytes) -> Register:
    number = netlink.decode_number(value, 4)
    if 1 <= number <= 4:
        number = Register.R0 + 4 * (number - 1)
    try:
        return Register(number)
    except ValueError as error:
        raise MalformedMessageError(str(error)) from None


def _encode_u32(number: int) -> bytes:
    return int(number).to_bytes(4, "big")


def _encode_u64(number: int) -> bytes:
    return int(number).to_bytes(8, "big")


def _encode_u8(number: int) -> bytes:
    return int(number).to_bytes(1, "big")


def _encode_text(text: str) -> bytes:
    if "\0" in text:
        raise EncodingError(f"text with a zero byte: {text!r}")
    return text.encode() + b"\0"


def numbered(names: type[_E], width: int = 4) -> Kind:
    """A number that has names; one without a name (of a newer kernel) stays a plain number."""

    def decode(value: bytes) -> int:
        number = netlink.decode_number(value, width)
        try:
            return names(number)
        except ValueError:
            return number

    return Kind({1: _encode_u8, 4: _encode_u32}[width], decode)


REGISTER: Final = Kind(_encode_register, _decode_register)
U32: Final = Kind(_encode_u32, lambda value: netlink.decode_number(value, 4))
U64: Final = Kind(_encode_u64, lambda value: netlink.decode_number(value, 8))
U8: Final = Kind(_encode_u8, lambda value: netlink.decode_number(value, 1))
TEXT: Final = Kind(_encode_text, netlink.decode_string)
DATA: Final = Kind(encode_data, decode_data, nested=True)


def _encoded(name: str, attribute: Attribute, value: Any) -> bytes:
    try:
        return attribute.kind.encode(value)
    except (OverflowError, UnicodeEncodeError) as error:
        raise EncodingError(f"{name}: {attribute.name}={value!r}: {error}") from None


@frozen(kw_only=True)
class Expression:
    """Base of all expressions.

    NAME: the kernel's name. LAYOUT: the attributes. KNOWN: the highest attribute number that existed when this was written;
    what a newer kernel adds beyond it is passed over when reading, while one up to it that LAYOUT lacks means that the
    expression does something we cannot express. IGNORED: numbers (padding) that never mean anything.
    """

    NAME: ClassVar[str]
    LAYOUT: ClassVar[tuple[Attribute, ...]]
    KNOWN: ClassVar[int]
    IGNORED: ClassVar[frozenset[int]] = frozenset()

    def encode(self) -> bytes:
        """The inside of the expression's data attribute."""
        parts = []
        for attribute in self.LAYOUT:
            value = getattr(self, attribute.name)
            if value is None or value == attribute.absent:
                continue
            number = attribute.number | netlink.NESTED if attribute.kind.nested else attribute.number
            parts.append(netlink.attribute(number, _encoded(self.NAME, attribute, value)))
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the inside of the data attribute.

        Raises MalformedMessageError when it is not this expression or says more than this class can.
        """
        found = netlink.attributes(data)
        values: dict[str, Any] = {}
        for attribute in cls.LAYOUT:
            raw = found.pop(attribute.number, None)
            if attribute.derived:
                continue
            if raw is None and attribute.absent is REQUIRED:
                raise MalformedMessageError(f"{cls.NAME}: no {attribute.name}")
            values[attribute.name] = attribute.absent if raw is None else attribute.kind.decode(raw)
        more = [number for number in found if number <= cls.KNOWN and number not in cls.IGNORED]
        if more:
            raise MalformedMessageError(f"{cls.NAME}: attributes {more} are not understood")
        return cls(**values).normal()

    def normal(self) -> Self:
        """The same without what the kernel adds by itself."""
        return self


@frozen(kw_only=True)
class UnknownExpression:
    """An expression that this package cannot read: its name and the raw inside of its data."""

    name: str
    data: bytes

    def encode(self) -> bytes:
        """The inside, as it was."""
        return self.data
