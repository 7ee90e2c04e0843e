"""Sets and their elements: what is encoded is read back, listed as the kernel does or otherwise, and garbage is refused."""

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.wire import ipset, netlink
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.ipset import IpSet, ListedSet, Requests, Versions
from kproxy_core.wire.ipset_constants import ErrorCode, in_words
from kproxy_core.wire.ipset_elements import (
    Element,
    decode_elements,
    decode_keys,
    encode_elements,
    encode_keys,
    pack_elements,
    refused_line,
)
from kproxy_core.wire.ipset_keys import KeyForm, SetType, halves, key_form
from kproxy_core.wire.nfnetlink import Family, family_header

from .strategies import damaged

HEADER = family_header(Family.IPV4)
FAMILIES = [Family.IPV4, Family.IPV6]
FORMS = [key_form(kind, family) for kind in SetType for family in ([Family.UNSPEC] if kind.is_bitmap else FAMILIES)]
numbers = st.integers(0, 2**32 - 1)
texts = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=60)
forms = st.sampled_from(FORMS)


def packed(form: KeyForm, *values: int | str) -> bytes:
    return form.pack(*(ip_address(value).packed if isinstance(value, str) else value for value in values))


@st.composite
def keys(draw: st.DrawFn, form: KeyForm) -> bytes:
    """Any key, as the kernel could list it."""
    return draw(st.binary(min_size=form.length, max_size=form.length))


@st.composite
def elements(draw: st.DrawFn, form: KeyForm) -> Element:
    return Element(
        key=draw(keys(form)),
        timeout=draw(st.none() | st.integers(0, 2147483)),
        comment=draw(st.none() | texts),
        nomatch=draw(st.booleans()),
        mark=draw(st.none() | st.tuples(numbers, numbers)),
        packets=draw(st.none() | st.integers(0, 2**64 - 1)),
        bytes=draw(st.none() | st.integers(0, 2**64 - 1)),
    )


form_and_elements = forms.flatmap(lambda form: st.tuples(st.just(form), st.lists(elements(form), max_size=8)))
form_and_keys = forms.flatmap(lambda form: st.tuples(st.just(form), st.lists(keys(form), max_size=60)))


def listing(encoded: list[bytes]) -> bytes:
    """Elements as the kernel lists them: without lines."""
    return HEADER + netlink.nested(8, *(netlink.nested(7, body) for body in encoded))


def as_listed(form: KeyForm, key: bytes) -> bytes:
    """A key's attributes with addresses that do not tell the order of their bytes: the form that the kernel lists."""
    return b"".join(
        netlink.nested(kind, netlink.attribute(*next(netlink.iter_attributes(value)))) if kind in (1, 20)
        else netlink.attribute(raw_kind, value)
        for (kind, value), (raw_kind, _) in zip(
            netlink.iter_attributes(form.encode(key)), netlink.iter_attributes(form.encode(key), mask=0xFFFF), strict=True
        )
    )  # fmt: skip


@given(form_and_elements)
def test_elements_are_read_back(case: tuple[KeyForm, list[Element]]) -> None:
    form, wanted = case
    payload = listing(encode_elements(form, wanted))
    assert decode_elements(form, payload) == wanted
    assert decode_keys(form, payload) == [element.key for element in wanted]


@given(form_and_keys)
def test_the_quick_way_reads_the_same_as_the_thorough_one(case: tuple[KeyForm, list[bytes]]) -> None:
    form, wanted = case
    listed = [as_listed(form, key) for key in wanted]
    assert [form.decode(body, 0, len(body)) for body in listed] == [
        (key, len(body)) for key, body in zip(wanted, listed, strict=True)
    ]
    quick = listing(listed)
    thorough = listing(encode_keys(form, wanted))
    assert decode_keys(form, quick) == decode_keys(form, thorough) == wanted


