"""Shows a program as text for people: sets and elements as nft prints them, rules as nft's netlink debugging does.

nft's own language cannot express these rules (a map's result in another lookup's key), so each is shown expression by expression
below the comment that says what it is for.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import asdict

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.names import Protocol
from kproxy_core.program.program import Program, objects
from kproxy_core.wire.nft_constants import DataType, Register
from kproxy_core.wire.nft_data import Verdict
from kproxy_core.wire.nft_expressions import AnyExpression
from kproxy_core.wire.nft_layout import UnknownExpression
from kproxy_core.wire.nft_objects import Set
from kproxy_nftables.objects import FAMILY_NAMES, TABLE, Chain, Key, Owned, Value
from kproxy_nftables.sets import shapes

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
_REGISTER_FIELDS: Final = frozenset({"dreg", "sreg", "key_register", "address", "address_max", "port", "port_max", "data"})
_HOOK_NAMES: Final = ("prerouting", "input", "forward", "output", "postrouting")


def render(program: Program[Key, Value]) -> str:
    """Return the whole program as text, sorted, the same for the same objects."""
    everything = objects(program)
    places: dict[str, dict[str | bytes, Value]] = defaultdict(dict)
    for (place, name), value in everything.items():
        places[place][name] = value
    lines: list[str] = []
    for family in Family:
        if (FAMILY_NAMES[family], "table") in everything:
            lines += _table(family, places)
    return "\n".join(lines) + "\n"


def _table(family: Family, places: Mapping[str, Mapping[str | bytes, Value]]) -> Iterable[str]:
    name = FAMILY_NAMES[family]
    yield f"table {name} {TABLE} {{"
    for shape in shapes(family).values():
        yield from _set(shape, places.get(f"{name} {shape.name}", {}))
    for chain_name, chain in sorted(places.get(f"{name} chain", {}).items(), key=lambda item: str(item[0])):
        if isinstance(chain, Chain):
            yield from _chain(str(chain_name), chain)
    yield "}"


def _types(number: int) -> list[DataType]:
    if number == DataType.VERDICT:
        return [DataType.VERDICT]
    types: list[DataType] = []
    while number:
        types.append(DataType(number & ((1 << _TYPE_BITS) - 1)))
        number >>= _TYPE_BITS
    return types[::-1]


def _type_text(number: int) -> str:
    return " . ".join(_TYPE_NAMES[kind] for kind in _types(number))


def _set(shape: Set, elements: Mapping[str | bytes, Value]) -> Iterable[str]:
    kind = "set" if shape.data_type is None else "map"
    data = "" if shape.data_type is None else f" : {_type_text(shape.data_type)}"
    yield f"\t{kind} {shape.name} {{"
    yield f"\t\ttype {_type_text(shape.key_type)}{data}"
    rows = sorted((key, value) for key, value in elements.items() if isinstance(key, bytes)) if elements else []
    if rows:
        yield "\t\telements = {"
        yield from (f"\t\t\t{_element(shape, key, value)}," for key, value in rows)
        yield "\t\t}"
    yield "\t}"


def _element(shape: Set, key: bytes, value: Value) -> str:
    types = _types(shape.key_type)
    text = fields(types, key[: shape.key_length])
    if len(key) > shape.key_length:
        last = fields(types[1:], key[shape.key_length + 4 :])
        text = f"{text}-{last}"
    match value:
        case Owned(data=data, owner=owner):
            return f'{text} comment "{owner}" : {fields(_types(shape.data_type or 0), data)}'
        case Verdict():
            return f"{text} : {value}"
        case bytes() if value:
            return f"{text} : {fields(_types(shape.data_type or 0), value)}"
        case _:
            return text


def fields(types: Iterable[DataType], packed: bytes) -> str:
    """Return the parts of a packed key or value, joined as nft joins them."""
    parts: list[str] = []
    start = 0
    for kind in types:
        width = _WIDTHS.get(kind, 4)
        parts.append(_field(kind, packed[start : start + width]))
        start += width
    return " . ".join(parts)


def _field(kind: DataType, raw: bytes) -> str:
    match kind:
        case DataType.IPV4_ADDR | DataType.IPV6_ADDR:
            return str(Address(raw))
        case DataType.INET_PROTOCOL:
            return Protocol(raw[0]).name.lower() if raw[0] in set(Protocol) else str(raw[0])
        case DataType.INET_SERVICE:
            return str(int.from_bytes(raw[:2], "big"))
        case _:
            return str(int.from_bytes(raw, sys.byteorder))


def _chain(name: str, chain: Chain) -> Iterable[str]:
    yield f"\tchain {name} {{"
    if chain.hook is not None:
        yield f"\t\ttype nat hook {_HOOK_NAMES[chain.hook.number]} priority {chain.hook.priority}; policy accept;"
    for rule in chain.rules:
        yield f"\t\t# {rule.comment or 'rule'}"
        yield from (f"\t\t[ {expression_text(expression)} ]" for expression in rule.expressions)
    yield "\t}"


def expression_text(expression: AnyExpression) -> str:
    """Return one expression in a line."""
    if isinstance(expression, UnknownExpression):
        return f"{expression.name} {expression.data.hex()}"
    shown = (
        f"{field} {_value(field, value)}"
        for field, value in asdict(expression, recurse=False).items()
        if value not in (None, 0, "") or field == "dreg"
    )
    return " ".join((expression.NAME, *shown))


def _value(field: str, value: object) -> str:
    match value:
        case Verdict():
            return str(value)
        case bytes():
            return "0x" + value.hex()
        case int() if field in _REGISTER_FIELDS:
            return "verdict" if value == Register.VERDICT else f"r{value - Register.R0}"
        case int() if hasattr(value, "name"):
            return str(value.name).lower()
        case _:
            return str(value)
