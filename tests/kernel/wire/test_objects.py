"""Tables, chains, sets and elements go into the real kernel and come back as what they were."""

import json
import struct

import pytest
from attrs import evolve

from kproxy_core.kernel.errors import DumpInterruptedError, NotFoundError
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.wire import nftables as nft_wire
from kproxy_core.wire.nftables import (
    ACCEPT,
    DROP,
    BaseChain,
    Chain,
    DataType,
    Element,
    ElementCodec,
    ElementFlag,
    Family,
    Hook,
    Lookup,
    MetaKey,
    MetaLoad,
    PayloadBase,
    PayloadLoad,
    Register,
    Rule,
    Set,
    SetFlag,
    Table,
    TableFlag,
    VerdictCode,
    concatenated,
    goto,
    interval,
    jump,
    set_userdata,
)

from .conftest import Nft

pytestmark = pytest.mark.kernel

IPV4 = Family.IPV4
FRONTEND = concatenated(DataType.IPV4_ADDR, DataType.INET_PROTOCOL, DataType.INET_SERVICE)
TABLE = Table(family=IPV4, name="kproxy", comment="made by kproxy")


def frontend(address: int, port: int) -> bytes:
    return struct.pack("!IB3xH2x", address, 6, port)


def some_set(name: str, **more: object) -> Set:
    properties: dict[str, object] = {"key_type": DataType.IPV4_ADDR, "key_length": 4}
    return Set(family=IPV4, table="kproxy", name=name, **(properties | more))  # type: ignore[arg-type]


SETS = {
    "set": some_set("s"),
    "set with a comment": some_set("s", userdata=set_userdata(comment="addresses of services")),
    "set with a size": some_set("s", size=12345),
    "set with a timeout": some_set("s", flags=SetFlag.TIMEOUT, timeout=10_800_000, gc_interval=30_000),
    "set that packets fill": some_set("s", flags=SetFlag.TIMEOUT | SetFlag.EVAL, size=1000, timeout=5000),
    "constant set": some_set("s", flags=SetFlag.CONSTANT),
    "set for little memory": some_set("s", policy=1),
    "set with counters": some_set("s", counter=True),
    "intervals": some_set("s", flags=SetFlag.INTERVAL),
    "intervals of concatenations": some_set(
        "s",
        flags=SetFlag.INTERVAL | SetFlag.CONCAT,
        key_type=concatenated(DataType.MARK, DataType.IPV4_ADDR),
        key_length=8,
        field_lengths=(4, 4),
    ),
    "map of concatenations": some_set(
        "s", flags=SetFlag.MAP, key_type=FRONTEND, key_length=12, data_type=DataType.MARK, data_length=4
    ),
    "map to concatenations": some_set(
        "s",
        flags=SetFlag.MAP,
        key_type=concatenated(DataType.MARK, DataType.MARK),
        key_length=8,
        data_type=concatenated(DataType.IPV4_ADDR, DataType.INET_SERVICE),
        data_length=8,
    ),
    "map of verdicts": some_set("s", flags=SetFlag.MAP, key_type=DataType.MARK, data_type=DataType.VERDICT, data_length=16),
    "map that packets fill": some_set(
        "s",
        flags=SetFlag.MAP | SetFlag.TIMEOUT | SetFlag.EVAL,
        data_type=DataType.MARK,
        data_length=4,
        size=65536,
        timeout=1000,
        userdata=set_userdata(comment="clients"),
    ),
}


@pytest.mark.parametrize("wanted", SETS.values(), ids=SETS)
def test_a_set_comes_back_as_itself(wanted: Set, nftables: NftSocket, nft: Nft) -> None:
    assert nftables.commit([nft_wire.create(TABLE), nft_wire.create(wanted)]).ok
    (dumped,) = nftables.sets(IPV4, "kproxy")
    assert dumped == wanted
    assert dumped.handle is not None
    listed = json.loads(nft("-j", "list", "ruleset"))["nftables"]
    assert [item.get("set", item.get("map", {})).get("name") for item in listed[2:]] == ["s"]
    if wanted.comment:
        assert f'comment "{wanted.comment}"' in nft("list", "ruleset")


