"""Tables, chains, sets, rules and their userdata: what is written is read back, and garbage is refused."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.wire import netlink, nfnetlink, nft_data
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.nft_generation import Generation
from kproxy_core.wire.nftables import (
    BaseChain,
    Chain,
    DataType,
    DumpedRule,
    Family,
    Flowtable,
    MetaKey,
    MetaLoad,
    NamedObject,
    Numgen,
    Register,
    Rule,
    Set,
    SetFlag,
    Table,
    VerdictCode,
    concatenated,
    decode_elements,
    set_userdata,
)

from .strategies import damaged, names, numbers

families = st.sampled_from(Family)
comments = st.none() | st.text(st.characters(codec="ascii", exclude_characters='\0"\n'), max_size=127)

tables = st.builds(Table, family=families, name=names, flags=st.integers(0, 7), comment=comments)
bases = st.builds(BaseChain, type=names, hook=numbers, priority=st.integers(-(2**31), 2**31 - 1), policy=numbers)
chains = st.builds(Chain, family=families, table=names, name=names, base=st.none() | bases, comment=comments)
sets = st.builds(
    Set,
    family=families,
    table=names,
    name=names,
    key_type=st.sampled_from(DataType),
    key_length=st.integers(1, 64),
    data_type=st.none(),
    flags=st.integers(0, 0x1FF),
    size=numbers,
    timeout=st.integers(0, 2**64 - 1),
    gc_interval=numbers,
    policy=st.integers(0, 1),
    field_lengths=st.lists(st.integers(1, 16), max_size=5).map(tuple),
    counter=st.booleans(),
    userdata=comments.map(lambda text: set_userdata(comment=text)),
)
maps = st.builds(
    Set,
    family=families,
    table=names,
    name=names,
    key_type=st.sampled_from(DataType),
    key_length=st.integers(1, 64),
    data_type=st.sampled_from(DataType),
    data_length=st.integers(1, 64),
    flags=st.integers(0, 0x1FF),
)
things: st.SearchStrategy[Table | Chain | Set] = st.one_of(tables, chains, sets, maps)


def payload(thing: Table | Chain | Set) -> bytes:
    return nfnetlink.family_header(thing.family) + thing.encode()


@given(things)
def test_objects_come_back(thing: Table | Chain | Set) -> None:
    assert type(thing).decode(payload(thing)) == thing


@given(things)
def test_the_key_of_an_object_is_a_part_of_it(thing: Table | Chain | Set) -> None:
    key = netlink.attributes(thing.encode_key())
    assert key.items() <= netlink.attributes(thing.encode()).items()


READERS: list[Callable[[bytes], Any]] = [
    Table.decode,
    Chain.decode,
    Set.decode,
    DumpedRule.decode,
    decode_elements,
    lambda raw: Generation.decode(netlink.Message(0, 0, 0, 0, raw)),
    nft_data.decode_data,
]


@pytest.mark.parametrize("read", READERS)
@given(raw=st.binary(max_size=100))
def test_any_bytes_are_read_or_malformed(read: Callable[[bytes], Any], raw: bytes) -> None:
    try:
        read(raw)
    except MalformedMessageError:
        return


@given(things, st.data())
def test_damaged_objects_are_read_or_malformed(thing: Table | Chain | Set, data: st.DataObject) -> None:
    raw = data.draw(damaged(payload(thing)))
    try:
        found = type(thing).decode(raw)
    except MalformedMessageError:
        return
    assert isinstance(found.name, str)


def test_handles_do_not_count() -> None:
    assert Table(family=Family.IPV4, name="t", handle=1) == Table(family=Family.IPV4, name="t", handle=2)
    assert Table(family=Family.IPV4, name="t") != Table(family=Family.IPV6, name="t")


@given(st.dictionaries(st.integers(0, 255), st.binary(max_size=60), max_size=4))
def test_userdata_comes_back(fields: dict[int, bytes]) -> None:
    assert nft_data.decode_userdata(nft_data.encode_userdata(fields)) == fields


@given(st.binary(max_size=300))
def test_any_bytes_are_userdata(raw: bytes) -> None:
    """Others write there what they like, so what makes no sense is passed over."""
    found = nft_data.decode_userdata(raw)
    assert sum(2 + len(value) for value in found.values()) <= len(raw)
    assert nft_data.decode_comment(raw) is None or 0 in found


@given(st.text(max_size=260))
def test_a_comment_is_kept_or_refused(text: str) -> None:
    try:
        raw = nft_data.encode_comment(text)
    except (EncodingError, UnicodeEncodeError):
        return
    assert nft_data.decode_comment(raw) == text
    assert not set(text) & {'"', "\n", "\0"}
    assert len(raw) <= 256


@pytest.mark.parametrize("text", ["x" * 254, 'say "hello"', "two\nlines", "a\0b", "ü" * 127])
def test_comments_that_nft_could_not_show(text: str) -> None:
    with pytest.raises(EncodingError, match="comment"):
        nft_data.encode_comment(text)


def test_userdata_has_limits() -> None:
    with pytest.raises(EncodingError, match="255"):
        nft_data.encode_userdata({0: bytes(256)})
    with pytest.raises(EncodingError, match="256"):
        nft_data.encode_userdata({0: bytes(200), 1: bytes(200)})


def test_numbers_in_host_order_are_declared_so_and_verdicts_are_not() -> None:
    """Without it nft swaps the bytes of marks; with it on verdicts nft 1.0.6 aborts."""

    def orders(key_type: int, data_type: int | None) -> set[int]:
        flags = SetFlag.MAP if data_type is not None else 0
        wanted = Set(family=Family.IPV4, table="t", name="s", key_type=key_type, key_length=4, data_type=data_type, flags=flags)
        return set(nft_data.decode_userdata(netlink.attributes(wanted.encode()).get(13, b"")))

    assert orders(DataType.MARK, None) == {0}
    assert orders(DataType.MARK, DataType.VERDICT) == {0}
    assert orders(DataType.IPV4_ADDR, DataType.MARK) == {1}
    assert orders(DataType.IPV4_ADDR, DataType.IPV4_ADDR) == set()
    assert orders(concatenated(DataType.MARK, DataType.IPV4_ADDR), DataType.MARK) == {1}


def test_a_concatenation_is_a_number_of_six_bits_a_field() -> None:
    frontend = concatenated(DataType.IPV4_ADDR, DataType.INET_PROTOCOL, DataType.INET_SERVICE)
    assert frontend == (7 << 12) + (12 << 6) + 13


def dumped(wanted: Rule, **changes: Any) -> DumpedRule:
    raw = nfnetlink.family_header(wanted.family) + wanted.encode() + netlink.u64be(3, 5)
    rule = DumpedRule.decode(raw)
    properties = {name: getattr(rule, name) for name in ("family", "table", "chain", "handle", "expressions", "comment")}
    return DumpedRule(**(properties | changes))


def test_a_rule_matches_what_the_kernel_has() -> None:
    expressions = (MetaLoad(dreg=Register.R0, key=MetaKey.MARK),)
    wanted = Rule(family=Family.IPV4, table="t", chain="c", expressions=expressions, comment="why")
    assert wanted.matches(dumped(wanted))
    assert dumped(wanted).handle == 5
    assert dumped(wanted).decoded() == expressions
    other = Rule(family=Family.IPV4, table="t", chain="c", expressions=(Numgen(dreg=Register.R0, modulus=2),))
    for change in (
        {"chain": "d"},
        {"table": "u"},
        {"family": Family.IPV6},
        {"comment": None},
        {"comment": "else"},
        {"expressions": b""},
        {"expressions": b"\1"},
        {"expressions": other.encode_expressions()},
    ):
        assert not wanted.matches(dumped(wanted, **change))


def test_a_negative_priority_and_the_policy_come_through() -> None:
    base = BaseChain(type="nat", hook=0, priority=-101)
    assert base.policy == VerdictCode.ACCEPT
    chain = Chain(family=Family.IPV6, table="t", name="c", base=base)
    found = Chain.decode(payload(chain))
    assert found.base == base


def test_names_must_be_names() -> None:
    with pytest.raises(EncodingError):
        Table(family=Family.IPV4, name="a\0b").encode()


@pytest.mark.parametrize(
    "thing",
    [NamedObject(family=Family.IPV6, table="t", name="theirs", type=1), Flowtable(family=Family.IPV4, table="t", name="fast")],
    ids=["named object", "flowtable"],
)
def test_what_others_may_have_is_told_by_its_key(thing: NamedObject | Flowtable) -> None:
    payload = nfnetlink.family_header(thing.family) + thing.encode_key()
    assert type(thing).decode(payload) == thing
    with pytest.raises(MalformedMessageError, match="attribute 2 is missing"):
        type(thing).decode(nfnetlink.family_header(thing.family) + netlink.string(1, "t"))
