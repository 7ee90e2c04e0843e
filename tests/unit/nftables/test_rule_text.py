"""Rules as text: what a register holds is followed, so a rule that reads the wrong one does not look right."""

import pytest

from kproxy_core.model.addresses import Family
from kproxy_core.wire.nft_constants import CompareOp, MetaKey, NatType, PayloadBase, Register
from kproxy_core.wire.nft_data import DROP
from kproxy_core.wire.nft_expressions import (
    AnyExpression,
    Bitwise,
    Compare,
    Counter,
    Lookup,
    Masquerade,
    MetaLoad,
    MetaSet,
    Nat,
    PayloadLoad,
    verdict,
)
from kproxy_core.wire.nft_layout import UnknownExpression
from kproxy_nftables import sets
from kproxy_nftables.objects import Rule, number
from kproxy_nftables.registers import RESTORE_MARK, R, destination, pass_through_mark, source
from kproxy_nftables.rule_text import rule_lines

SHAPES = {shape.name: shape for shape in sets.shapes(Family.IPV4).values()}
PORT = PayloadLoad(dreg=R[1], base=PayloadBase.TRANSPORT, offset=2, length=2)
SOURCE, DESTINATION = source(Family.IPV4, R[0]), destination(Family.IPV4, R[0])


def dnat(address: int, port: int) -> Nat:
    """To what these registers hold."""
    return Nat(type=NatType.DNAT, family=Family.IPV4, address=R[address], port=R[port])


CASES: dict[str, tuple[AnyExpression, ...]] = {
    "ip daddr @cluster-ips drop": (DESTINATION, Lookup(set_name=sets.CLUSTER_IPS, sreg=R[0]), verdict(DROP)),
    "ip saddr != @cluster-ips": (SOURCE, Lookup(set_name=sets.CLUSTER_IPS, sreg=R[0], flags=1)),
    "(nothing) @cluster-ips": (SOURCE, Lookup(set_name=sets.CLUSTER_IPS, sreg=R[1])),
    "ip saddr . (nothing) @hairpin": (SOURCE, Lookup(set_name=sets.HAIRPIN, sreg=R[0])),
    "ip saddr 10.0.0.1": (SOURCE, Compare(sreg=R[0], data=b"\x0a\0\0\1")),
    "ip saddr != 10.0.0.0/8": (
        SOURCE,
        Bitwise(sreg=R[0], dreg=R[0], mask=b"\xff\0\0\0", xor=bytes(4)),
        Compare(sreg=R[0], op=CompareOp.NEQ, data=b"\x0a\0\0\0"),
    ),
    'iifname "eth0"': (MetaLoad(dreg=R[0], key=MetaKey.IIFNAME), Compare(sreg=R[0], data=b"eth0\0")),
    'iifname != "kpod*"': (
        MetaLoad(dreg=R[0], key=MetaKey.IIFNAME),
        Compare(sreg=R[0], op=CompareOp.NEQ, data=b"kpod"),
    ),
    "dnat to ip daddr : th dport": (DESTINATION, PORT, dnat(0, 1)),
    "dnat to ip daddr : (nothing)": (PORT, DESTINATION, dnat(0, 5)),
    "meta mark set ip daddr drop": (DESTINATION, *pass_through_mark(R[0], R[1]), verdict(DROP)),
    "meta mark set meta mark & 0xff ^ 0x3": (
        MetaLoad(dreg=R[0], key=MetaKey.MARK),
        Bitwise(sreg=R[0], dreg=R[0], mask=number(0xFF), xor=number(3)),
        MetaSet(key=MetaKey.MARK, sreg=R[0]),
    ),
    "meta l4proto udp": (MetaLoad(dreg=R[0], key=MetaKey.L4PROTO), Compare(sreg=R[0], data=b"\x11")),
}


@pytest.mark.parametrize("text", CASES)
def test_a_rule_in_a_line(text: str) -> None:
    assert rule_lines(Rule(expressions=CASES[text]), SHAPES) == [text]


def test_results_have_names_and_a_borrowed_mark_is_not_told() -> None:
    expressions = (
        MetaLoad(dreg=R[15], key=MetaKey.MARK),
        DESTINATION,
        MetaLoad(dreg=R[1], key=MetaKey.L4PROTO),
        PayloadLoad(dreg=R[2], base=PayloadBase.TRANSPORT, offset=2, length=2),
        Lookup(set_name=sets.ACTIONS, sreg=R[0], dreg=R[6]),
        *pass_through_mark(R[6], R[7]),
        RESTORE_MARK,
        Lookup(set_name=sets.DISPATCH, sreg=R[7], dreg=Register.VERDICT),
    )
    told = ["$action = ip daddr . meta l4proto . th dport map @actions", "$action vmap @dispatch"]
    assert rule_lines(Rule(expressions=expressions), SHAPES) == told
    kept = [expression for expression in expressions if expression != RESTORE_MARK]
    assert rule_lines(Rule(expressions=tuple(kept)), SHAPES) == [told[0], f"meta mark set $action {told[1]}"]


def test_what_lies_in_several_registers_is_overwritten_as_a_whole() -> None:
    address = source(Family.IPV6, R[0])
    lookup = Lookup(set_name=sets.CLUSTER_IPS, sreg=R[1])
    assert rule_lines(Rule(expressions=(destination(Family.IPV4, R[1]), address, lookup)), SHAPES) == ["(nothing) @cluster-ips"]


@pytest.mark.parametrize("strange", [UnknownExpression(name="quota", data=b"\1"), Counter(), Masquerade(flags=4)])
def test_an_expression_that_no_rule_of_ours_has_is_told_as_it_is(strange: AnyExpression) -> None:
    assert rule_lines(Rule(expressions=(strange, verdict(DROP))), SHAPES) == [f"({strange}) drop"]


def test_a_rule_without_expressions_has_no_lines() -> None:
    assert rule_lines(Rule(expressions=()), SHAPES) == []