def test_adding_a_set_again_is_fine_unless_it_differs(nftables: NftSocket) -> None:
    wanted = SETS["map of concatenations"]
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(wanted)]).ok
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(wanted)]).ok
    (error,) = nftables.commit([nft_wire.add(SETS["set"])]).errors
    assert error.error in (17, 22)
    (error,) = nftables.commit([nft_wire.create(wanted)]).errors
    assert error.error == 17


@pytest.mark.parametrize("family", [Family.IPV4, Family.IPV6, Family.INET, Family.BRIDGE])
def test_a_table_comes_back_as_itself(family: Family, nftables: NftSocket, nft: Nft) -> None:
    plain = Table(family=family, name="plain")
    commented = Table(family=family, name="commented", flags=TableFlag.DORMANT, comment="asleep")
    assert nftables.commit([nft_wire.add(plain), nft_wire.add(commented)]).ok
    assert nftables.tables(family) == (plain, commented)
    assert nftables.tables() == (plain, commented)
    assert 'comment "asleep"' in nft("list", "ruleset")
    assert nftables.commit([nft_wire.delete(plain), nft_wire.delete(commented)]).ok
    assert nftables.tables() == ()


def test_an_owned_table_tells_its_owner_and_goes_with_it(namespace: int, nftables: NftSocket) -> None:
    with NftSocket(namespace=namespace) as other:
        assert other.commit([nft_wire.add(Table(family=IPV4, name="owned", flags=TableFlag.OWNER))]).ok
        (table,) = nftables.tables()
        assert (table.owner, table.flags) == (other.port, TableFlag.OWNER)
        (error,) = nftables.commit([nft_wire.delete(table)]).errors
        assert error.error == 1
    assert nftables.tables() == ()


@pytest.mark.parametrize(
    "base",
    [
        None,
        BaseChain(type="nat", hook=Hook.PREROUTING, priority=-101),
        BaseChain(type="nat", hook=Hook.OUTPUT, priority=-99),
        BaseChain(type="nat", hook=Hook.INPUT, priority=101),
        BaseChain(type="nat", hook=Hook.POSTROUTING, priority=99, policy=VerdictCode.ACCEPT),
        BaseChain(type="filter", hook=Hook.FORWARD, priority=0, policy=VerdictCode.DROP),
        BaseChain(type="filter", hook=Hook.PREROUTING, priority=-300),
        BaseChain(type="route", hook=Hook.OUTPUT, priority=-150),
    ],
    ids=str,
)
def test_a_chain_comes_back_as_itself(base: BaseChain | None, nftables: NftSocket, nft: Nft) -> None:
    chain = Chain(family=IPV4, table="kproxy", name="c", base=base, comment="entrance")
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(chain)]).ok
    assert nftables.chains(IPV4, "kproxy") == (chain,)
    assert nftables.chains(IPV4, "elsewhere") == ()
    assert 'comment "entrance"' in nft("list", "ruleset")


def test_rules_keep_their_order_and_can_be_replaced(nftables: NftSocket) -> None:
    chain = Chain(family=IPV4, table="kproxy", name="c")

    def rule(comment: str, **more: int) -> Rule:
        return Rule(family=IPV4, table="kproxy", chain="c", expressions=(), comment=comment, **more)

    def comments() -> list[str | None]:
        return [dumped.comment for dumped in nftables.rules(IPV4, "kproxy", "c")]

    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(chain), nft_wire.add(rule("b"))]).ok
    assert nftables.commit([nft_wire.add(rule("c")), nft_wire.insert(rule("a"))]).ok
    assert comments() == ["a", "b", "c"]
    first, second, _ = nftables.rules(IPV4, "kproxy")
    assert nftables.commit(
        [nft_wire.replace(rule("B", handle=second.handle)), nft_wire.add(rule("a2", position=first.handle))]
    ).ok
    assert comments() == ["a", "a2", "B", "c"]
    assert nftables.commit([nft_wire.delete(first)]).ok
    assert comments() == ["a2", "B", "c"]
    assert nftables.commit([nft_wire.flush_chain(chain)]).ok
    assert comments() == []
    assert nftables.commit([nft_wire.delete(chain)]).ok
    assert nftables.rules(IPV4, "kproxy", "c") == ()


