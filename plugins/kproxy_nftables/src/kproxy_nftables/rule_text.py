"""Tells a rule nearly in nft's language: what is compared, looked up and done, not which register holds it.

nft's own language has no words for these rules: in it the result of one map cannot be part of another lookup's key. So each
result that is used further gets a name, and the packet's mark, by which results are passed on, is left out where it is put back:

    $id = ip daddr . meta l4proto . th dport map @services
    dnat to $id . numgen random mod 3 map @endpoints
"""

import sys
from collections.abc import Mapping
from typing import Final

from attrs import evolve, frozen

from kproxy_core.model.addresses import Address
from kproxy_core.wire.nft_constants import (
    ICMP_PORT_UNREACHABLE,
    ICMPV6_PORT_UNREACHABLE,
    CompareOp,
    CtKey,
    CtStatus,
    DataType,
    DynsetOp,
    FibFlag,
    FibResult,
    MetaKey,
    NatFlag,
    PayloadBase,
    Register,
    RejectType,
    RouteType,
)
from kproxy_core.wire.nft_expressions import (
    AnyExpression,
    Bitwise,
    Compare,
    CtLoad,
    Dynset,
    Fib,
    Immediate,
    Lookup,
    Masquerade,
    MetaLoad,
    MetaSet,
    Nat,
    Numgen,
    PayloadLoad,
    Reject,
)
from kproxy_core.wire.nft_objects import Set
from kproxy_nftables import sets
from kproxy_nftables.objects import Rule
from kproxy_nftables.type_text import types_of, value_text, width


@frozen(kw_only=True)
class Term:
    """What a register holds, as text; of which type; behind which mask, if it is not all of it."""

    text: str
    type: DataType = DataType.INTEGER
    mask: bytes = b""

    def __str__(self) -> str:
        return f"{self.text} & {_number(self.mask)}" if self.mask else self.text


RESULT_NAMES: Final = {
    sets.SERVICES: "id",
    sets.NODE_PORT_SERVICES: "id",
    **dict.fromkeys(sets.KEYED_BY_FRONTEND, "action"),
    **dict.fromkeys((sets.ENDPOINTS, sets.LOCAL_ENDPOINTS, sets.STICKY_ENDPOINTS, sets.LOCAL_STICKY_ENDPOINTS), "endpoint"),
    **dict.fromkeys((sets.STICKY_SLOTS, sets.LOCAL_STICKY_SLOTS, sets.AFFINITY), "number"),
}
"""What is found in each map. ``number``: the sticky number of an endpoint, by which clients are remembered."""

_META: Final = {
    MetaKey.L4PROTO: (Term(text="meta l4proto", type=DataType.INET_PROTOCOL), 1),
    MetaKey.IIFNAME: (Term(text="iifname", type=DataType.IFNAME), 16),
}
_ADDRESS_TYPES: Final = {4: DataType.IPV4_ADDR, 16: DataType.IPV6_ADDR}
_ADDRESSES: Final = {(12, 4): "ip saddr", (16, 4): "ip daddr", (8, 16): "ip6 saddr", (24, 16): "ip6 daddr"}
_OPERATORS: Final = {
    CompareOp.EQ: "",
    CompareOp.NEQ: "!= ",
    CompareOp.LT: "< ",
    CompareOp.LTE: "<= ",
    CompareOp.GT: "> ",
    CompareOp.GTE: ">= ",
}
_DNAT: Final = int(CtStatus.DNAT).to_bytes(4, sys.byteorder)
_UNREACHABLE: Final = {ICMP_PORT_UNREACHABLE: "icmp", ICMPV6_PORT_UNREACHABLE: "icmpv6"}


_MARK: Final = Term(text="meta mark", type=DataType.MARK)
_UNSET: Final = Term(text="(nothing)")


def rule_lines(rule: Rule, shapes: Mapping[str, Set]) -> list[str]:
    """Return the lines of a rule, one for each result that gets a name, and one for the rest.

    ``shapes`` are the table's sets and maps by name: they tell how many registers a key fills.
    """
    reading = _Reading(shapes)
    for expression in rule.expressions:
        reading.read(expression)
    return reading.finished()


