"""IPVS: virtual servers, their real servers, statistics and timeouts, as generic netlink messages (linux/ip_vs.h).

A virtual server is where clients connect to, a real server one that answers. Requests for many go out together, so each is packed
in few steps.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from attrs import field, frozen

from kproxy_core.wire import genetlink, netlink
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.ipvs_constants import (
    HEAVIEST,
    LONGEST_SCHEDULER,
    VERSION,
    Attribute,
    Command,
    DestAttribute,
    Forwarding,
    ServiceAttribute,
    ServiceFlag,
)
from kproxy_core.wire.netlink import ATTRIBUTE_HEADER, NESTED
from kproxy_core.wire.nfnetlink import Family

_KERNELS_OWN: Final = ServiceFlag.PERSISTENT | ServiceFlag.HASHED
_ALL_FLAGS: Final = 0xFFFFFFFF
_U16: Final = struct.Struct("=H")
_U32: Final = struct.Struct("=I")
_U64: Final = struct.Struct("=Q")
_FLAGS: Final = struct.Struct("=II")
_SIZES: Final = {Family.IPV4: 4, Family.IPV6: 16}


@frozen(kw_only=True)
class Statistics:
    """Totals since the server was made or zeroed; packets and bytes by direction, seen from the server.

    The kernel sums them up every two seconds.
    """

    connections: int = 0
    packets_in: int = 0
    packets_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class Place(NamedTuple):
    """What tells one virtual server from another: these parts of it."""

    family: int
    protocol: int
    address: bytes
    port: int
    mark: int


@frozen(kw_only=True)
class VirtualServer:
    """A virtual server: what is sent to an address, port and protocol, or (mark not 0) what carries a packet mark.

    family: IPV4 or IPV6. protocol: TCP, UDP or SCTP by number. address: packed. scheduler: at most 15 bytes. flags: ServiceFlag.
    persistence: seconds for which a client stays with its real server, None without. prefix: clients of one network of this
    length count as one; None: each by itself.
    """

    family: Family
    protocol: int = 0
    address: bytes = b""
    port: int = 0
    mark: int = 0
    scheduler: str = "rr"
    flags: int = 0
    persistence: int | None = None
    prefix: int | None = None

    @property
    def place(self) -> Place:
        """What tells it from others."""
        return Place(self.family, self.protocol, self.address, self.port, self.mark)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read a virtual server from the payload of a message.

        Raises MalformedMessageError.
        """
        return cls._of(_nested(payload, Attribute.SERVICE))

    @classmethod
    def _of(cls, found: dict[int, bytes]) -> Self:
        family = _family(_number(found, ServiceAttribute.AF))
        size = _SIZES[family]
        mark = _number(found, ServiceAttribute.FWMARK) if ServiceAttribute.FWMARK in found else 0
        if not mark and len(found.get(ServiceAttribute.ADDR, b"")) < size:
            raise MalformedMessageError("a virtual server without mark or address")
        flags, _ = (
            _FLAGS.unpack(_sized(found, ServiceAttribute.FLAGS, _FLAGS.size)) if ServiceAttribute.FLAGS in found else (0, 0)
        )
        timeout = _number(found, ServiceAttribute.TIMEOUT) if ServiceAttribute.TIMEOUT in found else 0
        return cls(
            family=family,
            protocol=0 if mark else _number(found, ServiceAttribute.PROTOCOL),
            address=b"" if mark else found[ServiceAttribute.ADDR][:size],
            port=0 if mark else _port(found, ServiceAttribute.PORT),
            mark=mark,
            scheduler=netlink.decode_string(found.get(ServiceAttribute.SCHED_NAME, b"")),
            flags=flags & ~_KERNELS_OWN,
            persistence=timeout if flags & ServiceFlag.PERSISTENT else None,
            prefix=_decode_netmask(family, found),
        )


