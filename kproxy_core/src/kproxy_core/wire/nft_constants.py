"""The numbers of nf_tables by name (linux/netfilter/nf_tables.h), and nft's own data types and priorities."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final


class MessageKind(IntEnum):
    """Messages of the nf_tables subsystem."""

    NEWTABLE = 0
    GETTABLE = 1
    DELTABLE = 2
    NEWCHAIN = 3
    GETCHAIN = 4
    DELCHAIN = 5
    NEWRULE = 6
    GETRULE = 7
    DELRULE = 8
    NEWSET = 9
    GETSET = 10
    DELSET = 11
    NEWSETELEM = 12
    GETSETELEM = 13
    DELSETELEM = 14
    NEWGEN = 15
    GETGEN = 16
    NEWOBJ = 18
    GETOBJ = 19
    DELOBJ = 20
    NEWFLOWTABLE = 22
    GETFLOWTABLE = 23
    DELFLOWTABLE = 24


class Register(IntEnum):
    """Where expressions put and find values.

    R0 to R15 hold 4 bytes each; a longer value lies in as many consecutive ones. The kernel calls them
    NFT_REG32_00 to 15 (numbers 8 to 23) and lists R0, R4, R8 and R12 under their old numbers 1 to 4.
    """

    VERDICT = 0
    R0 = 8
    R1 = 9
    R2 = 10
    R3 = 11
    R4 = 12
    R5 = 13
    R6 = 14
    R7 = 15
    R8 = 16
    R9 = 17
    R10 = 18
    R11 = 19
    R12 = 20
    R13 = 21
    R14 = 22
    R15 = 23


class VerdictCode(IntEnum):
    """What ends a rule."""

    DROP = 0
    ACCEPT = 1
    CONTINUE = -1
    BREAK = -2
    JUMP = -3
    GOTO = -4
    RETURN = -5


class TableFlag(IntFlag):
    """OWNER (5.12): only the creating socket may change it. PERSIST (6.9): it outlives its owner."""

    DORMANT = 1
    OWNER = 2
    PERSIST = 4


class SetFlag(IntFlag):
    """What a set is, and how it may be used."""

    ANONYMOUS = 0x1
    CONSTANT = 0x2
    INTERVAL = 0x4
    MAP = 0x8
    TIMEOUT = 0x10
    EVAL = 0x20
    OBJECT = 0x40
    CONCAT = 0x80
    EXPR = 0x100


class ElementFlag(IntFlag):
    """INTERVAL_END: the element ends the interval before it. CATCHALL: what no other element matches (5.13)."""

    INTERVAL_END = 1
    CATCHALL = 2


class Hook(IntEnum):
    """Where in a packet's way a base chain of families ip, ip6 and inet sits."""

    PREROUTING = 0
    INPUT = 1
    FORWARD = 2
    OUTPUT = 3
    POSTROUTING = 4


class Priority(IntEnum):
    """Priorities that nft knows by name; lower ones run first."""

    RAW = -300
    MANGLE = -150
    DSTNAT = -100
    FILTER = 0
    SECURITY = 50
    SRCNAT = 100


class PayloadBase(IntEnum):
    """The header from which a payload offset counts."""

    LINK = 0
    NETWORK = 1
    TRANSPORT = 2


class MetaKey(IntEnum):
    """Facts about a packet that are not in it."""

    LEN = 0
    PROTOCOL = 1
    PRIORITY = 2
    MARK = 3
    IIF = 4
    OIF = 5
    IIFNAME = 6
    OIFNAME = 7
    IIFTYPE = 8
    OIFTYPE = 9
    SKUID = 10
    SKGID = 11
    NFTRACE = 12
    NFPROTO = 15
    L4PROTO = 16
    PKTTYPE = 19
    CPU = 20
    IIFGROUP = 21
    OIFGROUP = 22
    CGROUP = 23
    PRANDOM = 24


