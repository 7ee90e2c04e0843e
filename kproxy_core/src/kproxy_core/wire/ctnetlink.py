"""Connections as conntrack tells them, and their deletion (linux/netfilter/nfnetlink_conntrack.h).

A node can have hundreds of thousands of flows, so a dump is scanned by two packed keys, and only what is selected becomes a
typed `Flow`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum, IntFlag
from typing import Final, Self

from attrs import field, frozen

from kproxy_core.wire import netlink, nfnetlink
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.nfnetlink import Family, Subsystem


class ConntrackMessage(IntEnum):
    """Message types."""

    NEW = 0
    GET = 1
    DELETE = 2


class FlowStatus(IntFlag):
    """Status bits of a flow."""

    EXPECTED = 1
    SEEN_REPLY = 2
    ASSURED = 4
    CONFIRMED = 8
    SRC_NAT = 16
    DST_NAT = 32
    DYING = 512


class FilterFlag(IntFlag):
    """Which parts of a tuple a filter compares (kernel 5.8 and later)."""

    SOURCE = 1
    DESTINATION = 2
    ZONE = 4
    PROTOCOL = 8
    SOURCE_PORT = 16
    DESTINATION_PORT = 32


UDP: Final = 17
_TUPLE_ORIGINAL: Final = 1
_TUPLE_REPLY: Final = 2
_STATUS: Final = 3
_TIMEOUT: Final = 7
_MARK: Final = 8
_ID: Final = 12
_ZONE: Final = 18
_FILTER: Final = 25
_IP: Final = 1
_PROTO: Final = 2

Select = Callable[[bytes, bytes], bool]
"""Takes where the client went (address and 2-byte port, packed) and who answers (likewise); says whether it is wanted."""


@frozen(kw_only=True)
class FlowTuple:
    """One direction of a flow; addresses packed, ports 0 for protocols without."""

    protocol: int
    source: bytes
    destination: bytes
    source_port: int = 0
    destination_port: int = 0


@frozen(kw_only=True)
class Flow:
    """A tracked connection. `reply.source` is who really answers; it differs from `original.destination` after DNAT."""

    family: Family
    original: FlowTuple
    reply: FlowTuple
    status: int = 0
    zone: int = 0
    id: bytes | None = None
    mark: int = 0
    timeout: int | None = field(default=None, eq=False)
    """Seconds left; not compared."""

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read the payload of one flow.

        Raises MalformedMessageError when a tuple is missing or malformed.
        """
        try:
            family = Family(nfnetlink.decode_family(payload))
        except ValueError as error:
            raise MalformedMessageError(str(error)) from None
        found = netlink.attributes(payload, nfnetlink.FAMILY_HEADER_SIZE)
        return cls(
            family=family,
            original=_decode_tuple(found.get(_TUPLE_ORIGINAL, b"")),
            reply=_decode_tuple(found.get(_TUPLE_REPLY, b"")),
            status=FlowStatus(_number(found, _STATUS, 4)),
            zone=_number(found, _ZONE, 2),
            id=found.get(_ID),
            mark=_number(found, _MARK, 4),
            timeout=_number(found, _TIMEOUT, 4) if _TIMEOUT in found else None,
        )


@frozen(kw_only=True)
class FlowFilter:
    """Flows of one family by parts of their original direction; None matches all."""

    family: Family
    protocol: int = UDP
    destination: bytes | None = None
    destination_port: int | None = None

    @property
    def exact(self) -> bool:
        """Whether the kernel can tell these flows from all others.

        It cannot by IPv6 address: its comparison is the wrong way round there (found on 6.18, with deletes that hit every
        flow but the wanted ones), so such an address is never sent.
        """
        return self.destination is None or self.family == Family.IPV4

    def encode(self) -> bytes:
        """The attributes that make a dump (5.8) or a delete (later than 6.1) do only these, or, unless `exact`, a few more."""
        flags = FilterFlag.PROTOCOL
        ports = netlink.attribute(1, bytes((self.protocol,)))
        address = b""
        if self.destination is not None and self.exact:
            flags |= FilterFlag.DESTINATION
            address = netlink.nested(_IP, netlink.attribute(2, self.destination))
        if self.destination_port is not None:
            flags |= FilterFlag.DESTINATION_PORT
            ports += netlink.u16be(3, self.destination_port)
        masks = (netlink.attribute(1, struct.pack("=I", flags)), netlink.attribute(2, struct.pack("=I", 0)))
        return netlink.nested(_TUPLE_ORIGINAL, address, netlink.nested(_PROTO, ports)) + netlink.nested(_FILTER, *masks)

    def matches(self, flow: Flow) -> bool:
        """Whether a flow is one of these."""
        return (
            flow.family == self.family
            and flow.original.protocol == self.protocol
            and self.destination in (None, flow.original.destination)
            and self.destination_port in (None, flow.original.destination_port)
        )


def dump_request(family: Family, wanted: FlowFilter | None = None) -> bytes:
    """The payload that asks for the flows of a family; a kernel without filters sends them all, or says EINVAL."""
    return nfnetlink.family_header(family) + (b"" if wanted is None else wanted.encode())


