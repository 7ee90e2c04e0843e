"""Expressions: what is written is read back, and a rule is told from another one by what it does."""

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kproxy_core.wire import netlink
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.nftables import (
    AnyExpression,
    Bitwise,
    Compare,
    Counter,
    Expression,
    Family,
    Immediate,
    Lookup,
    Masquerade,
    MetaKey,
    MetaLoad,
    MetaSet,
    Nat,
    NatFlag,
    Numgen,
    PayloadLoad,
    Register,
    UnknownExpression,
    Verdict,
    decode_expressions,
    encode_expressions,
    same_expressions,
)

from .strategies import damaged, expressions, pairs_of_a_kind

R = Register
lists = st.lists(expressions, max_size=8)


def normal(wanted: Sequence[Expression]) -> tuple[Expression, ...]:
    return tuple(expression.normal() for expression in wanted)


@given(lists)
def test_expressions_come_back(wanted: list[Expression]) -> None:
    assert decode_expressions(encode_expressions(wanted)) == normal(wanted)


@given(lists, lists)
def test_two_rules_are_the_same_exactly_if_they_do_the_same(first: list[Expression], second: list[Expression]) -> None:
    same = normal(first) == normal(second)
    assert same_expressions(encode_expressions(first), encode_expressions(second)) == same
    assert same_expressions(encode_expressions(first), encode_expressions(first))


@given(pairs_of_a_kind, st.data())
def test_any_changed_field_makes_another_rule(pair: tuple[Expression, Expression], data: st.DataObject) -> None:
    wanted, other = pair
    name = data.draw(st.sampled_from([field.name for field in attrs.fields(type(wanted))]))
    changed = attrs.evolve(wanted, **{name: getattr(other, name)})
    assert same_expressions(encode_expressions([wanted]), encode_expressions([changed])) == (wanted.normal() == changed.normal())


def rule(name: str, *attributes: bytes) -> bytes:
    return netlink.nested(1, netlink.string(1, name) + netlink.nested(2, *attributes))


def bare(name: str, *attributes: bytes) -> bytes:
    """As the kernel lists it: nothing marked as nested."""
    return netlink.attribute(1, netlink.string(1, name) + netlink.attribute(2, b"".join(attributes)))


def number(kind: int, value: int) -> bytes:
    return netlink.u32be(kind, value)


ADDED_BY_THE_KERNEL = {
    "a register under its old number": (
        MetaLoad(dreg=R.R4, key=MetaKey.MARK),
        bare("meta", number(2, 3), number(1, 2)),
    ),
    "an operation of a bitwise": (
        Bitwise(sreg=R.R1, dreg=R.R1, mask=b"\xff\0", xor=b"\0\0"),
        bare(
            "bitwise",
            *(number(1, 9), number(2, 9), number(3, 2), number(6, 0)),
            netlink.attribute(4, netlink.attribute(1, b"\xff\0")),
            netlink.attribute(5, netlink.attribute(1, b"\0\0")),
        ),
    ),
    "flags of a lookup": (
        Lookup(set_name="s", sreg=R.R0, dreg=R.R1),
        bare("lookup", netlink.string(1, "s"), number(2, 1), number(3, 9), number(5, 0)),
    ),
    "the upper end of a range": (
        Nat(family=Family.IPV4, address=R.R0, port=R.R1),
        bare("nat", number(1, 1), number(2, 2), number(3, 1), number(4, 1), number(5, 9), number(6, 9), number(7, 3)),
    ),
    "counts": (
        Counter(),
        bare("counter", netlink.u64be(1, 12), netlink.attribute(3, b""), netlink.u64be(2, 1)),
    ),
    "an attribute of a later kernel": (
        MetaSet(key=MetaKey.MARK, sreg=R.R0),
        bare("meta", number(2, 3), number(3, 1), number(4, 99)),
    ),
}


@pytest.mark.parametrize(("wanted", "dumped"), ADDED_BY_THE_KERNEL.values(), ids=ADDED_BY_THE_KERNEL)
def test_what_the_kernel_adds_makes_no_difference(wanted: AnyExpression, dumped: bytes) -> None:
    assert same_expressions(encode_expressions([wanted]), dumped)


