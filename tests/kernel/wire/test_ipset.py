"""Sets in the kernel: what is made here is what the `ipset` program sees, and the other way round; who is refused is told."""

import errno
from collections.abc import Callable, Iterator
from ipaddress import ip_address

import attrs
import pytest

from kproxy_core.kernel.errors import NetlinkError, NotFoundError
from kproxy_core.kernel.ipset import IpSetSocket
from kproxy_core.kernel.ipset_errors import IpSetError, SetBusyError, UnsupportedSetTypeError
from kproxy_core.wire import ipset as wire
from kproxy_core.wire.ipset import IpSet, Versions
from kproxy_core.wire.ipset_constants import ErrorCode
from kproxy_core.wire.ipset_elements import Element
from kproxy_core.wire.ipset_keys import SetType, halves
from kproxy_core.wire.nfnetlink import Family

from ...programs import program as installed
from .conftest import Nft

pytestmark = pytest.mark.kernel
Program = Callable[..., list[str]]
FAMILIES = [Family.IPV4, Family.IPV6]
ADDRESSES = {Family.IPV4: ["192.0.2.1", "10.64.0.0"], Family.IPV6: ["2001:db8::1", "2001:db8:6400::"]}
NETWORKS = {Family.IPV4: 12, Family.IPV6: 40}
KINDS = [(kind, family) for kind in SetType for family in ([Family.UNSPEC] if kind.is_bitmap else FAMILIES)]
every_kind = pytest.mark.parametrize(("kind", "family"), KINDS, ids=[f"{kind.value}-{family.name}" for kind, family in KINDS])
ADDRESS = IpSet(name="kproxy", type=SetType.HASH_IP, family=Family.IPV4)


@pytest.fixture
def sets(namespace: int) -> Iterator[IpSetSocket]:
    """The sets of the namespace."""
    try:
        socket = IpSetSocket(namespace=namespace)
    except NetlinkError as error:
        pytest.skip(f"no ipset in this kernel: {error}")
    with socket:
        yield socket


@pytest.fixture
def program(run: Nft) -> Program:
    """Run `ipset` in the namespace; its lines."""
    path = installed("ipset")
    return lambda *arguments: run(path, *arguments).splitlines()


def made(sets: IpSetSocket, definition: IpSet) -> IpSet:
    """Create a set, if the kernel has the type."""
    try:
        sets.create(definition)
    except UnsupportedSetTypeError as error:
        pytest.skip(str(error))
    return definition


def key(target: IpSet, *parts: int | str) -> bytes:
    return target.form.pack(*(ip_address(part).packed if isinstance(part, str) else part for part in parts))


def some_keys(target: IpSet, count: int) -> list[bytes]:
    """Different keys of a set, of networks with host bits of zero."""
    return [_key(target, number) for number in range(1, count + 1)]


def _key(target: IpSet, number: int) -> bytes:
    words = target.type.value.partition(":")[2].split(",")
    size = 4 if target.family == Family.IPV4 else 16
    parts: list[bytes | int] = []
    for word in words:
        if word == "ip":
            parts.append(
                (b"\x0a" + number.to_bytes(size - 1, "big")) if size == 4 else b"\xfd" + number.to_bytes(size - 1, "big")
            )
        elif word == "net":
            parts += [(b"\x0a" + number.to_bytes(2, "big")).ljust(size, b"\0"), 24]
        elif word == "mark" or target.type.is_bitmap:
            parts.append(number)
        else:
            parts += [(6, 17, 132)[number % 3], 1 + number % 60000]
    return target.form.pack(*parts)


def member_lines(listing: list[str]) -> list[str]:
    """The elements in what `ipset list` prints, sorted."""
    return sorted(line for line in listing[listing.index("Members:") + 1 :] if line)


@every_kind
def test_the_program_lists_what_was_made_here(sets: IpSetSocket, program: Program, kind: SetType, family: Family) -> None:
    target = made(sets, IpSet(name="kproxy", type=kind, family=family, timeout=0))
    wanted = some_keys(target, 300)
    assert sets.add(target, wanted).done == 300
    listing = program("list", "kproxy")
    assert listing[1] == f"Type: {kind.value}"
    assert listing[2] == f"Revision: {kind.revision}"
    assert "timeout 0" in listing[3]
    assert member_lines(listing) == sorted(f"{target.form.text(k)} timeout 0" for k in wanted)
    assert sorted(sets.keys(target)) == sorted(wanted)
    found = sets.find("kproxy")
    assert found is not None
    assert (found.definition, found.elements, found.references, found.revision) == (target, 300, 0, kind.revision)
    assert found.memory > 0


