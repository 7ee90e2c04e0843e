"""Messages, attributes and acknowledgements: what is written is read back, and garbage is refused."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.wire import netlink
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.netlink import Acknowledgement, ControlType, Message, MessageFlag

kinds = st.integers(0, netlink.TYPE_MASK)
pairs = st.lists(st.tuples(kinds, st.binary(max_size=50)), max_size=20)


@given(pairs)
def test_attributes_come_back(items: list[tuple[int, bytes]]) -> None:
    raw = b"".join(netlink.attribute(kind, value) for kind, value in items)
    assert len(raw) % 4 == 0
    assert list(netlink.iter_attributes(raw)) == items
    assert netlink.attributes(raw) == dict(items)
    assert list(netlink.iter_attributes(b"head" + raw + b"tail", 4, 4 + len(raw))) == items


@given(kinds, pairs)
def test_a_nested_attribute_is_marked_and_read_without_the_mark(kind: int, items: list[tuple[int, bytes]]) -> None:
    raw = netlink.nested(kind, *(netlink.attribute(inner, value) for inner, value in items))
    ((found, inside),) = netlink.iter_attributes(raw)
    assert found == kind
    assert list(netlink.iter_attributes(inside)) == items
    ((marked, _),) = netlink.iter_attributes(raw, mask=0xFFFF)
    assert marked == kind | netlink.NESTED


@given(st.binary(max_size=200))
def test_any_bytes_are_attributes_or_malformed(raw: bytes) -> None:
    found: list[tuple[int, bytes]] = []
    try:
        found += netlink.iter_attributes(raw)
    except MalformedMessageError:
        return
    assert sum(4 + len(value) + len(netlink.padding(len(value))) for _, value in found) in range(len(raw), len(raw) + 4)


@given(pairs.filter(bool), st.data())
def test_truncated_attributes_are_malformed(items: list[tuple[int, bytes]], data: st.DataObject) -> None:
    raw = b"".join(netlink.attribute(kind, value) for kind, value in items)
    starts = [0]
    for _, value in items:
        starts.append(starts[-1] + 4 + len(value) + len(netlink.padding(len(value))))
    cut = data.draw(st.integers(0, len(raw) - 1))
    last_start = max(start for start in starts if start <= cut)
    last_length = len(items[starts.index(last_start)][1])
    if cut == last_start or cut >= last_start + 4 + last_length:
        assert len(list(netlink.iter_attributes(raw[:cut]))) == starts.index(last_start) + (cut != last_start)
    else:
        with pytest.raises(MalformedMessageError):
            list(netlink.iter_attributes(raw[:cut]))


def test_the_longest_attribute() -> None:
    assert netlink.attributes(netlink.attribute(1, bytes(0xFFFB))) == {1: bytes(0xFFFB)}
    with pytest.raises(EncodingError, match="65536 bytes"):
        netlink.attribute(1, bytes(0xFFFC))
    with pytest.raises(EncodingError):
        netlink.nested(1, netlink.attribute(1, bytes(0xFFF0)), netlink.attribute(2, bytes(20)))


@pytest.mark.parametrize(
    ("write", "width"), [(netlink.u16be, 2), (netlink.u32be, 4), (netlink.u64be, 8)], ids=["u16", "u32", "u64"]
)
def test_numbers(write: Callable[[int, int], bytes], width: int) -> None:
    for value in (0, 1, 2 ** (8 * width) - 1):
        ((_, raw),) = netlink.iter_attributes(write(5, value))
        assert netlink.decode_number(raw, width) == value
    for value in (-1, 2 ** (8 * width)):
        with pytest.raises(EncodingError, match="does not fit"):
            write(5, value)
    with pytest.raises(MalformedMessageError):
        netlink.decode_number(bytes(width + 1), width)


def test_text() -> None:
    assert netlink.attributes(netlink.string(1, "kproxy")) == {1: b"kproxy\0"}
    assert netlink.decode_string(b"kproxy\0\0junk") == "kproxy"
    assert netlink.decode_string(b"kproxy") == "kproxy"
    assert netlink.decode_string(b"\xffx\0") == "\\xffx"
    with pytest.raises(EncodingError, match="zero byte"):
        netlink.string(1, "k\0proxy")


messages = st.lists(
    st.builds(
        Message,
        st.integers(0, 0xFFFF),
        st.integers(0, 0xFFFF),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**32 - 1),
        st.integers(0, 10).flatmap(lambda words: st.binary(min_size=4 * words, max_size=4 * words)),
    ),
    max_size=10,
)


@given(messages)
def test_messages_come_back(items: list[Message]) -> None:
    raw = b"".join(netlink.message(m.type, m.flags, m.sequence, m.payload, m.port) for m in items)
    assert list(netlink.iter_messages(raw)) == items


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_malformed(raw: bytes) -> None:
    try:
        found = list(netlink.iter_messages(raw))
    except MalformedMessageError:
        return
    assert len(found) <= len(raw) // 16


def test_a_message_without_end_is_no_endless_loop() -> None:
    for length in (0, 1, 15, 17, 2**32 - 1):
        with pytest.raises(MalformedMessageError):
            list(netlink.iter_messages(struct.pack("=IHHII", length, 1, 0, 0, 0)))


def error_message(error: int, flags: int, details: bytes = b"", request: bytes = b"") -> Message:
    """An NLMSG_ERROR as the kernel builds it: the request's header, the request unless capped, then details."""
    header = struct.pack("=iIHHII", -error, 16 + len(request), 0xA09, 1, 77, 0)
    body = request if error and not flags & MessageFlag.CAPPED else b""
    return Message(ControlType.ERROR, flags, 77, 4711, header + body + details)