def test_many_elements_go_in_and_out_packed(nftables: NftSocket) -> None:
    wanted = SETS["map of concatenations"]
    codec = ElementCodec.of(wanted)
    pairs = [(frontend(0x0A000000 + number, 80), struct.pack("=I", number)) for number in range(20_000)]
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(wanted), *codec.add(pairs)]).ok
    assert sorted(nftables.elements(codec)) == pairs
    assert nftables.commit(codec.delete([key for key, _ in pairs[1:]])).ok
    assert nftables.elements(codec) == pairs[:1]
    assert nftables.element(codec, pairs[0][0]) == Element(key=pairs[0][0], data=pairs[0][1])
    assert nftables.element(codec, pairs[1][0]) is None
    assert nftables.commit([nft_wire.flush_set(wanted)]).ok
    assert nftables.elements(codec) == []


@pytest.mark.parametrize("kind", ["elements", "elements_with_comments", "full_elements"])
def test_a_large_set_is_listed_whole_just_after_it_was_filled(nftables: NftSocket, kind: str) -> None:
    """The kernel's hash table still grows then, beside the listing, which as it comes from the kernel most often lacks some."""
    wanted = SETS["map of concatenations"]
    codec = ElementCodec.of(wanted)
    pairs = [(frontend(0x0A000000 + number, 80), struct.pack("=I", number)) for number in range(60_000)]
    for _ in range(4):
        assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(wanted), *codec.add(pairs)]).ok
        listed = getattr(nftables, kind)(codec)
        assert len(listed) == len(pairs)
        assert {element.key if kind == "full_elements" else element[0] for element in listed} == {key for key, _ in pairs}
        assert nftables.commit([nft_wire.delete(TABLE)]).ok


@pytest.mark.parametrize(("key_length", "data_length"), [(1, 1), (2, 4), (3, 5), (4, 0), (16, 3), (5, 16), (64, 64)])
def test_odd_lengths_go_in_and_out(key_length: int, data_length: int, nftables: NftSocket) -> None:
    more = {"data_type": DataType.INTEGER, "data_length": data_length, "flags": SetFlag.MAP} if data_length else {}
    wanted = some_set("odd", key_type=DataType.INTEGER, key_length=key_length, **more)
    codec = ElementCodec.of(wanted)
    pairs = [(bytes([number]) * key_length, bytes([255 - number]) * data_length) for number in range(1, 200)]
    add = codec.add(pairs) if data_length else codec.add_keys([key for key, _ in pairs])
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(wanted), *add]).ok
    assert sorted(nftables.elements(codec)) == pairs
    assert nftables.commit(codec.delete([key for key, _ in pairs[10:]])).ok
    assert sorted(nftables.elements(codec)) == pairs[:10]


def test_elements_with_comments(nftables: NftSocket, nft: Nft) -> None:
    wanted = SETS["map of concatenations"]
    codec = ElementCodec.of(wanted)
    items = [
        (frontend(0x0A000000 + number, 80), struct.pack("=I", number), f"ns/service-{number}:http" if number % 3 else None)
        for number in range(3000)
    ]
    add = codec.add_elements(Element(key=key, data=data, comment=comment) for key, data, comment in items)
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(wanted), *add]).ok
    assert sorted(nftables.elements_with_comments(codec)) == items
    assert sorted(nftables.elements(codec)) == [item[:2] for item in items]
    assert 'comment "ns/service-2998:http" : 0x00000bb6' in nft("list", "ruleset")


def test_elements_with_verdicts(nftables: NftSocket, nft: Nft) -> None:
    wanted = SETS["map of verdicts"]
    codec = ElementCodec.of(wanted)
    chain = Chain(family=IPV4, table="kproxy", name="target")
    elements = [
        Element(key=struct.pack("=I", number), data=data, comment=f"number {number}")
        for number, data in enumerate((jump("target"), goto("target"), DROP, ACCEPT))
    ]
    operations = [nft_wire.add(TABLE), nft_wire.add(chain), nft_wire.add(wanted), *codec.add_elements(elements)]
    assert nftables.commit(operations).ok
    assert sorted(nftables.full_elements(codec), key=lambda element: element.key) == elements
    assert '0x00000001 comment "number 1" : goto target' in nft("list", "ruleset")
    assert nftables.commit(codec.delete_elements(elements[1:])).ok
    assert nftables.full_elements(codec) == elements[:1]