@every_kind
def test_what_the_program_made_is_read(sets: IpSetSocket, program: Program, kind: SetType, family: Family) -> None:
    target = IpSet(name="kproxy", type=kind, family=family)
    more = (
        ["range", "0-65535"] if kind.is_bitmap else ["family", "inet" if family == Family.IPV4 else "inet6", "maxelem", "1048576"]
    )
    try:
        sets.revisions(kind, family)
    except UnsupportedSetTypeError as error:
        pytest.skip(str(error))
    program("create", "kproxy", kind.value, *more, "comment", "counters", "timeout", "500", "skbinfo")
    target = attrs.evolve(target, comments=True, counters=True, timeout=500, skb_info=True)
    wanted = some_keys(target, 3)
    for number, wanted_key in enumerate(wanted):
        options = ("timeout", "0", "packets", "7", "bytes", "9", "skbmark", f"0x{number + 1:x}/0xff")
        program("add", "kproxy", target.form.text(wanted_key), "comment", f"number {number}", *options)
    (listed,) = sets.sets()
    assert listed.definition == target
    assert sorted(sets.elements(target), key=lambda element: element.comment or "") == [
        Element(key=k, timeout=0, comment=f"number {number}", packets=7, bytes=9, mark=(number + 1, 0xFF))
        for number, k in enumerate(wanted)
    ]


@every_kind
def test_an_element_with_everything(sets: IpSetSocket, program: Program, kind: SetType, family: Family) -> None:
    definition = IpSet(
        name="kproxy",
        type=kind,
        family=family,
        comments=True,
        counters=True,
        timeout=10800,
        skb_info=True,
        force_add=not kind.is_bitmap,
    )
    target = made(sets, definition)
    (wanted,) = some_keys(target, 1)
    element = Element(key=wanted, timeout=0, comment='web "a"', packets=1 << 40, bytes=1 << 50, mark=(0x4000, 0xFFFF0000))
    assert sets.add(target, [element]).ok
    assert sets.elements(target) == [element]
    (line,) = member_lines(program("list", "kproxy"))
    counts = f"packets {1 << 40} bytes {1 << 50}"
    assert line.startswith(f"{target.form.text(wanted)} timeout 0 {counts} comment ")
    assert line.endswith(" skbmark 0x4000/0xffff0000")
    assert sets.find("kproxy") is not None
    assert sets.has(target, wanted)
    assert sets.delete(target, [element]).ok
    assert sets.keys(target) == []
    assert not sets.has(target, wanted)


def test_timeouts(sets: IpSetSocket) -> None:
    target = made(sets, attrs.evolve(ADDRESS, timeout=10800))
    default, own, forever = some_keys(target, 3)
    sets.add(target, [default, Element(key=own, timeout=86400), Element(key=forever, timeout=0)])
    left = {element.key: element.timeout or 0 for element in sets.elements(target)}
    assert 10000 < left[default] <= 10800
    assert 86000 < left[own] <= 86400
    assert left[forever] == 0
    sets.add(target, [Element(key=own, timeout=500)])
    assert 0 < ({element.key: element.timeout or 0 for element in sets.elements(target)}[own]) <= 500


def test_exceptions_from_a_network(sets: IpSetSocket, program: Program) -> None:
    target = made(sets, IpSet(name="kproxy", type=SetType.HASH_NET, family=Family.IPV4))
    wide, narrow = key(target, "10.0.0.0", 8), key(target, "10.9.0.0", 16)
    sets.add(target, [Element(key=wide), Element(key=narrow, nomatch=True)])
    assert member_lines(program("list", "kproxy")) == ["10.0.0.0/8", "10.9.0.0/16 nomatch"]
    assert {element.key: element.nomatch for element in sets.elements(target)} == {wide: False, narrow: True}
    assert sets.has(target, key(target, "10.1.2.3", 32))
    assert not sets.has(target, key(target, "10.9.2.3", 32))


