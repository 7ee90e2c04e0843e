"""Every expression goes into the real kernel, comes back as what it was, and can be listed by nft."""

import json
import struct
from typing import Any

import pytest

from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.wire import nftables as nft_wire
from kproxy_core.wire.nftables import (
    ACCEPT,
    DROP,
    RETURN,
    AnyExpression,
    BaseChain,
    Bitwise,
    Chain,
    Compare,
    CompareOp,
    Counter,
    CtDirection,
    CtKey,
    CtLoad,
    CtSet,
    DataType,
    Dynset,
    DynsetOp,
    Family,
    Fib,
    FibFlag,
    FibResult,
    Hook,
    Immediate,
    Lookup,
    Masquerade,
    MetaKey,
    MetaLoad,
    MetaSet,
    Nat,
    NatFlag,
    NatType,
    Numgen,
    NumgenType,
    PayloadBase,
    PayloadLoad,
    Register,
    Reject,
    RejectType,
    Rule,
    Set,
    SetFlag,
    Table,
    concatenated,
    goto,
    jump,
    same_expressions,
    verdict,
)

from .conftest import Nft

pytestmark = pytest.mark.kernel

R = Register
TABLE = "kproxy"
IPV4, IPV6 = Family.IPV4, Family.IPV6


def scaffold(family: Family) -> list[nft_wire.Operation]:
    address, size = (DataType.IPV4_ADDR, 4) if family == IPV4 else (DataType.IPV6_ADDR, 16)
    common: dict[str, Any] = {"family": family, "table": TABLE}
    client = concatenated(DataType.MARK, address)
    things: list[Table | Chain | Set] = [
        Table(family=family, name=TABLE),
        Chain(**common, name="dnat", base=BaseChain(type="nat", hook=Hook.PREROUTING, priority=-110)),
        Chain(**common, name="snat", base=BaseChain(type="nat", hook=Hook.POSTROUTING, priority=90)),
        Chain(**common, name="other"),
        Chain(**common, name="work"),
        Set(**common, name="addresses", key_type=address, key_length=size),
        Set(
            **common, name="services", key_type=address, key_length=size,
            data_type=DataType.MARK, data_length=4, flags=SetFlag.MAP,
        ),
        Set(
            **common, name="verdicts", key_type=DataType.MARK, key_length=4,
            data_type=DataType.VERDICT, data_length=0, flags=SetFlag.MAP,
        ),
        Set(
            **common, name="clients", key_type=client, key_length=4 + size, size=1000, timeout=10_800_000,
            flags=SetFlag.TIMEOUT | SetFlag.EVAL,
        ),
        Set(
            **common, name="stuck", key_type=client, key_length=4 + size, size=1000, timeout=10_800_000,
            data_type=DataType.MARK, data_length=4,
            flags=SetFlag.TIMEOUT | SetFlag.EVAL | SetFlag.MAP,
        ),
    ]  # fmt: skip
    return [nft_wire.add(thing) for thing in things]


def load(family: Family, dreg: int) -> PayloadLoad:
    return PayloadLoad(dreg=dreg, base=PayloadBase.NETWORK, offset=16, length=4) if family == IPV4 else PayloadLoad(
        dreg=dreg, base=PayloadBase.NETWORK, offset=24, length=16
    )  # fmt: skip


def number(value: int) -> bytes:
    return struct.pack("=I", value)


def mark(value: int) -> MetaSet:
    return MetaSet(key=MetaKey.MARK, sreg=value)


def client_key(family: Family) -> tuple[AnyExpression, ...]:
    return (MetaLoad(dreg=R.R0, key=MetaKey.MARK), load(family, R.R1))