def test_elements_with_timeouts(nftables: NftSocket) -> None:
    wanted = SETS["map that packets fill"]
    codec = ElementCodec.of(wanted)
    own = Element(key=b"\1\1\1\1", data=b"\0\0\0\1", timeout=7_200_000)
    default = Element(key=b"\2\2\2\2", data=b"\0\0\0\2", comment="an hour", expires=None)
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(wanted), *codec.add_elements([own, default])]).ok
    first, second = sorted(nftables.full_elements(codec), key=lambda element: element.key)
    assert (first.key, first.data, first.timeout) == (own.key, own.data, own.timeout)
    assert first.expires is not None
    assert 7_000_000 < first.expires <= 7_200_000
    assert (second.data, second.comment) == (default.data, default.comment)
    assert sorted(nftables.elements(codec)) == [(b"\1\1\1\1", b"\0\0\0\1"), (b"\2\2\2\2", b"\0\0\0\2")]
    assert sorted(nftables.elements_with_comments(codec))[1][2] == "an hour"


def test_an_expiring_element_can_be_restored_with_what_is_left_of_it(nftables: NftSocket) -> None:
    wanted = SETS["map that packets fill"]
    codec = ElementCodec.of(wanted)
    element = Element(key=b"\1\1\1\1", data=b"\0\0\0\1", timeout=7_200_000, expires=60_000)
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(wanted), *codec.add_elements([element])]).ok
    (found,) = nftables.full_elements(codec)
    assert found.timeout == 7_200_000
    assert found.expires is not None
    assert found.expires <= 60_000


def test_intervals(nftables: NftSocket, nft: Nft) -> None:
    wanted = SETS["intervals"]
    codec = ElementCodec.of(wanted)
    elements = [
        *interval(bytes((10, 0, 0, 0)), bytes((10, 1, 0, 0))),
        *interval(bytes((192, 168, 0, 7)), bytes((192, 168, 0, 9))),
    ]
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(wanted), *codec.add_elements(elements)]).ok
    assert sorted(nftables.full_elements(codec), key=lambda element: element.key) == elements
    assert "10.0.0.0/16" in nft("list", "ruleset")
    assert "192.168.0.7-192.168.0.8" in nft("list", "ruleset")
    covering = nftables.element(codec, bytes((10, 0, 200, 3)))
    assert covering is not None
    assert covering.key == bytes((10, 0, 0, 0))
    assert nftables.commit(codec.delete_elements(elements[:2])).ok
    assert sorted(nftables.full_elements(codec), key=lambda element: element.key) == elements[2:]


def test_an_interval_to_the_end_of_all_addresses(nftables: NftSocket, nft: Nft) -> None:
    wanted = SETS["intervals"]
    codec = ElementCodec.of(wanted)
    add = codec.add_elements(interval(bytes((240, 0, 0, 0)), None))
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(wanted), *add]).ok
    assert "240.0.0.0/4" in nft("list", "ruleset")


def test_intervals_of_concatenations(nftables: NftSocket, nft: Nft) -> None:
    wanted = SETS["intervals of concatenations"]
    codec = ElementCodec.of(wanted)
    elements = [
        Element(
            key=struct.pack("!I", service) + bytes((10, 0, 0, 0)), key_end=struct.pack("!I", service) + bytes((10, 0, 3, 255))
        )
        for service in range(500)
    ]
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(wanted), *codec.add_elements(elements)]).ok
    assert sorted(nftables.full_elements(codec), key=lambda element: element.key) == sorted(
        elements, key=lambda element: element.key
    )
    assert "0x00000001 . 10.0.0.0/22" in nft("list", "ruleset")
    assert nftables.commit(codec.delete_elements(elements[1:])).ok
    assert nftables.full_elements(codec) == elements[:1]


def test_the_element_for_everything_else(nftables: NftSocket, nft: Nft) -> None:
    wanted = SETS["map of verdicts"]
    codec = ElementCodec.of(wanted)
    other = Element(key=b"", data=DROP, flags=ElementFlag.CATCHALL)
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(wanted), *codec.add_elements([other])]).ok
    assert nftables.full_elements(codec) == [other]
    assert "* : drop" in nft("list", "ruleset")


