"""Generic netlink (linux/genetlink.h): the header of its messages, and the families that the kernel numbers as it starts them."""

from __future__ import annotations

import struct
from typing import Final, Self

from attrs import frozen

from kproxy_core.wire import netlink
from kproxy_core.wire.errors import MalformedMessageError

CONTROLLER: Final = 16
"""The message type of the family that knows the others."""
GET_FAMILY: Final = 3
HEADER_SIZE: Final = 4

_HEADER: Final = struct.Struct("=BBxx")
_U16: Final = struct.Struct("=H")
_U32: Final = struct.Struct("=I")
_FAMILY_ID: Final = 1
_FAMILY_NAME: Final = 2
_VERSION: Final = 3


def header(command: int, version: int) -> bytes:
    """What begins every payload."""
    return _HEADER.pack(command, version)


@frozen(kw_only=True)
class GenericFamily:
    """A family that the kernel has. id: the type of its messages. version: its newest."""

    name: str
    id: int
    version: int

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read the answer to family_request().

        Raises MalformedMessageError.
        """
        found = netlink.attributes(payload, HEADER_SIZE)
        identity, version = found.get(_FAMILY_ID, b""), found.get(_VERSION, b"")
        if len(identity) != _U16.size or len(version) != _U32.size or _FAMILY_NAME not in found:
            raise MalformedMessageError("a generic netlink family without name, number or version")
        return cls(name=netlink.decode_string(found[_FAMILY_NAME]), id=_U16.unpack(identity)[0], version=_U32.unpack(version)[0])


def family_request(name: str) -> bytes:
    """The payload that asks for a family; the kernel loads its module."""
    return header(GET_FAMILY, 1) + netlink.string(_FAMILY_NAME, name)
