"""Numbers of the ipset interface (linux/netfilter/ipset/ip_set.h), and its error codes in words."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

PROTOCOL_NEWEST: Final = 7
PROTOCOL_OLDEST: Final = 6
"""The versions that are spoken here: 7 came with kernel 4.20, 6 is that of all since 2.6.39."""
LONGEST_NAME: Final = 31
LONGEST_COMMENT: Final = 255
LONGEST_TIMEOUT: Final = 2147483
"""Seconds, some 24 days: the kernel counts milliseconds in 31 bits."""
NETWORK_ORDER: Final = 0x4000
"""The flag without which the kernel takes no number of more than a byte."""


class Command(IntEnum):
    """Message types."""

    PROTOCOL = 1
    CREATE = 2
    DESTROY = 3
    FLUSH = 4
    RENAME = 5
    SWAP = 6
    LIST = 7
    ADD = 9
    DELETE = 10
    TEST = 11
    TYPE = 13


class Attribute(IntEnum):
    """What a message has."""

    PROTOCOL = 1
    SET_NAME = 2
    TYPE_NAME = 3
    SET_NAME_2 = 3
    REVISION = 4
    FAMILY = 5
    FLAGS = 6
    DATA = 7
    ELEMENTS = 8
    LINE = 9
    OLDEST = 10


class DataAttribute(IntEnum):
    """What a set or an element has."""

    IP = 1
    CIDR = 3
    PORT = 4
    PORT_TO = 5
    TIMEOUT = 6
    PROTO = 7
    FLAGS = 8
    LINE = 9
    MARK = 10
    MARK_MASK = 11
    HASH_SIZE = 18
    MAX_ELEMENTS = 19
    ELEMENT_COUNT = 24
    REFERENCES = 25
    MEMORY_SIZE = 26
    IP2 = 20
    CIDR2 = 21
    BYTES = 24
    PACKETS = 25
    COMMENT = 26
    SKB_MARK = 27


class ListFlag(IntFlag):
    """How much a listing tells."""

    NAMES = 2
    HEADERS = 4


class DataFlag(IntFlag):
    """Flags of a set or an element."""

    NOMATCH = 4
    COUNTERS = 8
    COMMENTS = 16
    FORCE_ADD = 32
    SKB_INFO = 64


class ErrorCode(IntEnum):
    """What the kernel answers beside errno values; those from HASH_FULL on mean something else for a bitmap."""

    PRIVATE = 4096
    PROTOCOL = 4097
    FIND_TYPE = 4098
    MAX_SETS = 4099
    BUSY = 4100
    EXIST_SETNAME2 = 4101
    TYPE_MISMATCH = 4102
    EXIST = 4103
    INVALID_CIDR = 4104
    INVALID_NETMASK = 4105
    INVALID_FAMILY = 4106
    TIMEOUT = 4107
    REFERENCED = 4108
    IPADDR_IPV4 = 4109
    IPADDR_IPV6 = 4110
    COUNTER = 4111
    COMMENT = 4112
    INVALID_MARKMASK = 4113
    SKBINFO = 4114
    HASH_FULL = 4352
    HASH_ELEM = 4353
    INVALID_PROTO = 4354
    MISSING_PROTO = 4355
    HASH_RANGE_UNSUPPORTED = 4356
    HASH_RANGE = 4357


_WORDS: Final = {
    ErrorCode.PRIVATE: "an error without a name",
    ErrorCode.PROTOCOL: "the kernel does not understand the message",
    ErrorCode.FIND_TYPE: "the kernel does not have this type of set for this family, or its module cannot be loaded",
    ErrorCode.MAX_SETS: "there are as many sets as the kernel can hold",
    ErrorCode.BUSY: "the set is used by a rule",
    ErrorCode.EXIST_SETNAME2: "the new name is taken, or the second set does not exist",
    ErrorCode.TYPE_MISMATCH: "the two sets are of different types",
    ErrorCode.EXIST: "an element or a set is there already, or not there",
    ErrorCode.INVALID_CIDR: "a prefix length that the type does not allow (0 is none: use two halves)",
    ErrorCode.INVALID_NETMASK: "an invalid netmask",
    ErrorCode.INVALID_FAMILY: "the type does not exist for this family",
    ErrorCode.TIMEOUT: "a timeout in a set that was made without",
    ErrorCode.REFERENCED: "the set is used by a rule and cannot be renamed",
    ErrorCode.IPADDR_IPV4: "an IPv4 address is missing or in the wrong place",
    ErrorCode.IPADDR_IPV6: "an IPv6 address is missing or in the wrong place",
    ErrorCode.COUNTER: "counts in a set that was made without counters",
    ErrorCode.COMMENT: "a comment in a set that was made without",
    ErrorCode.INVALID_MARKMASK: "an invalid mark mask",
    ErrorCode.SKBINFO: "a packet mark in a set that was made without",
    ErrorCode.HASH_FULL: "the set is full: it was made for fewer elements",
    ErrorCode.HASH_ELEM: "an element of zeros, which the type cannot hold",
    ErrorCode.INVALID_PROTO: "a protocol that the type does not know",
    ErrorCode.MISSING_PROTO: "the protocol is missing",
    ErrorCode.HASH_RANGE_UNSUPPORTED: "the type takes no ranges",
    ErrorCode.HASH_RANGE: "an invalid range",
}
_BITMAP_WORDS: Final = {
    ErrorCode.HASH_FULL: "the element is outside of the set's range",
    ErrorCode.HASH_ELEM: "the set's range is too large",
}


def in_words(error: int, *, bitmap: bool = False) -> str | None:
    """What an error code of ipset means; None for other numbers, such as an errno."""
    try:
        code = ErrorCode(error)
    except ValueError:
        return None
    return _BITMAP_WORDS.get(code, _WORDS[code]) if bitmap else _WORDS[code]