def test_elements_with_counters(nftables: NftSocket, nft: Nft) -> None:
    wanted = SETS["set with counters"]
    codec = ElementCodec.of(wanted)
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(wanted), *codec.add_keys([b"\1\1\1\1"])]).ok
    assert nftables.full_elements(codec) == [Element(key=b"\1\1\1\1", packets=0, bytes=0)]
    assert nftables.elements(codec) == [(b"\1\1\1\1", b"")]
    assert "1.1.1.1 counter packets 0 bytes 0" in nft("list", "ruleset")


def test_a_value_from_one_map_feeds_another_and_nft_can_list_it(nftables: NftSocket, nft: Nft) -> None:
    """nft 1.0.6 aborts when a looked-up value is looked up directly; by way of the mark it does not."""
    services = some_set("services", flags=SetFlag.MAP, data_type=DataType.MARK, data_length=4)
    actions = some_set("actions", flags=SetFlag.MAP, key_type=DataType.MARK, data_type=DataType.VERDICT, data_length=16)
    chain = Chain(family=IPV4, table="kproxy", name="c", base=BaseChain(type="nat", hook=0, priority=-110))
    rule = Rule(
        family=IPV4,
        table="kproxy",
        chain="c",
        expressions=(
            PayloadLoad(dreg=Register.R0, base=PayloadBase.NETWORK, offset=16, length=4),
            Lookup(set_name="services", sreg=Register.R0, dreg=Register.R1),
            nft_wire.MetaSet(key=MetaKey.MARK, sreg=Register.R1),
            MetaLoad(dreg=Register.R2, key=MetaKey.MARK),
            Lookup(set_name="actions", sreg=Register.R2, dreg=Register.VERDICT),
        ),
    )
    things = [nft_wire.add(thing) for thing in (TABLE, services, actions, chain, rule)]
    assert nftables.commit(things).ok
    assert "meta mark set ip daddr map @services meta mark vmap @actions" in nft("list", "ruleset")
    assert nft("-j", "list", "ruleset")


def test_what_is_not_there_is_said_so(nftables: NftSocket) -> None:
    assert nftables.sets(IPV4, "kproxy") == ()
    assert nftables.rules(IPV4, "kproxy") == ()
    with pytest.raises(NotFoundError, match="list elements of s"):
        nftables.elements(ElementCodec.of(SETS["set"]))


def test_reading_several_things_consistently(namespace: int, nftables: NftSocket) -> None:
    calls: list[int] = []

    def read() -> int:
        calls.append(1)
        if len(calls) == 1:
            with NftSocket(namespace=namespace) as other:
                assert other.commit([nft_wire.add(TABLE)]).ok
        return len(nftables.tables())

    tables, generation = nftables.consistently(read)
    assert (tables, len(calls), generation) == (1, 2, nftables.generation())


def test_reading_while_others_change_their_own_tables_all_the_time(namespace: int, nftables: NftSocket) -> None:
    """No listing is undisturbed then, but two that agree are believed."""
    others = evolve(TABLE, name="others")
    codec = ElementCodec.of(SETS["set"])
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(SETS["set"]), *codec.add_keys([b"\x0a\0\0\x01"])]).ok
    calls: list[int] = []

    def read() -> list[tuple[bytes, bytes]]:
        calls.append(1)
        with NftSocket(namespace=namespace) as other:
            assert other.commit([nft_wire.add(others)]).ok
            assert other.commit([nft_wire.delete(others)]).ok
        return nftables.elements(codec)

    found, generation = nftables.consistently(read)
    assert (found, len(calls)) == ([(b"\x0a\0\0\x01", b"")], 2)
    assert generation == nftables.generation()


def test_reading_what_changes_all_the_time_is_given_up(namespace: int, nftables: NftSocket) -> None:
    calls: list[int] = []

    def read() -> int:
        calls.append(1)
        with NftSocket(namespace=namespace) as other:
            assert other.commit([nft_wire.add(evolve(TABLE, name=f"t{len(calls)}"))]).ok
        return len(nftables.tables())

    with pytest.raises(DumpInterruptedError, match="read nf_tables: nf_tables changed during each of 10 attempts"):
        nftables.consistently(read)
