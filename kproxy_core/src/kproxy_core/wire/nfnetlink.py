"""What all netfilter subsystems share: the family header, message types and the transaction brackets."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from kproxy_core.wire import netlink
from kproxy_core.wire.errors import MalformedMessageError


class Family(IntEnum):
    """Protocol families as netfilter numbers them (NFPROTO_*); IPV4 and IPV6 equal AF_INET and AF_INET6."""

    UNSPEC = 0
    INET = 1
    IPV4 = 2
    ARP = 3
    NETDEV = 5
    BRIDGE = 7
    IPV6 = 10


class Subsystem(IntEnum):
    """The upper byte of a message type."""

    CTNETLINK = 1
    IPSET = 6
    NFTABLES = 10


class Group(IntEnum):
    """Multicast groups (NFNLGRP_*)."""

    CONNTRACK_NEW = 1
    CONNTRACK_UPDATE = 2
    CONNTRACK_DESTROY = 3
    NFTABLES = 7


BATCH_BEGIN: Final = 0x10
BATCH_END: Final = 0x11
BATCH_GENERATION: Final = 1
FAMILY_HEADER_SIZE: Final = 4

_FAMILY_HEADER: Final = struct.Struct("!BBH")


def message_type(subsystem: Subsystem, kind: int) -> int:
    """The message type of one subsystem's message."""
    return subsystem << 8 | kind


def family_header(family: int, resource: int = 0) -> bytes:
    """The nfgenmsg that begins every netfilter payload."""
    return _FAMILY_HEADER.pack(family, 0, resource)


def decode_family(payload: bytes) -> int:
    """The family of a netfilter payload."""
    if len(payload) < FAMILY_HEADER_SIZE:
        raise MalformedMessageError(f"netfilter message of {len(payload)} bytes")
    return payload[0]


def batch_begin(subsystem: Subsystem, sequence: int, flags: int, generation: int | None = None) -> bytes:
    """Open a transaction.

    With a generation the kernel (4.12 and later) refuses the whole with ERESTART unless its rule set is still that one.
    """
    payload = family_header(Family.UNSPEC, subsystem)
    if generation is not None:
        payload += netlink.u32be(BATCH_GENERATION, generation)
    return netlink.message(BATCH_BEGIN, flags, sequence, payload)


def batch_end(subsystem: Subsystem, sequence: int) -> bytes:
    """Close a transaction: the kernel commits it, or undoes all of it."""
    payload = family_header(Family.UNSPEC, subsystem)
    return netlink.message(BATCH_END, netlink.MessageFlag.REQUEST, sequence, payload)