@given(form_and_elements, st.randoms(use_true_random=False))
def test_attributes_may_come_in_any_order(case: tuple[KeyForm, list[Element]], chance: object) -> None:
    form, wanted = case
    shuffled = []
    for body in encode_elements(form, wanted):
        parts = [netlink.attribute(kind, value) for kind, value in netlink.iter_attributes(body, mask=0xFFFF)]
        chance.shuffle(parts)  # type: ignore[attr-defined]
        shuffled.append(b"".join(parts))
    assert decode_elements(form, listing(shuffled)) == wanted


@given(form_and_elements, st.data())
def test_damage_is_read_as_something_or_refused(case: tuple[KeyForm, list[Element]], data: st.DataObject) -> None:
    form, wanted = case
    raw = data.draw(damaged(listing(encode_elements(form, wanted))))
    for read in (decode_elements, decode_keys):
        try:
            read(form, raw)
        except MalformedMessageError:
            continue


@given(st.lists(st.integers(0, 3000).map(lambda size: size * 4), max_size=40), st.none() | st.integers(1, 5))
def test_every_element_goes_into_one_message_that_fits(sizes: list[int], most: int | None) -> None:
    encoded = [netlink.attribute(26, bytes(size)) for size in sizes]
    messages = list(pack_elements(encoded, most))
    assert sum(count for count, _ in messages) == len(encoded)
    assert all(count <= (most or count) for count, _ in messages)
    unpacked: list[bytes] = []
    for count, attributes in messages:
        found = netlink.attributes(attributes)
        inner = list(netlink.iter_attributes(found[8]))
        lines = [struct.unpack_from("=I", value, 4)[0] for _, value in inner]
        assert lines == list(range(1, count + 1))
        unpacked += [value[8:] for _, value in inner]
    assert unpacked == encoded


def test_few_messages_are_enough() -> None:
    form = key_form(SetType.HASH_IP, Family.IPV4)
    assert [count for count, _ in pack_elements(encode_keys(form, [bytes(4)] * 5000))] == [2730, 2270]
    assert list(pack_elements([])) == []


@pytest.mark.parametrize(
    ("kind", "family", "values", "text"),
    [
        (SetType.HASH_IP, Family.IPV4, ["192.0.2.1"], "192.0.2.1"),
        (SetType.HASH_NET, Family.IPV4, ["192.0.2.0", 24], "192.0.2.0/24"),
        (SetType.HASH_NET, Family.IPV6, ["2001:db8::1", 128], "2001:db8::1"),
        (SetType.HASH_IP_PORT, Family.IPV6, ["2001:db8::1", 132, 80], "2001:db8::1,sctp:80"),
        (SetType.HASH_NET_PORT, Family.IPV4, ["10.0.0.0", 8, 17, 53], "10.0.0.0/8,udp:53"),
        (SetType.HASH_IP_PORT_IP, Family.IPV4, ["10.0.0.1", 6, 443, "10.0.0.2"], "10.0.0.1,tcp:443,10.0.0.2"),
        (SetType.HASH_IP_PORT_NET, Family.IPV4, ["10.0.0.1", 6, 443, "10.9.0.0", 16], "10.0.0.1,tcp:443,10.9.0.0/16"),
        (SetType.HASH_IP_PORT, Family.IPV4, ["10.0.0.1", 47, 0], "10.0.0.1,47:0"),
        (SetType.HASH_IP_MARK, Family.IPV4, ["10.0.0.1", 0x4000], "10.0.0.1,0x00004000"),
        (SetType.BITMAP_PORT, Family.UNSPEC, [30080], "30080"),
    ],
)
def test_a_key_and_its_text(kind: SetType, family: Family, values: list[int | str], text: str) -> None:
    form = key_form(kind, family)
    key = packed(form, *values)
    assert form.text(key) == text
    assert [str(ip_address(part)) if isinstance(part, bytes) else part for part in form.parts(key)] == values


