"""Transactions as bytes, and cutting them where that is allowed."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.wire import netlink, nfnetlink
from kproxy_core.wire import nftables as nft
from kproxy_core.wire.errors import EncodingError
from kproxy_core.wire.netlink import MessageFlag
from kproxy_core.wire.nfnetlink import Subsystem
from kproxy_core.wire.nft_generation import Generation, generation_filter
from kproxy_core.wire.nftables import (
    Chain,
    DumpedRule,
    Family,
    MessageKind,
    Operation,
    Rule,
    Set,
    Table,
    cut_before,
    encode_batch,
    split,
)

TABLE = Table(family=Family.IPV4, name="t")
CHAIN = Chain(family=Family.IPV6, table="t", name="c")
SET = Set(family=Family.IPV4, table="t", name="s", key_type=7, key_length=4)
RULE = Rule(family=Family.IPV4, table="t", chain="c", expressions=())
DUMPED = DumpedRule(family=Family.IPV4, table="t", chain="c", handle=9, expressions=b"")


def sized(size: int, *, cut: bool = False) -> Operation:
    """An operation whose message has that many bytes."""
    return Operation(kind=MessageKind.NEWTABLE, flags=0, family=Family.IPV4, attributes=bytes(size - 20), cut=cut)


operations = st.lists(st.builds(sized, st.integers(5, 60).map(lambda words: 4 * words), cut=st.booleans()), max_size=30)


def test_flags_say_what_is_meant() -> None:
    create, excl, append, replace = MessageFlag.CREATE, MessageFlag.EXCL, MessageFlag.APPEND, MessageFlag.REPLACE
    expected = {
        nft.add(TABLE): (MessageKind.NEWTABLE, create),
        nft.add(CHAIN): (MessageKind.NEWCHAIN, create),
        nft.add(SET): (MessageKind.NEWSET, create),
        nft.add(RULE): (MessageKind.NEWRULE, create | append),
        nft.create(SET): (MessageKind.NEWSET, create | excl),
        nft.insert(RULE): (MessageKind.NEWRULE, create),
        nft.replace(Rule(family=Family.IPV4, table="t", chain="c", expressions=(), handle=4)): (MessageKind.NEWRULE, replace),
        nft.delete(TABLE): (MessageKind.DELTABLE, 0),
        nft.delete(CHAIN): (MessageKind.DELCHAIN, 0),
        nft.delete(SET): (MessageKind.DELSET, 0),
        nft.delete(DUMPED): (MessageKind.DELRULE, 0),
        nft.flush_chain(CHAIN): (MessageKind.DELRULE, 0),
        nft.flush_set(SET): (MessageKind.DELSETELEM, 0),
    }
    for operation, (kind, flags) in expected.items():
        assert (operation.kind, operation.flags) == (kind, flags)


def test_a_deletion_names_its_object() -> None:
    assert netlink.attributes(nft.delete(DUMPED).attributes) == {1: b"t\0", 2: b"c\0", 3: (9).to_bytes(8, "big")}
    assert netlink.attributes(nft.flush_chain(CHAIN).attributes) == {1: b"t\0", 2: b"c\0"}
    assert netlink.attributes(nft.delete(SET).attributes) == {1: b"t\0", 2: b"s\0"}


@given(operations.filter(bool), st.integers(1, 2**31), st.none() | st.integers(1, 2**32 - 1))
def test_a_batch_is_numbered_in_order_and_acknowledged_at_its_end(
    wanted: list[Operation], sequence: int, generation: int | None
) -> None:
    begin, *middle, end = netlink.iter_messages(encode_batch(wanted, sequence, generation))
    assert [message.sequence for message in (begin, *middle, end)] == list(range(sequence, sequence + len(wanted) + 2))
    assert (begin.type, end.type) == (nfnetlink.BATCH_BEGIN, nfnetlink.BATCH_END)
    assert begin.payload[2:4] == end.payload[2:4] == Subsystem.NFTABLES.to_bytes(2, "big")
    condition = netlink.attributes(begin.payload, 4)
    assert condition == ({} if generation is None else {1: generation.to_bytes(4, "big")})
    assert [bool(message.flags & MessageFlag.ACK) for message in (begin, *middle, end)] == [
        *[False] * len(wanted),
        True,
        False,
    ]
    assert [message.payload[4:] for message in middle] == [operation.attributes for operation in wanted]
    assert all(message.type >> 8 == Subsystem.NFTABLES and message.payload[0] == Family.IPV4 for message in middle)


def test_the_generation_is_asked_for_where_that_is_cheap() -> None:
    def echoes(*wanted: Operation) -> list[bool]:
        return [bool(message.flags & MessageFlag.ECHO) for message in netlink.iter_messages(encode_batch(wanted, 1))]

    assert echoes(sized(100), sized(100)) == [False, True, False, False]
    assert echoes(sized(5000), sized(100)) == [False, False, False, False]


@given(operations, st.integers(400, 2000))
def test_cutting_keeps_everything_and_stays_within_the_limit(wanted: list[Operation], limit: int) -> None:
    try:
        parts = split(wanted, limit)
    except EncodingError:
        assert longest_uncut(wanted) > limit - 48
        return
    assert [operation for part in parts for operation in part] == wanted
    assert all(part for part in parts)
    assert all(len(encode_batch(part, 1, generation=5)) <= limit for part in parts)
    assert all(part[0].cut for part in parts[1:])
    if sum(operation.size for operation in wanted) + 48 <= limit:
        assert len(parts) == bool(wanted)


def longest_uncut(wanted: list[Operation]) -> int:
    longest = size = 0
    for operation in wanted:
        size = operation.size if operation.cut else size + operation.size
        longest = max(longest, size)
    return longest


@given(operations, st.integers(400, 2000))
def test_cutting_makes_as_few_parts_as_possible(wanted: list[Operation], limit: int) -> None:
    try:
        parts = split(wanted, limit)
    except EncodingError:
        return
    for part, following in pairwise(parts):
        second_cut = next((i for i, operation in enumerate(following) if i and operation.cut), len(following))
        joined = sum(operation.size for operation in (*part, *following[:second_cut]))
        assert joined + 48 > limit


def test_what_may_not_be_cut_and_does_not_fit() -> None:
    with pytest.raises(EncodingError, match="operations 1 to 2 take 800 bytes"):
        split([sized(100), sized(400, cut=True), sized(400)], 500)


def test_cut_before_marks_the_first() -> None:
    first, second = sized(100), sized(100)
    assert [operation.cut for operation in cut_before([first, second])] == [True, False]
    assert cut_before([]) == []


def test_a_generation_is_read() -> None:
    payload = nfnetlink.family_header(0) + netlink.u32be(1, 42) + netlink.u32be(2, 1234) + netlink.string(3, "nft")
    message = netlink.Message(Generation.MESSAGE_TYPE, 0, 7, 4711, payload)
    assert Generation.decode(message) == Generation(id=42, port=4711, pid=1234, process="nft")
    bare = message._replace(payload=nfnetlink.family_header(0) + netlink.u32be(1, 42))
    assert Generation.decode(bare) == Generation(id=42, port=4711)


def run(program: bytes, packet: bytes) -> int:
    """Run the few classic BPF instructions that the filter uses."""
    instructions = list(struct.iter_unpack("=HBBI", program))
    accumulator = position = 0
    while True:
        code, jump_true, jump_false, value = instructions[position]
        position += 1
        if code == 0x28:
            accumulator = int.from_bytes(packet[value : value + 2], "big")
        elif code == 0x15:
            position += jump_true if accumulator == value else jump_false
        elif code == 0x06:
            return int(value)
        else:
            raise AssertionError(f"instruction {code:#x}")


@given(st.integers(0, 0xFFFF))
def test_the_filter_lets_only_generations_and_errors_pass(kind: int) -> None:
    passes = run(generation_filter(), netlink.message(kind, 0, 1, bytes(20)))
    assert bool(passes) == (kind in (Generation.MESSAGE_TYPE, netlink.ControlType.ERROR))


def test_the_filter_lets_generations_pass() -> None:
    assert run(generation_filter(), netlink.message(Generation.MESSAGE_TYPE, 0, 1, bytes(20))) > 1 << 16
    assert run(generation_filter(), netlink.message(netlink.ControlType.ERROR, 0, 1, bytes(20))) > 1 << 16