class _Reading:
    """A rule read so far: what each register and the mark hold, and what has been told."""

    def __init__(self, shapes: Mapping[str, Set]) -> None:
        self._shapes = shapes
        self._registers: dict[int, Term] = {}
        self._mark = self._told_mark = _MARK
        self._lines: list[str] = []
        self._words: list[str] = []

    def finished(self) -> list[str]:
        """Return all lines."""
        self._tell_mark()
        self._end_line()
        return self._lines

    def read(self, expression: AnyExpression) -> None:
        """Follow one expression: it loads something, or goes on only if something holds, or does something."""
        match expression:
            case MetaLoad(key=MetaKey.MARK):
                self._store(expression.dreg, self._mark, 4)
            case PayloadLoad() | MetaLoad() | CtLoad() | Fib() | Numgen():
                self._store(expression.dreg, *_loaded(expression))
            case Bitwise(sreg=register):
                self._store(expression.dreg, _changed(self._held(register), expression), expression.length)
            case MetaSet(key=MetaKey.MARK, sreg=register):
                self._mark = self._held(register)
            case Compare(sreg=register):
                self._tell(_compared(self._held(register), expression))
            case Lookup():
                self._look_up(expression)
            case Nat(address=address, port=port):
                address_text, port_text = str(self._held(address)), str(self._held(port))
                self._tell(f"dnat to {address_text}" + ("" if address_text == port_text else f" : {port_text}"))
            case Dynset(set_name=name, op=op):
                timeout = f" timeout {expression.timeout // 1000}s" if expression.timeout else ""
                value = "" if expression.data is None else f" : {self._held(expression.data)}"
                self._tell(f"{DynsetOp(op).name.lower()} @{name} {{ {self._key(name, expression.key)}{timeout}{value} }}")
            case _:
                self._tell(_ending(expression))

    def _held(self, register: int | None) -> Term:
        return self._registers.get(register or 0, _UNSET)

    def _store(self, register: int, term: Term, size: int) -> None:
        """Put what has so many bytes into a register and those behind it."""
        for covered in range(register, register + (size + 3) // 4):
            self._registers.pop(covered, None)
        self._registers[register] = term

    def _key(self, set_name: str, register: int) -> str:
        """Return the key that lies in registers from this one on, as the set wants it."""
        parts = []
        for kind in types_of(self._shapes[set_name].key_type):
            parts.append(str(self._held(register)))
            register += width(kind) // 4
        return " . ".join(parts)

    def _look_up(self, lookup: Lookup) -> None:
        key = self._key(lookup.set_name, lookup.sreg)
        if lookup.dreg is None:
            self._tell(f"{key} {'!= ' if lookup.flags else ''}@{lookup.set_name}")
        elif lookup.dreg == Register.VERDICT:
            self._tell(f"{key} vmap @{lookup.set_name}")
        else:
            name = "$" + RESULT_NAMES.get(lookup.set_name, lookup.set_name)
            self._tell_mark()
            self._end_line()
            self._tell(f"{name} = {key} map @{lookup.set_name}")
            self._end_line()
            register = lookup.dreg
            for kind in types_of(self._shapes[lookup.set_name].data_type or 0):
                self._store(register, Term(text=name, type=kind), width(kind))
                register += width(kind) // 4

    def _tell(self, words: str) -> None:
        self._tell_mark()
        self._words.append(words)

    def _tell_mark(self) -> None:
        """Tell that the mark is changed, which it is not while it only carries something to another register."""
        if self._mark != self._told_mark:
            self._words.append(f"meta mark set {self._mark}")
            self._told_mark = self._mark

    def _end_line(self) -> None:
        if self._words:
            self._lines.append(" ".join(self._words))
            self._words = []


def _loaded(expression: AnyExpression) -> tuple[Term, int]:
    """Return what an expression loads, and how many bytes it has."""
    match expression:
        case PayloadLoad(base=PayloadBase.NETWORK, offset=offset, length=length) if (offset, length) in _ADDRESSES:
            return Term(text=_ADDRESSES[offset, length], type=_ADDRESS_TYPES[length]), length
        case PayloadLoad(base=PayloadBase.TRANSPORT, offset=2, length=2):
            return Term(text="th dport", type=DataType.INET_SERVICE), 2
        case MetaLoad(key=key) if key in _META:
            return _META[MetaKey(key)]
        case CtLoad(key=CtKey.STATUS):
            return Term(text="ct status"), 4
        case Fib(result=FibResult.ADDRTYPE, flags=FibFlag.DADDR):
            return Term(text="fib daddr type", type=DataType.FIB_ADDRTYPE), 4
        case _:
            text = f"numgen random mod {expression.modulus}" if isinstance(expression, Numgen) else f"({expression})"
            return Term(text=text), 4


def _ending(expression: AnyExpression) -> str:
    """Return what is done to the packet."""
    match expression:
        case Immediate(dreg=Register.VERDICT, data=data):
            return str(data)
        case Masquerade(flags=NatFlag.FULLY_RANDOM):
            return "masquerade fully-random"
        case Reject(type=RejectType.TCP_RST):
            return "reject with tcp reset"
        case Reject(type=RejectType.ICMP_UNREACH, code=int(code)) if code in _UNREACHABLE:
            return f"reject with {_UNREACHABLE[code]} port-unreachable"
        case _:
            return f"({expression})"


def _number(raw: bytes) -> str:
    return f"{int.from_bytes(raw, sys.byteorder):#x}"


def _changed(term: Term, change: Bitwise) -> Term:
    """Return (term & mask) ^ xor."""
    if not any(change.xor):
        return evolve(term, mask=change.mask)
    if all(mask | xor == 0xFF and not mask & xor for mask, xor in zip(change.mask, change.xor, strict=True)):
        return evolve(term, text=f"{term} | {_number(change.xor)}")
    return evolve(term, text=f"{term} & {_number(change.mask)} ^ {_number(change.xor)}")


def _compared(term: Term, comparison: Compare) -> str:
    operator, data = _OPERATORS[CompareOp(comparison.op)], comparison.data
    match term.type:
        case DataType.IPV4_ADDR | DataType.IPV6_ADDR:
            bits = int.from_bytes(term.mask, "big").bit_count()
            return f"{term.text} {operator}{Address(data)}{f'/{bits}' if term.mask else ''}"
        case DataType.IFNAME:
            name = data.rstrip(b"\0").decode(errors="replace")
            return f'{term.text} {operator}"{name}{"" if data.endswith(bytes(1)) else "*"}"'
        case DataType.FIB_ADDRTYPE:
            return f"{term.text} {operator}{RouteType(int.from_bytes(data, sys.byteorder)).name.lower()}"
        case DataType.INET_PROTOCOL:
            return f"{term.text} {operator}{value_text(term.type, data)}"
        case _ if term == Term(text="ct status", mask=_DNAT) and not any(data) and comparison.op == CompareOp.NEQ:
            return "ct status dnat"
        case _:
            return f"{term} {operator}{_number(data)}"