def delete_request(flow: Flow) -> bytes:
    """The payload that deletes this flow and no other.

    It is found by its reply direction, and its id is a hash of the original direction (and of where the kernel keeps it); so
    both must be as they were, and a newer flow of the same client, to somebody else or answered by somebody else, is left alone.
    """
    parts = [nfnetlink.family_header(flow.family), _encode_tuple(_TUPLE_REPLY, flow.family, flow.reply)]
    if flow.zone:
        parts.append(netlink.u16be(_ZONE, flow.zone))
    if flow.id is not None:
        parts.append(netlink.attribute(_ID, flow.id))
    return b"".join(parts)


def delete_matching_request(wanted: FlowFilter) -> bytes:
    """The payload that deletes all flows that match; EINVAL or EOPNOTSUPP, and nothing deleted, on older kernels.

    Raises EncodingError for a filter that the kernel would not apply exactly.
    """
    if not wanted.exact:
        raise EncodingError("the kernel cannot delete flows by IPv6 address")
    return nfnetlink.family_header(wanted.family) + wanted.encode()


def _encode_tuple(kind: int, family: Family, value: FlowTuple) -> bytes:
    size = 4 if family == Family.IPV4 else 16
    if len(value.source) != size or len(value.destination) != size:
        raise EncodingError(f"an address that does not belong to family {family.name}")
    first = 1 if family == Family.IPV4 else 3
    address = netlink.nested(_IP, netlink.attribute(first, value.source), netlink.attribute(first + 1, value.destination))
    ports = netlink.nested(
        _PROTO,
        netlink.attribute(1, bytes((value.protocol,))),
        netlink.u16be(2, value.source_port),
        netlink.u16be(3, value.destination_port),
    )
    return netlink.nested(kind, address, ports)


def _decode_tuple(value: bytes) -> FlowTuple:
    found = netlink.attributes(value)
    address = netlink.attributes(found.get(_IP, b""))
    proto = netlink.attributes(found.get(_PROTO, b""))
    source, destination = address.get(1, address.get(3)), address.get(2, address.get(4))
    if source is None or destination is None or 1 not in proto:
        raise MalformedMessageError("a flow without addresses or protocol")
    return FlowTuple(
        protocol=netlink.decode_number(proto[1], 1),
        source=source,
        destination=destination,
        source_port=_number(proto, 2, 2),
        destination_port=_number(proto, 3, 2),
    )


def _number(found: dict[int, bytes], kind: int, width: int) -> int:
    return netlink.decode_number(found[kind], width) if kind in found else 0


def scan(buffer: bytes, protocol: int, select: Select) -> Iterator[Flow]:
    """Read the flows of one received buffer of a dump: those of the protocol that `select` wants.

    Messages of other types are passed over. Raises MalformedMessageError as Flow.decode() does.
    """
    start, stop = 0, len(buffer)
    header = netlink.HEADER.unpack_from
    wanted = nfnetlink.message_type(Subsystem.CTNETLINK, ConntrackMessage.NEW)
    while stop - start >= netlink.HEADER.size:
        length, kind, _, _, _ = header(buffer, start)
        if length < netlink.HEADER.size or start + length > stop:
            raise MalformedMessageError(f"message of type {kind} claims {length} bytes, {stop - start} are left")
        if kind == wanted:
            flow = _selected(buffer[start + netlink.HEADER.size : start + length], protocol, select)
            if flow is not None:
                yield flow
        start += (length + 3) & ~3


class _Form:
    """The bytes of both tuples of a flow with ports, as every kernel writes them: constants between the values."""

    def __init__(self, size: int, first: int) -> None:
        direction = f"12s{size}s4s{size}s8sB3x4s2s2x4s2s2x"
        self.form = struct.Struct("=" + direction + direction)
        self.constants = tuple(part for kind in (1, 2) for part in _constants(kind, size, first))


def _constants(kind: int, size: int, first: int) -> tuple[bytes, ...]:
    pack, nested = netlink.ATTRIBUTE_HEADER.pack, netlink.NESTED
    addresses = 4 + 2 * (4 + size)
    return (
        pack(4 + addresses + 28, kind | nested) + pack(addresses, _IP | nested) + pack(4 + size, first),
        pack(4 + size, first + 1),
        pack(28, _PROTO | nested) + pack(5, 1),
        pack(6, 2),
        pack(6, 3),
    )


_FORMS: Final = {Family.IPV4: _Form(4, 1), Family.IPV6: _Form(16, 3)}


def _selected(payload: bytes, protocol: int, select: Select) -> Flow | None:
    form = _FORMS.get(payload[0]) if payload else None  # type: ignore[call-overload]
    if form is not None and len(payload) >= 4 + form.form.size:
        (a, _, b, to, c, number, d, _, e, to_port, f, by, g, _, h, _, i, by_port, j, _) = form.form.unpack_from(payload, 4)
        if (a, b, c, d, e, f, g, h, i, j) == form.constants:
            wanted = number == protocol and select(to + to_port, by + by_port)
            return Flow.decode(payload) if wanted else None
    flow = Flow.decode(payload)
    there, back = flow.original, flow.reply
    if there.protocol != protocol:
        return None
    service = there.destination + there.destination_port.to_bytes(2, "big")
    responder = back.source + back.source_port.to_bytes(2, "big")
    return flow if select(service, responder) else None