@pytest.mark.parametrize("family", FAMILIES)
def test_halves_cover_every_address(sets: IpSetSocket, family: Family) -> None:
    target = made(sets, IpSet(name="kproxy", type=SetType.HASH_NET, family=family))
    assert sets.add(target, [target.form.pack(*half) for half in halves(family)]).ok
    bits = 32 if family == Family.IPV4 else 128
    assert all(sets.has(target, key(target, address, bits)) for address in ADDRESSES[family])


def test_source_ranges_of_a_service(sets: IpSetSocket) -> None:
    target = made(sets, IpSet(name="kproxy", type=SetType.HASH_IP_PORT_NET, family=Family.IPV4))
    sets.add(target, [key(target, "192.0.2.1", 6, 80, "10.0.0.0", 8)])
    assert sets.has(target, key(target, "192.0.2.1", 6, 80, "10.200.0.1", 32))
    assert not sets.has(target, key(target, "192.0.2.1", 6, 80, "11.0.0.1", 32))
    assert not sets.has(target, key(target, "192.0.2.1", 17, 80, "10.200.0.1", 32))


# -- who is refused


def test_only_the_refused_elements_are_left_out(sets: IpSetSocket) -> None:
    target = made(sets, ADDRESS)
    wanted = some_keys(target, 10_000)
    there = [wanted[0], wanted[17], wanted[18], wanted[2600], wanted[9999]]
    sets.add(target, there)
    result = sets.add(target, wanted, exclusive=True)
    assert (result.done, result.ok) == (9_995, False)
    assert [(refused.index, refused.key) for refused in result.refused] == [(wanted.index(k), k) for k in there]
    assert {refused.error for refused in result.refused} == {ErrorCode.EXIST}
    assert result.refused[1].reason == "add to the set kproxy: 10.0.0.18: it is there already"
    assert sorted(sets.keys(target)) == wanted


def test_all_refused(sets: IpSetSocket) -> None:
    target = made(sets, ADDRESS)
    wanted = some_keys(target, 5_000)
    result = sets.delete(target, wanted, exclusive=True)
    assert (result.done, len(result.refused)) == (0, 5_000)
    assert result.refused[-1].reason == "delete from the set kproxy: 10.0.19.136: it is not there"
    assert sets.delete(target, wanted).ok


def test_a_full_set(sets: IpSetSocket) -> None:
    target = made(sets, attrs.evolve(ADDRESS, max_elements=100))
    result = sets.add(target, some_keys(target, 300))
    assert result.done + len(result.refused) == 300
    assert result.done == len(sets.keys(target))
    assert {refused.error for refused in result.refused} == {ErrorCode.HASH_FULL}
    assert "the set is full" in result.refused[0].reason


def test_outside_of_a_bitmap(sets: IpSetSocket) -> None:
    target = made(sets, IpSet(name="kproxy", type=SetType.BITMAP_PORT, ports=(30000, 32767)))
    result = sets.add(target, [target.form.pack(port) for port in (29999, 30000, 32767, 32768)])
    assert [refused.index for refused in result.refused] == [0, 3]
    assert result.refused[0].reason == "add to the set kproxy: 29999: the element is outside of the set's range"


def test_what_the_set_cannot_keep(sets: IpSetSocket) -> None:
    target = made(sets, ADDRESS)
    first, second = some_keys(target, 2)
    result = sets.add(target, [Element(key=first, timeout=5), Element(key=second)])
    assert [refused.reason for refused in result.refused] == [
        "add to the set kproxy: 10.0.0.1: a timeout in a set that was made without"
    ]
    assert sets.keys(target) == [second]


def test_nothing_to_change(sets: IpSetSocket) -> None:
    assert sets.add(made(sets, ADDRESS), []).done == 0


# -- sets


def test_sets_that_are_not_there(sets: IpSetSocket) -> None:
    assert sets.find("kproxy") is None
    assert sets.sets() == ()
    attempts: list[Callable[[], object]] = [
        lambda: sets.destroy("kproxy"),
        lambda: sets.flush("kproxy"),
        lambda: sets.rename("kproxy", "other"),
        lambda: sets.keys(ADDRESS),
        lambda: sets.has(ADDRESS, bytes(4)),
        lambda: sets.add(ADDRESS, [bytes((10, 0, 0, 1))]),
        lambda: sets.delete(ADDRESS, some_keys(ADDRESS, 5000)),
    ]
    for attempt in attempts:
        with pytest.raises(NotFoundError):
            attempt()


