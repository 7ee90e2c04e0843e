"""Elements: packed in bulk, read back as they were, every message within its limit."""

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kproxy_core.wire import netlink, nfnetlink
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.netlink import MessageFlag
from kproxy_core.wire.nftables import (
    ACCEPT,
    DataType,
    Element,
    ElementCodec,
    ElementFlag,
    Family,
    MessageKind,
    Operation,
    Set,
    SetFlag,
    decode_elements,
    element_at,
    interval,
    jump,
)

from .strategies import damaged, names, verdicts

lengths = st.integers(1, 64)


def codec(key_length: int, data_length: int = 0) -> ElementCodec:
    return ElementCodec(family=Family.IPV4, table="kproxy", set_name="services", key_length=key_length, data_length=data_length)


def payload(operation: Operation) -> bytes:
    return nfnetlink.family_header(operation.family) + operation.attributes


@st.composite
def tables_of_pairs(draw: st.DrawFn) -> tuple[ElementCodec, list[tuple[bytes, bytes]]]:
    key_length, data_length = draw(lengths), draw(lengths)
    key = st.binary(min_size=key_length, max_size=key_length)
    data = st.binary(min_size=data_length, max_size=data_length)
    return codec(key_length, data_length), draw(st.lists(st.tuples(key, data), max_size=30))


@given(tables_of_pairs())
def test_pairs_come_back(case: tuple[ElementCodec, list[tuple[bytes, bytes]]]) -> None:
    elements, pairs = case
    operations = elements.add(pairs)
    assert len(operations) == bool(pairs)
    assert [pair for operation in operations for pair in elements.decode(payload(operation))] == pairs
    assert [(e.key, e.data) for operation in operations for e in decode_elements(payload(operation))] == pairs
    assert [item for operation in operations for item in elements.decode_with_comments(payload(operation))] == [
        (key, data, None) for key, data in pairs
    ]
    assert elements.add(iter(pairs)) == operations
    typed = elements.add_elements(Element(key=key, data=data) for key, data in pairs)
    assert [operation.attributes for operation in typed] == [operation.attributes for operation in operations]


@given(tables_of_pairs())
def test_keys_come_back(case: tuple[ElementCodec, list[tuple[bytes, bytes]]]) -> None:
    elements = codec(case[0].key_length)
    keys = [key for key, _ in case[1]]
    for operations, kind in (
        (elements.add_keys(keys), MessageKind.NEWSETELEM),
        (elements.delete(keys), MessageKind.DELSETELEM),
    ):
        assert {operation.kind for operation in operations} <= {kind}
        assert [pair for operation in operations for pair in elements.decode(payload(operation))] == [(key, b"") for key in keys]
    assert elements.delete(iter(keys)) == elements.delete(keys)


def unmarked(raw: bytes) -> bytes:
    """A list of elements as the kernel writes it: nothing marked as nested."""
    parts = []
    for kind, value in netlink.iter_attributes(raw, mask=0xFFFF):
        inside = unmarked(value) if kind & netlink.NESTED else value
        parts.append(netlink.attribute(kind & netlink.TYPE_MASK, inside))
    return b"".join(parts)


@given(tables_of_pairs())
def test_the_kernels_own_form_is_read_too(case: tuple[ElementCodec, list[tuple[bytes, bytes]]]) -> None:
    elements, pairs = case
    for operation in elements.add(pairs):
        raw = nfnetlink.family_header(Family.IPV4) + unmarked(operation.attributes)
        assert elements.decode(raw) == pairs
        assert [item[:2] for item in elements.decode_with_comments(raw)] == pairs


@given(tables_of_pairs(), st.data())
def test_elements_with_more_to_them_are_read_as_pairs(
    case: tuple[ElementCodec, list[tuple[bytes, bytes]]], data: st.DataObject
) -> None:
    elements, pairs = case
    optional = st.none() | st.integers(0, 2**63)
    comments = st.none() | st.text("abc/-:", max_size=60)
    full = [
        Element(key=key, data=value, timeout=data.draw(optional), expires=data.draw(optional), comment=data.draw(comments))
        for key, value in pairs
    ]
    operations = elements.add_elements(full)
    assert [pair for operation in operations for pair in elements.decode(payload(operation))] == pairs
    assert [e for operation in operations for e in decode_elements(payload(operation))] == full
    assert [item for operation in operations for item in elements.decode_with_comments(payload(operation))] == [
        (element.key, element.data, element.comment) for element in full
    ]


@given(
    st.lists(
        st.builds(
            Element,
            key=st.binary(min_size=1, max_size=16),
            key_end=st.none() | st.binary(min_size=1, max_size=16),
            data=st.none() | st.binary(min_size=1, max_size=16) | verdicts,
            flags=st.sampled_from([0, ElementFlag.INTERVAL_END]),
            comment=st.none() | names.filter(lambda name: len(name.encode()) < 128 and not set(name) & {'"', "\n"}),
        ),
        max_size=10,
    )
)
def test_elements_come_back(wanted: list[Element]) -> None:
    operations = codec(4).add_elements(wanted)
    assert [e for operation in operations for e in decode_elements(payload(operation))] == wanted