@pytest.mark.parametrize(
    ("kind", "values", "complaint"),
    [
        (SetType.HASH_IP, [], "0 parts of a key, 1 expected"),
        (SetType.HASH_IP, ["2001:db8::1"], "an address of 16 bytes, 4 expected"),
        (SetType.HASH_IP, [7], "argument for 's' must be a bytes object"),
        (SetType.HASH_NET, ["0.0.0.0", 0], "a prefix length of 0, allowed are 1 to 32"),
        (SetType.HASH_NET, ["10.0.0.0", 33], "a prefix length of 33"),
        (SetType.HASH_IP_PORT, ["10.0.0.1", 6, 65536], "hash:ip,port: "),
    ],
)
def test_what_is_no_key(kind: SetType, values: list[int | str], complaint: str) -> None:
    with pytest.raises(EncodingError, match=complaint):
        packed(key_form(kind, Family.IPV4), *values)


def test_a_hash_needs_a_family() -> None:
    with pytest.raises(EncodingError, match="hash:ip needs the family IPv4 or IPv6"):
        _ = IpSet(name="x", type=SetType.HASH_IP).form


@pytest.mark.parametrize("encode", [encode_keys, lambda form, given: encode_elements(form, [Element(key=key) for key in given])])
def test_a_key_of_the_wrong_length(encode: object) -> None:
    with pytest.raises(EncodingError, match="a key of 3 bytes, 4 expected"):
        encode(key_form(SetType.HASH_IP, Family.IPV4), [bytes(4), bytes(3)])  # type: ignore[operator]


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"timeout": 2147484}, "10.0.0.1: a timeout of 2147484 seconds, at most 2147483"),
        ({"timeout": -1}, "10.0.0.1: .* does not fit"),
        ({"comment": "x" * 256}, "10.0.0.1: a comment of more than 255 bytes"),
        ({"mark": (1 << 32, 0)}, "10.0.0.1: a mark of more than 32 bits"),
        ({"packets": 1 << 64}, "10.0.0.1: .* does not fit"),
    ],
)
def test_what_no_element_can_have(more: dict[str, object], complaint: str) -> None:
    form = key_form(SetType.HASH_IP, Family.IPV4)
    with pytest.raises(EncodingError, match=complaint):
        encode_elements(form, [Element(key=packed(form, "10.0.0.1"), **more)])  # type: ignore[arg-type]


def test_missing_parts_of_a_listed_element() -> None:
    form = key_form(SetType.HASH_NET, Family.IPV4)
    address = netlink.nested(1, netlink.attribute(1, bytes(4)))
    assert decode_keys(form, listing([address])) == [bytes(4) + b"\x20"]
    with pytest.raises(MalformedMessageError, match="without IP"):
        decode_keys(form, listing([netlink.attribute(3, b"\x08")]))


def test_both_halves() -> None:
    assert [f"{ip_address(address)}/{length}" for address, length in halves(Family.IPV4)] == ["0.0.0.0/1", "128.0.0.0/1"]
    assert [f"{ip_address(address)}/{length}" for address, length in halves(Family.IPV6)] == ["::/1", "8000::/1"]


# -- sets

definitions = st.builds(
    IpSet,
    name=st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=31),
    type=st.sampled_from([kind for kind in SetType if kind is not SetType.BITMAP_PORT]),
    family=st.sampled_from(FAMILIES),
    timeout=st.none() | st.integers(0, 2147483),
    max_elements=st.integers(1, 2**32 - 1),
    hash_size=st.integers(1, 2**32 - 1),
    counters=st.booleans(),
    comments=st.booleans(),
    skb_info=st.booleans(),
    force_add=st.booleans(),
) | st.builds(
    IpSet,
    name=st.just("bits"),
    type=st.just(SetType.BITMAP_PORT),
    timeout=st.none() | st.integers(0, 2147483),
    ports=st.tuples(st.integers(0, 65535), st.integers(0, 65535)),
)


@given(definitions)
def test_a_definition_is_read_back(wanted: IpSet) -> None:
    listed = ListedSet.decode(Requests(7).create(wanted, 5))
    assert listed.definition == wanted
    assert listed.definition.hash_size == wanted.hash_size
    assert (listed.name, listed.type_name, listed.family, listed.revision) == (wanted.name, wanted.type.value, wanted.family, 5)