@frozen(kw_only=True)
class ListedVirtualServer:
    """A virtual server that is in the kernel."""

    server: VirtualServer
    statistics: Statistics = field(eq=False)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read the payload of a listing's message.

        Raises MalformedMessageError.
        """
        found = _nested(payload, Attribute.SERVICE)
        statistics = _statistics(found, ServiceAttribute.STATS64, ServiceAttribute.STATS)
        return cls(server=VirtualServer._of(found), statistics=statistics)  # noqa: SLF001 - the same module's


class RealServer(NamedTuple):
    """A real server; there are many, so it is a tuple.

    address: packed, of the virtual server's family. weight: 0 (nothing new) to 65,535. upper, lower: with more connections than
    `upper` it gets none until there are fewer than `lower`; 0 without limit.
    """

    address: bytes
    port: int
    weight: int = 1
    forwarding: int = Forwarding.MASQUERADE
    upper: int = 0
    lower: int = 0


@frozen(kw_only=True)
class ListedRealServer:
    """A real server that is in the kernel. active, inactive, persistent: connections at present."""

    server: RealServer
    active: int = field(eq=False)
    inactive: int = field(eq=False)
    persistent: int = field(eq=False)
    statistics: Statistics = field(eq=False)

    @classmethod
    def decode(cls, payload: bytes, family: Family) -> Self:
        """Read the payload of a listing's message about a virtual server of a family.

        Raises MalformedMessageError.
        """
        found = _nested(payload, Attribute.DEST)
        if DestAttribute.ADDR_FAMILY in found:
            family = _family(_number(found, DestAttribute.ADDR_FAMILY))
        address = found.get(DestAttribute.ADDR, b"")[: _SIZES[family]]
        if len(address) != _SIZES[family]:
            raise MalformedMessageError("a real server without address")
        return cls(
            server=RealServer(
                address=address,
                port=_port(found, DestAttribute.PORT),
                weight=_number(found, DestAttribute.WEIGHT),
                forwarding=_number(found, DestAttribute.FWD_METHOD),
                upper=_number(found, DestAttribute.U_THRESH),
                lower=_number(found, DestAttribute.L_THRESH),
            ),
            active=_number(found, DestAttribute.ACTIVE_CONNS),
            inactive=_number(found, DestAttribute.INACT_CONNS),
            persistent=_number(found, DestAttribute.PERSIST_CONNS),
            statistics=_statistics(found, DestAttribute.STATS64, DestAttribute.STATS),
        )


@frozen(kw_only=True)
class Timeouts:
    """Seconds after which idle connections are forgotten, for all of a network namespace. To set: 0 leaves one as it is."""

    tcp: int = 0
    tcp_fin: int = 0
    udp: int = 0

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read the answer to GET_CONFIG.

        Raises MalformedMessageError.
        """
        found = netlink.attributes(payload, genetlink.HEADER_SIZE)
        return cls(
            tcp=_number(found, Attribute.TIMEOUT_TCP),
            tcp_fin=_number(found, Attribute.TIMEOUT_TCP_FIN),
            udp=_number(found, Attribute.TIMEOUT_UDP),
        )

    def encode(self) -> bytes:
        """The payload of SET_CONFIG."""
        values = {
            Attribute.TIMEOUT_TCP: self.tcp,
            Attribute.TIMEOUT_TCP_FIN: self.tcp_fin,
            Attribute.TIMEOUT_UDP: self.udp,
        }
        return request(Command.SET_CONFIG, b"".join(_u32(kind, value) for kind, value in values.items() if value))


# -- requests


def request(command: Command, attributes: bytes = b"") -> bytes:
    """The payload of a request."""
    return genetlink.header(command, VERSION) + attributes


class Change(NamedTuple):
    """One request that changes something: what it does, and its payload."""

    command: Command
    payload: bytes


def identity(server: VirtualServer) -> bytes:
    """The attribute by which the kernel finds a virtual server; only family, protocol, address, port and mark count.

    Raises EncodingError for what cannot be one.
    """
    return netlink.nested(Attribute.SERVICE, *_identity(server))