CASES: dict[str, tuple[str, tuple[AnyExpression, ...]]] = {
    "payload": ("work", (load(IPV4, R.R0), Compare(sreg=R.R0, data=bytes((10, 0, 0, 1))))),
    "payload, ports": (
        "work",
        (
            MetaLoad(dreg=R.R3, key=MetaKey.L4PROTO),
            Compare(sreg=R.R3, data=b"\x06"),
            PayloadLoad(dreg=R.R5, base=PayloadBase.TRANSPORT, offset=2, length=2),
            Compare(sreg=R.R5, op=CompareOp.GTE, data=b"\x75\x30"),
        ),
    ),
    "meta, names": (
        "work",
        (
            MetaLoad(dreg=R.R0, key=MetaKey.IIFNAME),
            Compare(sreg=R.R0, op=CompareOp.NEQ, data=b"cni0".ljust(16, b"\0")),
        ),
    ),
    "meta set": ("work", (Immediate(dreg=R.R15, data=number(0x4000)), mark(R.R15))),
    "meta, a bit of the mark": (
        "work",
        (
            MetaLoad(dreg=R.R0, key=MetaKey.MARK),
            Bitwise(sreg=R.R0, dreg=R.R0, mask=number(0xFFFFBFFF), xor=number(0x4000)),
            mark(R.R0),
        ),
    ),
    "meta, bits compared": (
        "work",
        (
            MetaLoad(dreg=R.R0, key=MetaKey.MARK),
            Bitwise(sreg=R.R0, dreg=R.R0, mask=number(0x4000), xor=number(0)),
            Compare(sreg=R.R0, op=CompareOp.NEQ, data=number(0)),
        ),
    ),
    "ct status": (
        "work",
        (
            CtLoad(dreg=R.R0, key=CtKey.STATUS),
            Bitwise(sreg=R.R0, dreg=R.R0, mask=number(32), xor=number(0)),
            Compare(sreg=R.R0, op=CompareOp.NEQ, data=number(0)),
        ),
    ),
    "ct state": (
        "work",
        (
            CtLoad(dreg=R.R0, key=CtKey.STATE),
            Bitwise(sreg=R.R0, dreg=R.R0, mask=number(8), xor=number(0)),
            Compare(sreg=R.R0, op=CompareOp.NEQ, data=number(0)),
        ),
    ),
    "ct mark": ("work", (CtLoad(dreg=R.R9, key=CtKey.MARK), mark(R.R9))),
    "ct mark set": ("work", (MetaLoad(dreg=R.R0, key=MetaKey.MARK), CtSet(key=CtKey.MARK, sreg=R.R0))),
    "ct original": (
        "work",
        (
            CtLoad(dreg=R.R0, key=CtKey.PROTO_DST, direction=CtDirection.ORIGINAL),
            Compare(sreg=R.R0, data=b"\0\x50"),
        ),
    ),
    "accept": ("work", (verdict(ACCEPT),)),
    "drop": ("work", (verdict(DROP),)),
    "return": ("work", (verdict(RETURN),)),
    "jump": ("work", (verdict(jump("other")),)),
    "goto": ("work", (verdict(goto("other")),)),
    "counter": ("work", (Counter(),)),
    "counter, preset": ("work", (Counter(packets=5, bytes=500), verdict(ACCEPT))),
    "lookup": ("work", (load(IPV4, R.R0), Lookup(set_name="addresses", sreg=R.R0), verdict(ACCEPT))),
    "lookup, inverted": ("work", (load(IPV4, R.R0), Lookup(set_name="addresses", sreg=R.R0, flags=1), verdict(DROP))),
    "map to mark": ("work", (load(IPV4, R.R0), Lookup(set_name="services", sreg=R.R0, dreg=R.R8), mark(R.R8))),
    "map to verdict": (
        "work",
        (MetaLoad(dreg=R.R0, key=MetaKey.MARK), Lookup(set_name="verdicts", sreg=R.R0, dreg=R.VERDICT)),
    ),
    "numgen": ("work", (Numgen(dreg=R.R0, modulus=7), mark(R.R0))),
    "numgen, offset": ("work", (Numgen(dreg=R.R2, modulus=10, offset=100), mark(R.R2))),
    "numgen, incremental": ("work", (Numgen(dreg=R.R0, modulus=3, type=NumgenType.INCREMENTAL), mark(R.R0))),
    "dynset add": ("work", (*client_key(IPV4), Dynset(set_name="clients", op=DynsetOp.ADD, key=R.R0))),
    "dynset update, timeout": (
        "work",
        (*client_key(IPV4), Dynset(set_name="clients", op=DynsetOp.UPDATE, key=R.R0, timeout=3_600_000)),
    ),
    "dynset delete": ("work", (*client_key(IPV4), Dynset(set_name="clients", op=DynsetOp.DELETE, key=R.R0))),
    "dynset, map": (
        "work",
        (
            Immediate(dreg=R.R7, data=number(5)),
            *client_key(IPV4),
            Dynset(set_name="stuck", op=DynsetOp.UPDATE, key=R.R0, data=R.R7, timeout=10_000),
        ),
    ),
    "dnat, address": (
        "dnat",
        (Immediate(dreg=R.R0, data=bytes((10, 0, 0, 9))), Nat(family=IPV4, address=R.R0)),
    ),
    "dnat, address and port": (
        "dnat",
        (
            MetaLoad(dreg=R.R0, key=MetaKey.L4PROTO),
            Compare(sreg=R.R0, data=b"\x06"),
            Immediate(dreg=R.R4, data=bytes((10, 0, 0, 9))),
            Immediate(dreg=R.R5, data=b"\x1f\x90"),
            Nat(family=IPV4, address=R.R4, port=R.R5),
        ),
    ),
    "snat": (
        "snat",
        (
            Immediate(dreg=R.R0, data=bytes((10, 0, 0, 9))),
            Nat(type=NatType.SNAT, family=IPV4, address=R.R0, flags=NatFlag.FULLY_RANDOM),
        ),
    ),
    "masquerade": ("snat", (Masquerade(),)),
    "masquerade, random": ("snat", (Masquerade(flags=NatFlag.RANDOM),)),
    "masquerade, fully random": ("snat", (Masquerade(flags=NatFlag.FULLY_RANDOM),)),
    "reject, icmp": ("work", (Reject(type=RejectType.ICMP_UNREACH, code=3),)),
    "reject, rst": (
        "work",
        (
            MetaLoad(dreg=R.R0, key=MetaKey.L4PROTO),
            Compare(sreg=R.R0, data=b"\x06"),
            Reject(type=RejectType.TCP_RST),
        ),
    ),
    "fib, destination local": (
        "dnat",
        (
            Fib(dreg=R.R0, result=FibResult.ADDRTYPE, flags=FibFlag.DADDR),
            Compare(sreg=R.R0, data=number(2)),
        ),
    ),
    "fib, source": (
        "dnat",
        (
            Fib(dreg=R.R0, result=FibResult.ADDRTYPE, flags=FibFlag.SADDR | FibFlag.IIF),
            Compare(sreg=R.R0, op=CompareOp.NEQ, data=number(2)),
        ),
    ),
}