@given(definitions, st.data())
def test_damage_to_a_set_is_read_as_something_or_refused(wanted: IpSet, data: st.DataObject) -> None:
    raw = data.draw(damaged(Requests(7).create(wanted, 5)))
    try:
        ListedSet.decode(raw)
    except MalformedMessageError:
        return


def test_the_size_of_the_hash_does_not_tell_sets_apart() -> None:
    small = IpSet(name="x", type=SetType.HASH_IP, family=Family.IPV4)
    assert small == IpSet(name="x", type=SetType.HASH_IP, family=Family.IPV4, hash_size=1 << 16)
    assert small != IpSet(name="x", type=SetType.HASH_IP, family=Family.IPV4, counters=True)


def test_a_set_of_a_strange_type_is_listed_without_definition() -> None:
    attributes = (netlink.string(2, "x"), netlink.string(3, "list:set"), netlink.attribute(4, b"\3"), netlink.attribute(5, b"\0"))
    listed = ListedSet.decode(HEADER + b"".join(attributes))
    assert (listed.name, listed.type_name, listed.definition) == ("x", "list:set", None)


@pytest.mark.parametrize("name", ["", "x" * 32, "ä" * 16, "a\0b"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(EncodingError):
        Requests(7).named(name)


def test_a_timeout_that_is_too_long() -> None:
    with pytest.raises(EncodingError, match="x: a timeout of 9999999 seconds"):
        Requests(7).create(IpSet(name="x", type=SetType.HASH_IP, family=Family.IPV4, timeout=9999999), 4)


@pytest.mark.parametrize(("oldest", "newest", "chosen"), [(6, 7, 7), (6, 6, 6), (6, 9, 7), (7, 8, 7), (8, 9, None), (4, 5, None)])
def test_the_version_of_the_protocol(oldest: int, newest: int, chosen: int | None) -> None:
    payload = HEADER + netlink.attribute(1, bytes((newest,))) + netlink.attribute(10, bytes((oldest,)))
    versions = ipset.decode_protocol(payload)
    assert versions == Versions(oldest=oldest, newest=newest)
    assert ipset.choose_protocol(versions) == chosen


def test_an_answer_with_one_version() -> None:
    assert ipset.decode_protocol(HEADER + netlink.attribute(1, b"\6")) == Versions(oldest=6, newest=6)
    with pytest.raises(MalformedMessageError):
        ipset.decode_protocol(HEADER)


@pytest.mark.parametrize(("oldest", "newest", "chosen"), [(0, 6, 4), (0, 4, 4), (0, 3, None), (5, 7, 5)])
def test_the_revision_of_a_type(oldest: int, newest: int, chosen: int | None) -> None:
    payload = HEADER + netlink.attribute(4, bytes((newest,))) + netlink.attribute(10, bytes((oldest,)))
    assert ipset.choose_revision(SetType.HASH_IP, ipset.decode_type(payload)) == chosen


# -- errors


def test_the_element_at_fault() -> None:
    form = key_form(SetType.HASH_IP, Family.IPV4)
    ((_, body),) = pack_elements(encode_keys(form, [bytes(4)] * 3))
    head = Requests(7).named("x")
    blamed = body.replace(netlink.attribute(9, bytes(4)), netlink.attribute(9, struct.pack("=I", 3)), 1)
    for attributes, line in ((body, None), (blamed, 3), (b"", None)):
        request = netlink.message(0x609, 1, 1, head + attributes)
        assert refused_line(struct.pack("=i", -4103) + request) == line
    assert refused_line(struct.pack("=i", -2) + netlink.message(0x609, 1, 1, b"")) is None
    assert refused_line(struct.pack("=i", -4103) + netlink.message(0x609, 1, 1, head + b"\1\0")) is None


def test_every_code_has_words() -> None:
    assert all(in_words(code) for code in ErrorCode)
    assert in_words(ErrorCode.HASH_FULL, bitmap=True) == "the element is outside of the set's range"
    assert in_words(ErrorCode.BUSY, bitmap=True) == in_words(ErrorCode.BUSY)
    assert in_words(2) is None