def test_a_set_that_is_there_already(sets: IpSetSocket) -> None:
    made(sets, ADDRESS)
    with pytest.raises(NetlinkError) as caught:
        sets.create(ADDRESS)
    assert caught.value.error == errno.EEXIST
    sets.create(ADDRESS, exclusive=False)
    with pytest.raises(NetlinkError):
        sets.create(attrs.evolve(ADDRESS, timeout=5), exclusive=False)


def test_swap_and_rename(sets: IpSetSocket) -> None:
    old, new = made(sets, ADDRESS), made(sets, attrs.evolve(ADDRESS, name="next", max_elements=50))
    first, second = some_keys(old, 2)
    sets.add(old, [first])
    sets.add(new, [second])
    sets.swap("kproxy", "next")
    assert (sets.keys(old), sets.keys(new)) == ([second], [first])
    sets.destroy("next")
    sets.rename("kproxy", "next")
    assert [listed.name for listed in sets.sets()] == ["next"]
    assert sets.keys(new) == [second]
    sets.flush("next")
    assert sets.keys(new) == []


def test_sets_that_cannot_be_swapped(sets: IpSetSocket) -> None:
    made(sets, ADDRESS)
    made(sets, IpSet(name="nets", type=SetType.HASH_NET, family=Family.IPV4))
    with pytest.raises(IpSetError, match="the two sets are of different types") as caught:
        sets.swap("kproxy", "nets")
    assert caught.value.code == ErrorCode.TYPE_MISMATCH
    with pytest.raises(IpSetError, match="EXIST_SETNAME2"):
        sets.swap("kproxy", "nobody")


def test_a_set_that_a_rule_uses(sets: IpSetSocket, run: Nft) -> None:
    iptables = installed("iptables-legacy")
    made(sets, ADDRESS)
    rule = ("OUTPUT", "-m", "set", "--match-set", "kproxy", "dst", "-j", "ACCEPT")
    run(iptables, "-A", *rule)
    found = sets.find("kproxy")
    assert found is not None
    assert found.references == 1
    with pytest.raises(SetBusyError, match="destroy the set kproxy: the set is used by a rule"):
        sets.destroy("kproxy")
    with pytest.raises(SetBusyError, match="cannot be renamed"):
        sets.rename("kproxy", "other")
    run(iptables, "-D", *rule)
    sets.destroy("kproxy")
    assert sets.sets() == ()


def test_strangers_sets_are_listed_too(sets: IpSetSocket, program: Program) -> None:
    program("create", "theirs", "list:set")
    (listed,) = sets.sets()
    assert (listed.name, listed.type_name, listed.definition) == ("theirs", "list:set", None)


def test_many_sets_in_one_listing(sets: IpSetSocket) -> None:
    names = {f"kproxy-{number}" for number in range(500)}
    for name in sorted(names):
        sets.create(attrs.evolve(ADDRESS, name=name))
    assert {listed.name for listed in sets.sets()} == names


# -- versions


def test_the_kernels_own_answers_about_versions(sets: IpSetSocket) -> None:
    assert sets.protocol in (6, 7)
    assert sets.revisions(SetType.HASH_IP, Family.IPV6).newest >= SetType.HASH_IP.revision


@pytest.mark.parametrize("kernel", [Versions(oldest=8, newest=9), Versions(oldest=1, newest=5)])
def test_a_kernel_that_speaks_another_version(namespace: int, monkeypatch: pytest.MonkeyPatch, kernel: Versions) -> None:
    monkeypatch.setattr(wire, "decode_protocol", lambda payload: kernel)
    with pytest.raises(NetlinkError, match=f"the kernel speaks {kernel.oldest} to {kernel.newest}"):
        IpSetSocket(namespace=namespace)


def test_the_older_protocol_works_too(namespace: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "decode_protocol", lambda payload: Versions(oldest=6, newest=6))
    with IpSetSocket(namespace=namespace) as sets:
        assert sets.protocol == 6
        target = made(sets, ADDRESS)
        sets.add(target, some_keys(target, 3))
        assert sorted(sets.keys(target)) == some_keys(target, 3)


def test_a_kernel_that_is_too_old_for_a_type(sets: IpSetSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "decode_type", lambda payload: Versions(oldest=0, newest=2))
    with pytest.raises(UnsupportedSetTypeError, match="revision 4 of hash:ip is needed, the kernel has at most 2"):
        sets.create(ADDRESS)