CASES_IPV6: dict[str, tuple[str, tuple[AnyExpression, ...]]] = {
    "payload": ("work", (load(IPV6, R.R0), Compare(sreg=R.R0, data=bytes(15) + b"\1"))),
    "lookup": ("work", (load(IPV6, R.R4), Lookup(set_name="addresses", sreg=R.R4), verdict(ACCEPT))),
    "map to mark": ("work", (load(IPV6, R.R0), Lookup(set_name="services", sreg=R.R0, dreg=R.R4), mark(R.R4))),
    "dynset, map": (
        "work",
        (
            Immediate(dreg=R.R11, data=number(5)),
            *client_key(IPV6),
            Dynset(set_name="stuck", op=DynsetOp.UPDATE, key=R.R0, data=R.R11, timeout=10_000),
        ),
    ),
    "dnat, address and port": (
        "dnat",
        (
            MetaLoad(dreg=R.R0, key=MetaKey.L4PROTO),
            Compare(sreg=R.R0, data=b"\x11"),
            Immediate(dreg=R.R0, data=bytes(15) + b"\1"),
            Immediate(dreg=R.R4, data=b"\x1f\x90"),
            Nat(family=IPV6, address=R.R0, port=R.R4),
        ),
    ),
    "masquerade, fully random": ("snat", (Masquerade(flags=NatFlag.FULLY_RANDOM),)),
    "reject, icmp": ("work", (Reject(type=RejectType.ICMP_UNREACH, code=4),)),
    "reject, rst": (
        "work",
        (
            MetaLoad(dreg=R.R0, key=MetaKey.L4PROTO),
            Compare(sreg=R.R0, data=b"\x06"),
            Reject(type=RejectType.TCP_RST),
        ),
    ),
    "fib, destination local": (
        "dnat",
        (Fib(dreg=R.R0, result=FibResult.ADDRTYPE, flags=FibFlag.DADDR), Compare(sreg=R.R0, data=number(2))),
    ),
}

ALL = [
    pytest.param(family, chain, expressions, id=f"{family.name}: {name}")
    for family, cases in ((IPV4, CASES), (IPV6, CASES_IPV6))
    for name, (chain, expressions) in cases.items()
]


@pytest.mark.parametrize(("family", "chain", "expressions"), ALL)
def test_a_rule_comes_back_as_itself(
    family: Family, chain: str, expressions: tuple[AnyExpression, ...], nftables: NftSocket, nft: Nft
) -> None:
    rule = Rule(family=family, table=TABLE, chain=chain, expressions=expressions, comment="why it is here")
    result = nftables.commit([*scaffold(family), nft_wire.add(rule)])
    assert result.errors == ()
    (dumped,) = nftables.rules(family, TABLE, chain)
    assert dumped.decoded() == expressions
    assert same_expressions(rule.encode_expressions(), dumped.expressions)
    assert rule.matches(dumped)
    assert 'comment "why it is here"' in nft("list", "ruleset")
    listed = json.loads(nft("-j", "list", "ruleset"))["nftables"]
    assert [item["rule"]["comment"] for item in listed if "rule" in item] == ["why it is here"]


@pytest.mark.parametrize(("family", "chain", "expressions"), ALL)
def test_a_rule_is_told_from_one_with_another_expression_more_or_less(
    family: Family, chain: str, expressions: tuple[AnyExpression, ...], nftables: NftSocket
) -> None:
    rule = Rule(family=family, table=TABLE, chain=chain, expressions=expressions)
    assert nftables.commit([*scaffold(family), nft_wire.add(rule)]).ok
    (dumped,) = nftables.rules(family, TABLE, chain)
    more = Rule(family=family, table=TABLE, chain=chain, expressions=(Numgen(dreg=R.R0, modulus=9), *expressions))
    less = Rule(family=family, table=TABLE, chain=chain, expressions=expressions[1:])
    assert not more.matches(dumped)
    assert not less.matches(dumped)
