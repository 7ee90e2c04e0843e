"""Addresses and links as the kernel tells them."""

import struct
from collections.abc import Callable
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.wire import netlink, rtnetlink
from kproxy_core.wire.errors import MalformedMessageError
from kproxy_core.wire.netlink import Message
from kproxy_core.wire.rtnetlink import Address, AddressFlag, Link, LinkFlag, RouteMessage

from .strategies import damaged

V4, V6 = bytes((192, 0, 2, 1)), ip_address("2001:db8::1").packed


def address(family: int, *attributes: bytes, flags: int = 0, kind: int = RouteMessage.NEWADDR) -> Message:
    header = struct.pack("=BBBBI", family, 24, flags, 253, 7)
    return Message(kind, 0, 1, 0, header + b"".join(attributes))


def link(*attributes: bytes, kind: int = RouteMessage.NEWLINK) -> Message:
    return Message(kind, 0, 1, 0, struct.pack("=BxHiII", 0, 1, 7, 0x1043, 0) + b"".join(attributes))


def host(kind: int, value: int) -> bytes:
    return netlink.attribute(kind, struct.pack("=I", value))


def test_an_address() -> None:
    found = Address.decode(address(2, netlink.attribute(1, V4), netlink.attribute(2, V4)))
    assert found == Address(address=ip_address("192.0.2.1"), prefix_length=24, index=7, scope=253, flags=0)
    assert Address.decode(address(10, netlink.attribute(1, V6))).address == ip_address("2001:db8::1")


def test_on_a_point_to_point_link_ours_is_the_local_one() -> None:
    peer = bytes((198, 51, 100, 1))
    assert Address.decode(address(2, netlink.attribute(1, peer), netlink.attribute(2, V4))).address == ip_address("192.0.2.1")


def test_the_longer_flags_count() -> None:
    found = Address.decode(address(10, netlink.attribute(1, V6), host(8, 0x280), flags=0x80))
    assert found.flags == AddressFlag.PERMANENT | AddressFlag.NOPREFIXROUTE


def test_a_deleted_address_is_marked() -> None:
    assert Address.decode(address(2, netlink.attribute(2, V4), kind=RouteMessage.DELADDR)).deleted


@pytest.mark.parametrize(
    ("flags", "usable"),
    [
        (AddressFlag.PERMANENT, True),
        (AddressFlag.DEPRECATED, True),
        (AddressFlag.TENTATIVE, False),
        (AddressFlag.TENTATIVE | AddressFlag.OPTIMISTIC, True),
        (AddressFlag.DADFAILED | AddressFlag.PERMANENT, False),
        (AddressFlag.DADFAILED | AddressFlag.TENTATIVE | AddressFlag.OPTIMISTIC, False),
    ],
)
def test_which_addresses_answer(flags: int, usable: bool) -> None:
    assert Address.decode(address(10, netlink.attribute(1, V6), host(8, flags))).usable is usable


@pytest.mark.parametrize(
    "message",
    [
        address(2),
        address(2, netlink.attribute(1, V6)),
        address(10, netlink.attribute(1, V4)),
        address(7, netlink.attribute(1, V4)),
        address(2, netlink.attribute(1, V4), netlink.attribute(8, b"\0")),
        Message(RouteMessage.NEWADDR, 0, 1, 0, b"\2\0\0"),
    ],
)
def test_what_is_no_address(message: Message) -> None:
    with pytest.raises(MalformedMessageError):
        Address.decode(message)


def test_a_link() -> None:
    kind = netlink.nested(18, netlink.string(1, "veth"))
    found = Link.decode(link(netlink.string(3, "eth0"), host(10, 3), kind))
    assert found == Link(index=7, name="eth0", flags=found.flags, master=3, kind="veth")
    assert found.flags & LinkFlag.UP
    plain = Link.decode(link(netlink.string(3, "lo")))
    assert (plain.master, plain.kind, plain.deleted) == (None, None, False)
    assert Link.decode(link(netlink.string(3, "lo"), kind=RouteMessage.DELLINK)).deleted


READERS: list[Callable[[Message], object]] = [Address.decode, Link.decode]


@pytest.mark.parametrize("read", READERS)
@given(payload=st.binary(max_size=80))
def test_any_bytes_are_read_or_malformed(read: Callable[[Message], object], payload: bytes) -> None:
    try:
        read(Message(20, 0, 0, 0, payload))
    except MalformedMessageError:
        return


@given(st.data())
def test_damaged_messages_are_read_or_malformed(data: st.DataObject) -> None:
    whole = address(10, netlink.attribute(1, V6), host(8, 0x80)), link(netlink.string(3, "eth0"), host(10, 3))
    for message, read in zip(whole, READERS, strict=True):
        try:
            read(message._replace(payload=data.draw(damaged(message.payload))))
        except MalformedMessageError:
            continue


def test_requests() -> None:
    assert rtnetlink.address_request() == bytes(8)
    assert rtnetlink.address_request(10, 5) == struct.pack("=BBBBI", 10, 0, 0, 0, 5)
    assert netlink.attributes(rtnetlink.link_request(), 16) == {29: struct.pack("=I", 8)}