@pytest.mark.parametrize(("key_length", "data_length"), [(1, 1), (4, 4), (8, 8), (12, 4), (64, 64), (16, 0)])
@pytest.mark.parametrize("count", [1, 1500, 20_000])
def test_messages_are_as_full_as_they_may_be(key_length: int, data_length: int, count: int) -> None:
    elements = codec(key_length, data_length)
    keys = [number.to_bytes(max(key_length, 4), "big")[-key_length:] for number in range(count)]
    pairs = [(key, bytes(data_length)) for key in keys]
    operations = elements.add(pairs) if data_length else elements.add_keys(keys)
    assert [pair for operation in operations for pair in elements.decode(payload(operation))] == pairs
    size = 12 + (key_length + 3 & ~3) + (8 + (data_length + 3 & ~3) if data_length else 0)
    per_message = 65531 // size
    assert len(operations) == -(-count // per_message)
    longest = max(len(netlink.attributes(operation.attributes)[3]) for operation in operations)
    assert longest == min(count, per_message) * size
    assert len(elements.delete(keys)) == -(-count // (65531 // (12 + (key_length + 3 & ~3))))


def test_many_elements_with_comments_are_spread_over_messages() -> None:
    elements = codec(4, 4)
    wanted = [Element(key=struct.pack("!I", n), data=bytes(4), comment="x" * (n % 100)) for n in range(5000)]
    operations = elements.add_elements(wanted)
    assert [e for operation in operations for e in decode_elements(payload(operation))] == wanted
    sizes = [len(netlink.attributes(operation.attributes)[3]) for operation in operations]
    assert max(sizes) <= 65531
    assert min(sizes[:-1]) > 65531 - 200


def test_nothing_makes_no_message() -> None:
    elements = codec(4, 4)
    assert elements.add([]) == elements.delete([]) == elements.add_keys([]) == elements.add_elements([]) == []


@pytest.mark.parametrize(
    "wrong",
    [
        [(b"123", b"1234")],
        [(b"1234", b"123")],
        [(b"1234", b"1234"), (b"123", b"12345")],
        [(b"12345", b"123"), (b"1234", b"1234")],
        [(b"", b"")],
    ],
)
def test_wrong_lengths_are_refused_even_if_they_add_up(wrong: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(EncodingError, match=r"services: a (key|data) of"):
        codec(4, 4).add(wrong)
    if any(len(key) != 4 for key, _ in wrong):
        with pytest.raises(EncodingError, match="key"):
            codec(4).delete([key for key, _ in wrong])


def test_packed_data_needs_a_map() -> None:
    with pytest.raises(EncodingError, match="holds no packed data"):
        codec(4).add([(b"1234", b"1234")])


def test_flags_of_additions() -> None:
    (plain,), (exclusive,) = codec(4).add_keys([b"1234"]), codec(4).add_keys([b"1234"], exclusive=True)
    assert plain.flags == MessageFlag.CREATE
    assert exclusive.flags == MessageFlag.CREATE | MessageFlag.EXCL


def some_set(**more: Any) -> Set:
    return Set(family=Family.IPV6, table="t", name="s", **({"key_type": DataType.MARK, "key_length": 4} | more))


def test_the_codec_of_a_set() -> None:
    found = ElementCodec.of(some_set())
    assert (found.family, found.table, found.set_name, found.key_length, found.data_length) == (Family.IPV6, "t", "s", 4, 0)
    plain = some_set(data_type=DataType.IPV4_ADDR, data_length=4, flags=SetFlag.MAP)
    assert ElementCodec.of(plain).data_length == 4
    verdicts = some_set(data_type=DataType.VERDICT, data_length=16, flags=SetFlag.MAP)
    assert ElementCodec.of(verdicts).data_length == 0


def test_verdicts_are_no_packed_data() -> None:
    elements = codec(4)
    (operation,) = elements.add_elements([Element(key=b"1234", data=jump("there")), Element(key=b"1235", data=ACCEPT)])
    assert [element.data for element in decode_elements(payload(operation))] == [jump("there"), ACCEPT]
    with pytest.raises(MalformedMessageError, match="services"):
        codec(4, 4).decode(payload(operation))


def test_elements_of_another_length_are_refused() -> None:
    (operation,) = codec(4, 8).add([(b"1234", b"12345678")])
    for other in (codec(4, 4), codec(8, 8), codec(8, 4), codec(3, 8)):
        with pytest.raises(MalformedMessageError, match="not packed key and data"):
            other.decode(payload(operation))


def test_data_of_another_kind_in_the_same_place_is_refused() -> None:
    """As long as packed data would be, but not marked as such."""
    key = netlink.attribute(1, netlink.attribute(1, b"1234"))
    strange = netlink.attribute(2, netlink.attribute(2, b"5678"))
    raw = nfnetlink.family_header(Family.IPV4) + netlink.attribute(3, netlink.attribute(1, key + strange))
    with pytest.raises(MalformedMessageError, match="not packed key and data"):
        codec(4, 4).decode(raw)


def test_commented_elements_come_back() -> None:
    elements = codec(5, 3)
    rows = [(b"%05d" % n, b"%03d" % (n % 1000), "ü" * (n % 120)) for n in range(3000)]
    operations = elements.add_commented(rows)
    assert [item for operation in operations for item in elements.decode_with_comments(payload(operation))] == rows
    typed = elements.add_elements(Element(key=key, data=data, comment=comment) for key, data, comment in rows)
    assert operations == typed
    for wrong in ((b"1234", b"123", "x"), (b"12345", b"12", "x"), (b"12345", b"123", 'say "x"')):
        with pytest.raises(EncodingError):
            elements.add_commented([wrong])


@pytest.mark.parametrize(
    ("userdata", "comment"),
    [
        (b"", None),
        (b"\0\4abc\0", "abc"),
        (b"\0\3abc", "abc"),
        (b"\0\0", ""),
        (b"\0\5a\0bc\0", "a"),
        (b"\1\4abc\0", None),
        (b"\1\1x\0\4abc\0", "abc"),
        (b"\0\4abc\0\1\1x", "abc"),
        (b"\0\xffabc", None),
        (b"\0", None),
    ],
)
def test_comments_that_others_wrote(userdata: bytes, comment: str | None) -> None:
    """What nft, another version of it or anybody else put there."""
    key = netlink.attribute(1, netlink.attribute(1, b"1234"))
    raw = netlink.attribute(3, netlink.attribute(1, key + (netlink.attribute(6, userdata) if userdata else b"")))
    message = nfnetlink.family_header(Family.IPV4) + raw
    assert codec(4).decode_with_comments(message) == [(b"1234", b"", comment)]
    assert decode_elements(message) == [Element(key=b"1234", comment=comment)]


def test_intervals() -> None:
    assert interval(b"\1", b"\5", data=b"x") == (
        Element(key=b"\1", data=b"x"),
        Element(key=b"\5", flags=ElementFlag.INTERVAL_END),
    )
    assert interval(b"\1", None) == (Element(key=b"\1"),)


def test_deletion_sends_keys_only() -> None:
    elements = codec(4, 4)
    full = Element(key=b"1234", key_end=b"1239", data=b"data", timeout=5, comment="c", flags=ElementFlag.INTERVAL_END)
    (operation,) = elements.delete_elements([full])
    assert decode_elements(payload(operation)) == [Element(key=b"1234", key_end=b"1239", flags=ElementFlag.INTERVAL_END)]


def test_a_message_without_elements() -> None:
    raw = nfnetlink.family_header(Family.IPV4) + netlink.string(1, "kproxy")
    assert codec(4, 4).decode(raw) == []
    assert decode_elements(raw) == []


@given(tables_of_pairs(), st.data())
def test_every_byte_of_an_element_leads_to_it(case: tuple[ElementCodec, list[tuple[bytes, bytes]]], data: st.DataObject) -> None:
    """The kernel tells the place of a fault as an offset from the message's header."""
    elements, pairs = case
    for operation in elements.add(pairs):
        raw = operation.encode(1)
        size = len(netlink.attributes(operation.attributes)[3]) // len(pairs)
        first = len(raw) - size * len(pairs)
        index = data.draw(st.integers(0, len(pairs) - 1))
        within = data.draw(st.integers(0, size - 1))
        assert element_at(operation, first + index * size + within) == index
        assert element_at(operation, first - 1) is None
        assert element_at(operation, len(raw)) is None
        assert element_at(operation, 0) is None


@given(st.integers(0, 120) | st.integers(0, 2**32 - 1), st.binary(max_size=60))
@example(70, netlink.ATTRIBUTE_HEADER.pack(200, 3))
def test_no_offset_confuses(offset: int, attributes: bytes) -> None:
    operation = Operation(kind=MessageKind.NEWSETELEM, flags=0, family=Family.IPV4, attributes=attributes)
    found = element_at(operation, offset)
    assert found is None or found <= len(attributes) // 4


@given(tables_of_pairs(), st.data())
def test_damaged_elements_are_read_or_malformed(
    case: tuple[ElementCodec, list[tuple[bytes, bytes]]], data: st.DataObject
) -> None:
    elements, pairs = case
    for operation in elements.add(pairs):
        raw = data.draw(damaged(payload(operation)))
        for read in (elements.decode, elements.decode_with_comments, decode_elements):
            try:
                read(raw)
            except MalformedMessageError:
                continue