def add_virtual(server: VirtualServer) -> Change:
    """Make a virtual server; EEXIST if there is one."""
    return Change(Command.NEW_SERVICE, request(Command.NEW_SERVICE, _whole(server)))


def set_virtual(server: VirtualServer) -> Change:
    """Change scheduler, flags and persistence of a virtual server; its real servers and connections stay."""
    return Change(Command.SET_SERVICE, request(Command.SET_SERVICE, _whole(server)))


def delete_virtual(server: VirtualServer) -> Change:
    """Delete a virtual server with its real servers; what has been established through it loses its way."""
    return Change(Command.DEL_SERVICE, request(Command.DEL_SERVICE, identity(server)))


def add_real(server: VirtualServer, reals: Iterable[RealServer]) -> list[Change]:
    """Add real servers to a virtual server; EEXIST for one that is there."""
    return _real(Command.NEW_DEST, server, reals)


def set_real(server: VirtualServer, reals: Iterable[RealServer]) -> list[Change]:
    """Change weight, forwarding and limits of real servers, found by address and port."""
    return _real(Command.SET_DEST, server, reals)


def delete_real(server: VirtualServer, reals: Iterable[RealServer]) -> list[Change]:
    """Delete real servers, found by address and port; their connections lose their way (see net.ipv4.vs.expire_nodest_conn)."""
    return _real(Command.DEL_DEST, server, reals)


_REAL: Final = struct.Struct("=8s16s4s2s2x4sI4sI4sI4sI")
_REAL_HEADS: Final = (
    ATTRIBUTE_HEADER.pack(_REAL.size, Attribute.DEST | NESTED) + ATTRIBUTE_HEADER.pack(20, DestAttribute.ADDR),
    ATTRIBUTE_HEADER.pack(6, DestAttribute.PORT),
    ATTRIBUTE_HEADER.pack(8, DestAttribute.FWD_METHOD),
    ATTRIBUTE_HEADER.pack(8, DestAttribute.WEIGHT),
    ATTRIBUTE_HEADER.pack(8, DestAttribute.U_THRESH),
    ATTRIBUTE_HEADER.pack(8, DestAttribute.L_THRESH),
)


def _real(command: Command, server: VirtualServer, reals: Iterable[RealServer]) -> list[Change]:
    head = request(command, identity(server))
    size = _SIZES[server.family]
    return [Change(command, head + _encode_real(size, real)) for real in reals]


def _encode_real(size: int, real: RealServer) -> bytes:
    address, port, weight, forwarding, upper, lower = real
    if len(address) != size:
        raise EncodingError(f"a real server's address of {len(address)} bytes, {size} expected")
    if not 0 <= weight <= HEAVIEST:
        raise EncodingError(f"a weight of {weight}, allowed are 0 to {HEAVIEST}")
    a, b, c, d, e, f = _REAL_HEADS
    try:
        return _REAL.pack(a, address, b, port.to_bytes(2, "big"), c, forwarding, d, weight, e, upper, f, lower)
    except (struct.error, OverflowError):
        raise EncodingError(f"a real server that does not fit: {real}") from None


def _whole(server: VirtualServer) -> bytes:
    if not 1 <= len(server.scheduler.encode()) <= LONGEST_SCHEDULER:
        raise EncodingError(f"{server.scheduler!r} as a scheduler: it must have 1 to {LONGEST_SCHEDULER} bytes")
    flags = server.flags & ~_KERNELS_OWN
    if server.persistence is not None:
        flags |= ServiceFlag.PERSISTENT
    return netlink.nested(
        Attribute.SERVICE,
        *_identity(server),
        netlink.string(ServiceAttribute.SCHED_NAME, server.scheduler),
        netlink.attribute(ServiceAttribute.FLAGS, _FLAGS.pack(flags, _ALL_FLAGS)),
        _u32(ServiceAttribute.TIMEOUT, server.persistence or 0),
        _encode_netmask(server),
    )