OTHERS = {
    "an inverted lookup": (
        Lookup(set_name="s", sreg=R.R0),
        bare("lookup", netlink.string(1, "s"), number(2, 1), number(5, 1)),
    ),
    "a lookup with a result": (
        Lookup(set_name="s", sreg=R.R0),
        bare("lookup", netlink.string(1, "s"), number(2, 1), number(3, 9)),
    ),
    "another register": (MetaLoad(dreg=R.R4, key=MetaKey.MARK), bare("meta", number(2, 3), number(1, 3))),
    "a shift instead of a mask": (
        Bitwise(sreg=R.R1, dreg=R.R1, mask=b"\xff\0", xor=b"\0\0"),
        bare(
            "bitwise",
            *(number(1, 9), number(2, 9), number(3, 2), number(6, 1)),
            netlink.attribute(4, netlink.attribute(1, b"\xff\0")),
            netlink.attribute(5, netlink.attribute(1, b"\0\0")),
        ),
    ),
    "a range of addresses": (
        Nat(family=Family.IPV4, address=R.R0),
        bare("nat", number(1, 1), number(2, 2), number(3, 1), number(4, 2)),
    ),
    "a random port": (
        Masquerade(),
        bare("masq", number(1, NatFlag.RANDOM)),
    ),
    "a write to the packet": (
        PayloadLoad(dreg=R.R0, base=1, offset=16, length=4),
        bare("payload", number(1, 1), number(2, 1), number(3, 16), number(4, 4), number(5, 1)),
    ),
    "something unreadable": (Counter(), b"\3\0"),
    "nothing": (Counter(), b""),
}


@pytest.mark.parametrize(("wanted", "dumped"), OTHERS.values(), ids=OTHERS)
def test_another_rule_is_told(wanted: AnyExpression, dumped: bytes) -> None:
    assert not same_expressions(encode_expressions([wanted]), dumped)


def test_expressions_of_other_modes_are_compared_by_what_was_wanted() -> None:
    """A mode of a third party may use an expression that is not known here; the kernel may add to what it sent."""
    quota = UnknownExpression(name="quota", data=number(1, 5) + netlink.nested(2, number(1, 7)))
    wanted = encode_expressions([quota])
    assert same_expressions(wanted, bare("quota", number(1, 5), netlink.attribute(2, number(1, 7) + number(2, 9)), number(3, 1)))
    assert not same_expressions(wanted, bare("quota", number(1, 6), netlink.attribute(2, number(1, 7))))
    assert not same_expressions(wanted, bare("quota", number(1, 5), netlink.attribute(2, number(1, 8))))
    assert not same_expressions(wanted, bare("quota", number(1, 5)))
    assert not same_expressions(wanted, bare("quota", number(1, 5), netlink.attribute(2, b"\1\2\3")))
    assert not same_expressions(wanted, bare("limit", number(1, 5), netlink.attribute(2, number(1, 7))))


def test_an_unknown_expression_keeps_its_bytes() -> None:
    raw = rule("quota", number(1, 5))
    assert decode_expressions(raw) == (UnknownExpression(name="quota", data=number(1, 5)),)
    assert encode_expressions(decode_expressions(raw)) == raw


def test_an_expression_that_says_more_than_ours_is_unknown() -> None:
    raw = bare("payload", number(1, 1), number(2, 1), number(3, 16), number(4, 4), number(5, 1))
    (found,) = decode_expressions(raw)
    assert isinstance(found, UnknownExpression)


def test_an_expression_without_what_it_needs_is_unknown() -> None:
    raw = bare("lookup", netlink.string(1, "s")) + bare("immediate", number(1, 1))
    assert all(isinstance(found, UnknownExpression) for found in decode_expressions(raw))
    with pytest.raises(MalformedMessageError, match="lookup: no sreg"):
        Lookup.decode(netlink.string(1, "s"))


@given(st.data(), lists)
def test_damaged_expressions_are_read_or_malformed(data: st.DataObject, wanted: Sequence[Expression]) -> None:
    raw = data.draw(damaged(encode_expressions(wanted)))
    try:
        found = decode_expressions(raw)
    except MalformedMessageError:
        assert not same_expressions(raw, raw)
        return
    assert all(isinstance(expression, AnyExpression) for expression in found)


@given(st.binary(max_size=120))
@example(b"")
def test_any_bytes_are_expressions_or_malformed(raw: bytes) -> None:
    try:
        decode_expressions(raw)
    except MalformedMessageError:
        return


@pytest.mark.parametrize("register", Register)
def test_registers_are_written_as_the_kernel_lists_them(register: Register) -> None:
    raw = MetaLoad(dreg=register, key=0).encode()
    listed = int.from_bytes(netlink.attributes(raw)[1], "big")
    assert listed == {8: 1, 12: 2, 16: 3, 20: 4}.get(register, register)
    assert MetaLoad.decode(raw).dreg == register


def test_values_that_do_not_fit_are_refused() -> None:
    for expression in (
        Numgen(dreg=R.R0, modulus=2**32),
        Numgen(dreg=R.R0, modulus=-1),
        Lookup(set_name="a\0b", sreg=R.R0),
        Compare(sreg=R.R0, data=bytes(70_000)),
    ):
        with pytest.raises(EncodingError):
            expression.encode()


def test_a_verdict_reads_like_in_nft() -> None:
    assert str(Verdict(-3, "nodeports")) == "jump nodeports"
    assert str(Verdict(0)) == "drop"
    assert str(Verdict(77)) == "77"
    assert decode_expressions(encode_expressions([Immediate(data=Verdict(-5))])) == (Immediate(data=Verdict(-5)),)
