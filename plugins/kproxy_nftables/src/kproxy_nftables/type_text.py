"""Spells packed values as nft does: addresses, ports, protocols and marks, by nft's own data types."""

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from kproxy_core.model.addresses import Address
from kproxy_core.model.names import Protocol
from kproxy_core.wire.nft_constants import DataType

_TYPE_BITS: Final = 6
_WIDTHS: Final = {DataType.IPV4_ADDR: 4, DataType.IPV6_ADDR: 16}
_TYPE_NAMES: Final = {
    DataType.IPV4_ADDR: "ipv4_addr",
    DataType.IPV6_ADDR: "ipv6_addr",
    DataType.INET_PROTOCOL: "inet_proto",
    DataType.INET_SERVICE: "inet_service",
    DataType.MARK: "mark",
    DataType.VERDICT: "verdict",
}


def types_of(number: int) -> list[DataType]:
    """Return the types that are concatenated in a set's type number."""
    if number == DataType.VERDICT:
        return [DataType.VERDICT]
    types: list[DataType] = []
    while number:
        types.append(DataType(number & ((1 << _TYPE_BITS) - 1)))
        number >>= _TYPE_BITS
    return types[::-1]


def type_text(number: int) -> str:
    """Return a set's type: ``ipv4_addr . inet_service``."""
    return " . ".join(_TYPE_NAMES[kind] for kind in types_of(number))


def width(kind: DataType) -> int:
    """Return how many bytes a part of a concatenation takes: whole registers."""
    return _WIDTHS.get(kind, 4)


def split(types: Iterable[DataType], packed: bytes) -> Iterator[str]:
    """Yield the parts of a packed key or value as text."""
    start = 0
    for kind in types:
        yield value_text(kind, packed[start : start + width(kind)])
        start += width(kind)


def concatenation(types: Iterable[DataType], packed: bytes) -> str:
    """Return the parts of a packed key or value, joined as nft joins them."""
    return " . ".join(split(types, packed))


def value_text(kind: DataType, raw: bytes) -> str:
    """Return one value."""
    match kind:
        case DataType.IPV4_ADDR | DataType.IPV6_ADDR:
            return str(Address(raw))
        case DataType.INET_PROTOCOL:
            return Protocol(raw[0]).name.lower() if raw[0] in set(Protocol) else str(raw[0])
        case DataType.INET_SERVICE:
            return str(int.from_bytes(raw[:2], "big"))
        case _:
            return str(int.from_bytes(raw, sys.byteorder))