DETAILS = netlink.attribute(1, b"no such thing\0") + netlink.attribute(2, struct.pack("=I", 36))


@pytest.mark.parametrize("capped", [True, False])
def test_an_error_with_the_kernels_words(capped: bool) -> None:
    flags = MessageFlag.ACK_TLVS | (MessageFlag.CAPPED if capped else 0)
    answer = error_message(2, flags, DETAILS, request=bytes(24))
    assert netlink.acknowledgement(answer) == Acknowledgement(sequence=77, error=2, text="no such thing", offset=36)


def test_an_error_without_words() -> None:
    assert netlink.acknowledgement(error_message(16, 0, request=bytes(8))) == Acknowledgement(sequence=77, error=16)
    assert netlink.acknowledgement(error_message(16, MessageFlag.CAPPED)) == Acknowledgement(sequence=77, error=16)


def test_a_success() -> None:
    assert netlink.acknowledgement(error_message(0, 0)) == Acknowledgement(sequence=77, error=0)
    warned = error_message(0, MessageFlag.ACK_TLVS, DETAILS)
    assert netlink.acknowledgement(warned).text == "no such thing"


def test_the_end_of_a_dump() -> None:
    done = Message(ControlType.DONE, MessageFlag.MULTI, 5, 0, struct.pack("=i", 0))
    assert netlink.acknowledgement(done) == Acknowledgement(sequence=5, error=0)
    assert netlink.acknowledgement(done._replace(payload=b"")) == Acknowledgement(sequence=5, error=0)
    failed = done._replace(flags=MessageFlag.ACK_TLVS, payload=struct.pack("=i", -22) + DETAILS)
    assert netlink.acknowledgement(failed) == Acknowledgement(sequence=5, error=22, text="no such thing", offset=36)


@given(st.sampled_from([ControlType.ERROR, ControlType.DONE]), st.integers(0, 0xFFFF), st.binary(max_size=80))
def test_any_bytes_are_an_acknowledgement_or_malformed(kind: int, flags: int, payload: bytes) -> None:
    try:
        told = netlink.acknowledgement(Message(kind, flags, 9, 0, payload))
    except MalformedMessageError:
        return
    assert told.sequence == 9
