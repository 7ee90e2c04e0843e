"""The kernel objects of this mode: what names each of them, and how a fresh process knows them as ours.

Everything lives in the tables ``ip kproxy-nftables`` and ``ip6 kproxy-nftables``, which no one else writes to; what is in them is
ours. An object's key is ``(place, name)``:

- ``("ip", "table")`` is the table itself, its value by :func:`table_value`;
- ``("ip chain", "pick-3")`` is a chain, its value a :class:`Chain` with all its rules;
- ``("ip set", "endpoints")`` is a set or map, its value a wire ``Set``;
- ``("ip actions", key bytes)`` is an element, its value the packed data; ``b""`` in a set, a :class:`Verdict` in a verdict map,
  and :class:`Owned` in ``services``, where each element says in its comment which Service port its id belongs to. That is how a
  fresh process attributes ids, and through them all other elements;
- ``("ip named object", "theirs 0")`` and ``("ip flowtable", "theirs")`` are what only others put there, by name (and kind)
  with the wire value;
- ``("ip endpoints", id bytes)`` is all that a Service port has in a map keyed by id and slot, see
  :mod:`~kproxy_nftables.numbered`.
"""

import struct
from typing import Final

from attrs import frozen

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.names import Protocol, ServicePortName
from kproxy_core.wire.nft_constants import TableFlag, VerdictCode
from kproxy_core.wire.nft_data import Verdict
from kproxy_core.wire.nft_expressions import AnyExpression
from kproxy_core.wire.nft_objects import Flowtable, NamedObject, Set

TABLE: Final = "kproxy-nftables"

HELD: Final = TableFlag.OWNER | TableFlag.PERSIST
"""Flags of a table that nobody but the socket that holds it can change, flush or delete, and that outlives that socket."""

FAMILY_NAMES: Final = {Family.IPV4: "ip", Family.IPV6: "ip6"}
FAMILIES_BY_NAME: Final = {name: family for family, name in FAMILY_NAMES.items()}


@frozen
class Owned:
    """An id in the map ``services``, with the Service port it belongs to as its comment."""

    data: bytes
    owner: str


@frozen(kw_only=True)
class Rule:
    """A rule: its expressions and the comment that ``nft list`` shows."""

    expressions: tuple[AnyExpression, ...]
    comment: str = ""


@frozen(kw_only=True)
class Hook:
    """Where a base chain is called from: netfilter's hook number and priority. Ours are all of type nat with policy accept."""

    number: int
    priority: int
    type: str = "nat"
    policy: int = VerdictCode.ACCEPT


@frozen(kw_only=True)
class Chain:
    """A chain with its rules; a base chain if it has a hook."""

    rules: tuple[Rule, ...]
    hook: Hook | None = None


Key = tuple[str, str | bytes]
Value = bytes | Verdict | Owned | Chain | Set | NamedObject | Flowtable
"""What a key holds."""

_NUMBER: Final = struct.Struct("=I")
_PORT: Final = struct.Struct("!Hxx")
_PROTOCOL_AND_PORT: Final = struct.Struct("!BxxxHxx")


def table_value(flags: int, holder: int = 0) -> bytes:
    """Pack a table's flags, ``b""`` for none, and the port id of a socket that is not ours and holds it."""
    return (number(flags) if flags else b"") + (number(holder) if holder else b"")


def table_flags(value: bytes) -> TableFlag:
    """Return the flags in a table's value."""
    return TableFlag(_NUMBER.unpack(value[:4])[0] if value else 0)


def number(value: int) -> bytes:
    """Pack a mark, an id or a slot: 32 bits in host order, as the kernel's registers hold marks and random numbers."""
    return _NUMBER.pack(value)


def protocol_and_port(protocol: Protocol, port: int) -> bytes:
    """Pack ``protocol . port``; each part of a concatenation fills whole registers."""
    return _PROTOCOL_AND_PORT.pack(protocol, port)


def packed_port(port: int) -> bytes:
    """Pack a port as the last part of a concatenation."""
    return _PORT.pack(port)


def address_and_port(address: bytes, port: int) -> bytes:
    """Pack ``address . port``."""
    return address + packed_port(port)


def split_address_and_port(data: bytes) -> tuple[Address, int]:
    """Undo :func:`address_and_port`."""
    return Address(data[:-4]), int(_PORT.unpack(data[-4:])[0])


def owner_text(name: ServicePortName) -> str:
    """Spell a Service port for a comment: ``namespace/name:port/TCP``."""
    return str(name)
