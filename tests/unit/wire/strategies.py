"""Generated expressions, and generated damage to encoded ones."""

import struct

from hypothesis import strategies as st

from kproxy_core.wire.nftables import (
    Bitwise,
    Compare,
    Counter,
    CtLoad,
    CtSet,
    Dynset,
    Expression,
    Fib,
    Immediate,
    Lookup,
    Masquerade,
    MetaLoad,
    MetaSet,
    Nat,
    Numgen,
    PayloadLoad,
    Register,
    Reject,
    Verdict,
)

numbers = st.integers(0, 2**32 - 1)
small = st.integers(0, 40)
longs = st.integers(0, 2**64 - 1)
registers = st.sampled_from(Register)
maybe_registers = st.none() | registers
names = st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)
values = st.binary(min_size=1, max_size=64)
verdicts = st.builds(Verdict, st.integers(-(2**31), 2**31 - 1), st.none() | names)


@st.composite
def bitwise(draw: st.DrawFn) -> Bitwise:
    mask = draw(values)
    xor = draw(st.binary(min_size=len(mask), max_size=len(mask)))
    return Bitwise(sreg=draw(registers), dreg=draw(registers), mask=mask, xor=xor)


kinds: tuple[st.SearchStrategy[Expression], ...] = (
    st.builds(PayloadLoad, dreg=registers, base=small, offset=numbers, length=numbers),
    st.builds(MetaLoad, dreg=registers, key=small),
    st.builds(MetaSet, sreg=registers, key=small),
    st.builds(CtLoad, dreg=registers, key=small, direction=st.none() | st.integers(0, 255)),
    st.builds(CtSet, sreg=registers, key=small),
    st.builds(Compare, sreg=registers, op=small, data=values),
    bitwise(),
    st.builds(Immediate, dreg=registers, data=values | verdicts),
    st.builds(Lookup, set_name=names, sreg=registers, dreg=maybe_registers, flags=st.integers(0, 1)),
    st.builds(Numgen, dreg=registers, modulus=numbers, type=small, offset=numbers),
    st.builds(Dynset, set_name=names, op=small, key=registers, data=maybe_registers, timeout=longs, flags=small),
    st.builds(
        Nat,
        type=small,
        family=small,
        address=maybe_registers,
        address_max=maybe_registers,
        port=maybe_registers,
        port_max=maybe_registers,
        flags=small,
    ),
    st.builds(Masquerade, flags=small, port=maybe_registers, port_max=maybe_registers),
    st.builds(Reject, type=small, code=st.none() | st.integers(0, 255)),
    st.builds(Fib, dreg=registers, result=small, flags=small),
    st.builds(Counter, packets=longs, bytes=longs),
)
expressions: st.SearchStrategy[Expression] = st.one_of(kinds)
pairs_of_a_kind = st.sampled_from(kinds).flatmap(lambda kind: st.tuples(kind, kind))


@st.composite
def damaged(draw: st.DrawFn, valid: bytes) -> bytes:
    """The bytes with some changed, cut off, put in or with lengths that lie."""
    raw = bytearray(valid)
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["change", "cut", "insert", "length"]))
        at = draw(st.integers(0, max(0, len(raw) - 1)))
        if kind == "cut":
            del raw[at:]
        elif kind == "insert":
            raw[at:at] = draw(st.binary(max_size=9))
        elif kind == "length" and len(raw) >= 2:
            at = min(at & ~3, len(raw) - 2)
            raw[at : at + 2] = struct.pack("=H", draw(st.sampled_from([0, 1, 3, 4, 5, 8, 12, 0xFFFF])))
        elif raw:
            raw[min(at, len(raw) - 1)] = draw(st.integers(0, 255))
    return bytes(raw)
