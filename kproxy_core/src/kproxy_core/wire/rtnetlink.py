"""Addresses and links as rtnetlink tells them (linux/rtnetlink.h, if_addr.h, if_link.h)."""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Self

from attrs import frozen

from kproxy_core.wire import netlink
from kproxy_core.wire.errors import MalformedMessageError
from kproxy_core.wire.netlink import Message


class RouteMessage(IntEnum):
    """Message types."""

    NEWLINK = 16
    DELLINK = 17
    GETLINK = 18
    NEWADDR = 20
    DELADDR = 21
    GETADDR = 22


class RouteGroup(IntEnum):
    """Multicast groups."""

    LINK = 1
    IPV4_ADDRESS = 5
    IPV6_ADDRESS = 9


class Scope(IntEnum):
    """How far an address is known."""

    UNIVERSE = 0
    SITE = 200
    LINK = 253
    HOST = 254
    NOWHERE = 255


class AddressFlag(IntFlag):
    """States of an address; a TENTATIVE one is not yet, a DADFAILED one will never be usable."""

    SECONDARY = 0x01
    NODAD = 0x02
    OPTIMISTIC = 0x04
    DADFAILED = 0x08
    HOMEADDRESS = 0x10
    DEPRECATED = 0x20
    TENTATIVE = 0x40
    PERMANENT = 0x80
    MANAGETEMPADDR = 0x100
    NOPREFIXROUTE = 0x200
    MCAUTOJOIN = 0x400
    STABLE_PRIVACY = 0x800


class LinkFlag(IntFlag):
    """States and kinds of a link (the first of IFF_*)."""

    UP = 0x1
    BROADCAST = 0x2
    LOOPBACK = 0x8
    POINTOPOINT = 0x10
    RUNNING = 0x40
    NOARP = 0x80
    MULTICAST = 0x1000
    LOWER_UP = 0x10000


_ADDRESS: Final = struct.Struct("=BBBBI")
_LINK: Final = struct.Struct("=BxHiII")
_SKIP_STATISTICS: Final = netlink.attribute(29, struct.pack("=I", 8))


@frozen(kw_only=True)
class Address:
    """An address of this host on the link with this index."""

    address: IPv4Address | IPv6Address
    prefix_length: int
    index: int
    scope: int
    flags: int
    deleted: bool = False

    @property
    def usable(self) -> bool:
        """Whether packets to it are answered: not while or after duplicate address detection says no."""
        if self.flags & AddressFlag.DADFAILED:
            return False
        return not self.flags & AddressFlag.TENTATIVE or bool(self.flags & AddressFlag.OPTIMISTIC)

    @classmethod
    def decode(cls, message: Message) -> Self:
        """Read a NEWADDR or DELADDR message, from a dump or a notification.

        Raises MalformedMessageError when there is no address in it.
        """
        payload = message.payload
        if len(payload) < _ADDRESS.size:
            raise MalformedMessageError(f"address message of {len(payload)} bytes")
        family, prefix_length, flags, scope, index = _ADDRESS.unpack_from(payload)
        found = netlink.attributes(payload, _ADDRESS.size)
        # On point-to-point links 1 (IFA_ADDRESS) is the peer's and 2 (IFA_LOCAL) ours; IPv6 mostly has 1 only.
        raw = found.get(2, found.get(1))
        if raw is None or len(raw) != {2: 4, 10: 16}.get(family):
            raise MalformedMessageError(f"address message of family {family} without a proper address")
        return cls(
            address=ip_address(raw),
            prefix_length=prefix_length,
            index=index,
            scope=scope,
            flags=AddressFlag(_host_u32(found[8]) if 8 in found else flags),
            deleted=message.type == RouteMessage.DELADDR,
        )


@frozen(kw_only=True)
class Link:
    """A network device; master: index of the bridge, bond or VRF it belongs to."""

    index: int
    name: str
    flags: int
    master: int | None = None
    kind: str | None = None
    deleted: bool = False

    @classmethod
    def decode(cls, message: Message) -> Self:
        """Read a NEWLINK or DELLINK message, from a dump or a notification."""
        payload = message.payload
        if len(payload) < _LINK.size:
            raise MalformedMessageError(f"link message of {len(payload)} bytes")
        _, _, index, flags, _ = _LINK.unpack_from(payload)
        found = netlink.attributes(payload, _LINK.size)
        kind = netlink.attributes(found.get(18, b"")).get(1)
        return cls(
            index=index,
            name=netlink.decode_string(found.get(3, b"")),
            flags=LinkFlag(flags),
            master=_host_u32(found[10]) if 10 in found else None,
            kind=None if kind is None else netlink.decode_string(kind),
            deleted=message.type == RouteMessage.DELLINK,
        )


def address_request(family: int = 0, index: int = 0) -> bytes:
    """The payload that asks for addresses; with an index (and strict checking, 4.20) only of that link."""
    return _ADDRESS.pack(family, 0, 0, 0, index)


def link_request() -> bytes:
    """The payload that asks for all links, without statistics."""
    return _LINK.pack(0, 0, 0, 0, 0) + _SKIP_STATISTICS


def _host_u32(value: bytes) -> int:
    if len(value) != 4:
        raise MalformedMessageError(f"a number of {len(value)} bytes where 4 were expected")
    (number,) = struct.unpack("=I", value)
    return int(number)