def _identity(server: VirtualServer) -> tuple[bytes, ...]:
    if server.family not in _SIZES:
        raise EncodingError(f"a virtual server of the family {server.family!r}")
    family = netlink.attribute(ServiceAttribute.AF, _U16.pack(server.family))
    if server.mark:
        return family, _u32(ServiceAttribute.FWMARK, server.mark)
    if len(server.address) != _SIZES[server.family]:
        raise EncodingError(f"a virtual server's address of {len(server.address)} bytes, {_SIZES[server.family]} expected")
    if not 0 <= server.protocol <= 255:
        raise EncodingError(f"a virtual server of the protocol {server.protocol}")
    return (
        family,
        netlink.attribute(ServiceAttribute.PROTOCOL, _U16.pack(server.protocol)),
        netlink.attribute(ServiceAttribute.ADDR, server.address.ljust(16, b"\0")),
        netlink.u16be(ServiceAttribute.PORT, server.port),
    )


def _encode_netmask(server: VirtualServer) -> bytes:
    """IPv4: the mask in network order; IPv6: the prefix length in the host's."""
    bits = 8 * _SIZES[server.family]
    prefix = bits if server.prefix is None else server.prefix
    if not 1 <= prefix <= bits:
        raise EncodingError(f"a prefix of {prefix} bits, allowed are 1 to {bits}")
    if server.family == Family.IPV6:
        return _u32(ServiceAttribute.NETMASK, prefix)
    return netlink.u32be(ServiceAttribute.NETMASK, (0xFFFFFFFF << (32 - prefix)) & 0xFFFFFFFF)


def _decode_netmask(family: Family, found: dict[int, bytes]) -> int | None:
    if ServiceAttribute.NETMASK not in found:
        return None
    value = _sized(found, ServiceAttribute.NETMASK, 4)
    prefix: int = _U32.unpack(value)[0] if family == Family.IPV6 else int.from_bytes(value, "big").bit_count()
    return None if prefix == 8 * _SIZES[family] else prefix


def _u32(kind: int, value: int) -> bytes:
    try:
        return ATTRIBUTE_HEADER.pack(8, kind) + _U32.pack(value)
    except struct.error:
        raise EncodingError(f"attribute {kind}: {value} does not fit 32 bits") from None


# -- answers


def _nested(payload: bytes, kind: Attribute) -> dict[int, bytes]:
    found = netlink.attributes(payload, genetlink.HEADER_SIZE)
    if kind not in found:
        raise MalformedMessageError(f"an IPVS message without {kind.name}")
    return netlink.attributes(found[kind])


def _family(number: int) -> Family:
    if number not in _SIZES:
        raise MalformedMessageError(f"a server of address family {number}")
    return Family(number)


def _sized(found: dict[int, bytes], kind: int, size: int) -> bytes:
    value = found.get(kind, b"")
    if len(value) != size:
        raise MalformedMessageError(f"an IPVS attribute {kind} of {len(value)} bytes, {size} expected")
    return value


def _port(found: dict[int, bytes], kind: int) -> int:
    return int.from_bytes(_sized(found, kind, 2), "big")


_BY_WIDTH: Final = {2: _U16, 4: _U32, 8: _U64}


def _number(found: dict[int, bytes], kind: int) -> int:
    value = found.get(kind, b"")
    form = _BY_WIDTH.get(len(value))
    if form is None:
        raise MalformedMessageError(f"an IPVS attribute {kind} of {len(value)} bytes where a number was expected")
    number: int = form.unpack(value)[0]
    return number


def _statistics(found: dict[int, bytes], *kinds: int) -> Statistics:
    """The first of these that is there: the longer counters came with 4.1."""
    for kind in kinds:
        if kind in found:
            counts = netlink.attributes(found[kind])
            connections, packets_in, packets_out, bytes_in, bytes_out = (_number(counts, number) for number in range(1, 6))
            return Statistics(
                connections=connections, packets_in=packets_in, packets_out=packets_out, bytes_in=bytes_in, bytes_out=bytes_out
            )
    return Statistics()
