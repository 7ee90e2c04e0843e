"""SCTP's handshake as far as a proxy sees it: INIT, INIT ACK and ABORT, byte for byte (RFC 9260, sections 3 and 6.8).

Kernels without SCTP sockets forward SCTP all the same; raw sockets and these few functions are enough to show where it goes.
"""

import struct
from typing import NamedTuple

IPPROTO_SCTP = 132
INIT, INIT_ACK, ABORT = 1, 2, 6
_STATE_COOKIE = 7
_WINDOW = 65535
_STREAMS = 1


def _make_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        remainder = value
        for _ in range(8):
            remainder = (remainder >> 1) ^ (0x82F63B78 if remainder & 1 else 0)
        table.append(remainder)
    return tuple(table)


_CRC32C = _make_table()


def checksum(packet: bytes) -> int:
    """CRC32c over the packet, whose checksum field must be zero."""
    remainder = 0xFFFFFFFF
    for byte in packet:
        remainder = (remainder >> 8) ^ _CRC32C[(remainder ^ byte) & 0xFF]
    return remainder ^ 0xFFFFFFFF


class Handshake(NamedTuple):
    """A packet with one chunk. ``tag`` is in the header, ``initiate_tag`` and ``cookie`` (the state cookie) are in the chunk."""

    source_port: int
    destination_port: int
    chunk: int
    tag: int
    initiate_tag: int = 0
    cookie: bytes = b""


def encode(packet: Handshake) -> bytes:
    """The packet as it follows the IP header, checksum included (little-endian, RFC 9260 appendix A)."""
    body = b""
    if packet.chunk in (INIT, INIT_ACK):
        body = struct.pack("!IIHHI", packet.initiate_tag, _WINDOW, _STREAMS, _STREAMS, packet.initiate_tag)
    if packet.chunk == INIT_ACK:
        body += struct.pack("!HH", _STATE_COOKIE, 4 + len(packet.cookie)) + packet.cookie
    length = 4 + len(body)
    chunk = struct.pack("!BBH", packet.chunk, 0, length) + body + bytes(-length % 4)
    ports = struct.pack("!HHI", packet.source_port, packet.destination_port, packet.tag)
    return ports + struct.pack("<I", checksum(ports + bytes(4) + chunk)) + chunk


def decode(data: bytes) -> Handshake | None:
    """The packet's first chunk, or None when it is damaged or not of the handshake."""
    if len(data) < 16 or checksum(data[:8] + bytes(4) + data[12:]) != struct.unpack_from("<I", data, 8)[0]:
        return None
    source, destination, tag = struct.unpack_from("!HHI", data)
    chunk, _flags, length = struct.unpack_from("!BBH", data, 12)
    if chunk == ABORT:
        return Handshake(source, destination, ABORT, tag)
    if chunk not in (INIT, INIT_ACK) or length < 20 or len(data) < 12 + length:
        return None
    initiate_tag = struct.unpack_from("!I", data, 16)[0]
    return Handshake(source, destination, chunk, tag, initiate_tag, _cookie(data[32 : 12 + length]))


def _cookie(parameters: bytes) -> bytes:
    offset = 0
    while offset + 4 <= len(parameters):
        kind, length = struct.unpack_from("!HH", parameters, offset)
        if kind == _STATE_COOKIE:
            return parameters[offset + 4 : offset + length]
        offset += max(4, length + (-length % 4))
    return b""


def without_ip_header(data: bytes, *, ipv6: bool) -> bytes:
    """What a raw socket received, without the IPv4 header that it comes with (raw IPv6 sockets leave theirs off)."""
    return data if ipv6 or not data else data[(data[0] & 0x0F) * 4 :]
