"""Numbers of the IPVS interface (linux/ip_vs.h)."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

FAMILY_NAME: Final = "IPVS"
VERSION: Final = 1
LONGEST_SCHEDULER: Final = 15
HEAVIEST: Final = 65535
"""The greatest weight; the kernel takes up to 2**31 - 1, but sums of them overflow in its schedulers."""


class Command(IntEnum):
    """What a message is about."""

    NEW_SERVICE = 1
    SET_SERVICE = 2
    DEL_SERVICE = 3
    GET_SERVICE = 4
    NEW_DEST = 5
    SET_DEST = 6
    DEL_DEST = 7
    GET_DEST = 8
    SET_CONFIG = 12
    GET_CONFIG = 13
    SET_INFO = 14
    GET_INFO = 15
    ZERO = 16
    FLUSH = 17


class Attribute(IntEnum):
    """What a message has."""

    SERVICE = 1
    DEST = 2
    TIMEOUT_TCP = 4
    TIMEOUT_TCP_FIN = 5
    TIMEOUT_UDP = 6


class ServiceAttribute(IntEnum):
    """What a virtual server has."""

    AF = 1
    PROTOCOL = 2
    ADDR = 3
    PORT = 4
    FWMARK = 5
    SCHED_NAME = 6
    FLAGS = 7
    TIMEOUT = 8
    NETMASK = 9
    STATS = 10
    STATS64 = 12


class DestAttribute(IntEnum):
    """What a real server has."""

    ADDR = 1
    PORT = 2
    FWD_METHOD = 3
    WEIGHT = 4
    U_THRESH = 5
    L_THRESH = 6
    ACTIVE_CONNS = 7
    INACT_CONNS = 8
    PERSIST_CONNS = 9
    STATS = 10
    ADDR_FAMILY = 11
    STATS64 = 12


class ServiceFlag(IntFlag):
    """How a virtual server schedules. The kernel's own PERSISTENT and HASHED are not for callers.

    ONE_PACKET: each datagram on its own. FALLBACK: sh and mh look for another server when the one is down. PORT: they take the
    client's port into account.
    """

    PERSISTENT = 0x1
    HASHED = 0x2
    ONE_PACKET = 0x4
    FALLBACK = 0x8
    PORT = 0x10
    THIRD = 0x20


class Forwarding(IntEnum):
    """How packets get to a real server."""

    MASQUERADE = 0
    LOCAL = 1
    TUNNEL = 2
    DIRECT = 3
    BYPASS = 4