class CtKey(IntEnum):
    """Facts about a packet's connection."""

    STATE = 0
    DIRECTION = 1
    STATUS = 2
    MARK = 3
    EXPIRATION = 5
    L3PROTOCOL = 7
    SRC = 8
    DST = 9
    PROTOCOL = 10
    PROTO_SRC = 11
    PROTO_DST = 12
    ZONE = 17
    SRC_IP = 19
    DST_IP = 20
    SRC_IP6 = 21
    DST_IP6 = 22
    ID = 23


class CtDirection(IntEnum):
    """Which of a connection's two tuples is meant."""

    ORIGINAL = 0
    REPLY = 1


class CtState(IntFlag):
    """Values of `ct state` (host byte order)."""

    INVALID = 1
    ESTABLISHED = 2
    RELATED = 4
    NEW = 8
    UNTRACKED = 64


class CtStatus(IntFlag):
    """Values of `ct status` (host byte order)."""

    EXPECTED = 1
    SEEN_REPLY = 2
    ASSURED = 4
    CONFIRMED = 8
    SNAT = 16
    DNAT = 32
    DYING = 512


class CompareOp(IntEnum):
    """Comparisons; of more than equality the operands are compared as big-endian numbers."""

    EQ = 0
    NEQ = 1
    LT = 2
    LTE = 3
    GT = 4
    GTE = 5


class DynsetOp(IntEnum):
    """What a packet does to a set. DELETE: kernel 5.4 and later."""

    ADD = 0
    UPDATE = 1
    DELETE = 2


class NumgenType(IntEnum):
    """How numbers follow one another."""

    INCREMENTAL = 0
    RANDOM = 1


class NatType(IntEnum):
    """Which address is rewritten."""

    SNAT = 0
    DNAT = 1


class NatFlag(IntFlag):
    """How a port is picked; MAP_IPS and PROTO_SPECIFIED are set by the kernel itself."""

    MAP_IPS = 1
    PROTO_SPECIFIED = 2
    RANDOM = 4
    PERSISTENT = 8
    FULLY_RANDOM = 16


class RejectType(IntEnum):
    """What a refused sender gets. ICMP_UNREACH in families ip and ip6, ICMPX_UNREACH in inet and bridge."""

    ICMP_UNREACH = 0
    TCP_RST = 1
    ICMPX_UNREACH = 2


class FibResult(IntEnum):
    """What a routing lookup yields."""

    OIF = 1
    OIFNAME = 2
    ADDRTYPE = 3


class FibFlag(IntFlag):
    """What is looked up, and with what."""

    SADDR = 1
    DADDR = 2
    MARK = 4
    IIF = 8
    OIF = 16
    PRESENT = 32


class RouteType(IntEnum):
    """Results of a FibResult.ADDRTYPE lookup (RTN_*, host byte order)."""

    UNSPEC = 0
    UNICAST = 1
    LOCAL = 2
    BROADCAST = 3
    ANYCAST = 4
    MULTICAST = 5
    BLACKHOLE = 6
    UNREACHABLE = 7
    PROHIBIT = 8


class DataType(IntEnum):
    """nft's numbers for data types: the kernel keeps them, nft prints by them.

    Numbers follow nft's public interface and never change. VERDICT is the one type that the kernel itself knows.
    """

    NFPROTO = 2
    INTEGER = 4
    STRING = 5
    IPV4_ADDR = 7
    IPV6_ADDR = 8
    ETHER_ADDR = 9
    ETHER_TYPE = 10
    INET_PROTOCOL = 12
    INET_SERVICE = 13
    MARK = 19
    IFACE_INDEX = 20
    FIB_ADDRTYPE = 38
    IFNAME = 41
    VERDICT = 0xFFFFFF00


ICMP_PORT_UNREACHABLE: Final = 3
ICMPV6_PORT_UNREACHABLE: Final = 4
ICMPX_PORT_UNREACHABLE: Final = 1
NAME_LIMIT: Final = 255
"""Longest name of a table, chain or set, in bytes."""
USERDATA_LIMIT: Final = 256
"""Longest userdata of one object, in bytes."""

_TYPE_BITS: Final = 6


def concatenated(*types: DataType) -> int:
    """The data type of a concatenation (`ipv4_addr . inet_proto . inet_service`); at most five fields fit."""
    result = 0
    for part in types:
        result = result << _TYPE_BITS | part
    return result
