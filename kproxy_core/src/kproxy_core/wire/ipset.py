"""Sets of the ipset subsystem, as they are made and listed, and the payloads of its requests."""

from __future__ import annotations

from typing import Final, Self

from attrs import field, frozen

from kproxy_core.wire import netlink, nfnetlink
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.ipset_constants import (
    LONGEST_NAME,
    LONGEST_TIMEOUT,
    NETWORK_ORDER,
    PROTOCOL_NEWEST,
    PROTOCOL_OLDEST,
    Attribute,
    Command,
    DataAttribute,
    DataFlag,
)
from kproxy_core.wire.ipset_keys import KeyForm, SetType, key_form
from kproxy_core.wire.netlink import NESTED, MessageFlag
from kproxy_core.wire.nfnetlink import Family, Subsystem

ALL_PORTS: Final = (0, 65535)
_MOST_ELEMENTS: Final = 1 << 20
_HASH_SIZE: Final = 1024
_WHOLE_MARK: Final = 0xFFFFFFFF


@frozen(kw_only=True)
class IpSet:
    """A set. Two are equal when one can stand in for the other: the size of the hash, which grows, does not count.

    family: of a bitmap UNSPEC. timeout: seconds that an element stays unless it says otherwise (0: for ever); None: elements
    cannot have timeouts. max_elements: how many the kernel takes at most (`ipset` says 65,536 by default); they cost memory only
    when they are there. hash_size: to begin with; a power of two is made of it. force_add: a full set drops some element for each
    new one. mark_mask: of hash:ip,mark. ports: first and last of a bitmap:port. counters, comments, skb_info: what elements can
    have.
    """

    name: str
    type: SetType
    family: Family = Family.UNSPEC
    timeout: int | None = None
    max_elements: int = _MOST_ELEMENTS
    hash_size: int = field(default=_HASH_SIZE, eq=False)
    counters: bool = False
    comments: bool = False
    skb_info: bool = False
    force_add: bool = False
    mark_mask: int = _WHOLE_MARK
    ports: tuple[int, int] = ALL_PORTS

    @property
    def form(self) -> KeyForm:
        """The form of the keys of its elements; EncodingError for a family that the type has not."""
        return key_form(self.type, self.family)


@frozen(kw_only=True)
class ListedSet:
    """A set that is in the kernel.

    definition: None for a type that is not spoken here. references: how many rules (and sets of sets) use it. elements: how many
    it holds, timed-out ones perhaps included. memory: bytes.
    """

    name: str
    type_name: str
    family: int
    revision: int
    references: int
    elements: int
    memory: int
    definition: IpSet | None

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read the payload of a listing's message that begins a set.

        Raises MalformedMessageError.
        """
        found = netlink.attributes(payload, nfnetlink.FAMILY_HEADER_SIZE)
        if Attribute.SET_NAME not in found or Attribute.TYPE_NAME not in found:
            raise MalformedMessageError("a set without name or type")
        data = netlink.attributes(found.get(Attribute.DATA, b""))
        name, type_name = netlink.decode_string(found[Attribute.SET_NAME]), netlink.decode_string(found[Attribute.TYPE_NAME])
        family = _number(found, Attribute.FAMILY, 1)
        return cls(
            name=name,
            type_name=type_name,
            family=family,
            revision=_number(found, Attribute.REVISION, 1),
            references=_number(data, DataAttribute.REFERENCES, 4),
            elements=_number(data, DataAttribute.ELEMENT_COUNT, 4),
            memory=_number(data, DataAttribute.MEMORY_SIZE, 4),
            definition=_definition(name, type_name, family, data),
        )


def _definition(name: str, type_name: str, family: int, data: dict[int, bytes]) -> IpSet | None:
    try:
        kind, proper_family = SetType(type_name), Family(family)
    except ValueError:
        return None
    flags = _number(data, DataAttribute.FLAGS, 4)
    ports = (_number(data, DataAttribute.PORT, 2), _number(data, DataAttribute.PORT_TO, 2))
    return IpSet(
        name=name,
        type=kind,
        family=proper_family,
        timeout=_number(data, DataAttribute.TIMEOUT, 4) if DataAttribute.TIMEOUT in data else None,
        max_elements=_number(data, DataAttribute.MAX_ELEMENTS, 4, _MOST_ELEMENTS),
        hash_size=_number(data, DataAttribute.HASH_SIZE, 4, _HASH_SIZE),
        counters=bool(flags & DataFlag.COUNTERS),
        comments=bool(flags & DataFlag.COMMENTS),
        skb_info=bool(flags & DataFlag.SKB_INFO),
        force_add=bool(flags & DataFlag.FORCE_ADD),
        mark_mask=_number(data, DataAttribute.MARK_MASK, 4, _WHOLE_MARK),
        ports=ports if kind.is_bitmap else ALL_PORTS,
    )


def _number(found: dict[int, bytes], kind: int, width: int, otherwise: int = 0) -> int:
    return netlink.decode_number(found[kind], width) if kind in found else otherwise


@frozen(kw_only=True)
class Versions:
    """The oldest and newest version of something that the kernel speaks."""

    oldest: int
    newest: int


def protocol_request() -> bytes:
    """The payload that asks for the versions of the protocol."""
    return nfnetlink.family_header(Family.IPV4) + _byte(Attribute.PROTOCOL, PROTOCOL_NEWEST)


def decode_protocol(payload: bytes) -> Versions:
    """The answer to protocol_request()."""
    return _versions(payload, Attribute.PROTOCOL)


def choose_protocol(kernel: Versions) -> int | None:
    """The newest version that both sides speak; None if there is none."""
    newest = min(kernel.newest, PROTOCOL_NEWEST)
    return newest if newest >= max(kernel.oldest, PROTOCOL_OLDEST) else None


def decode_type(payload: bytes) -> Versions:
    """The revisions of a type, from the answer to Requests.type()."""
    return _versions(payload, Attribute.REVISION)


def choose_revision(kind: SetType, kernel: Versions) -> int | None:
    """The revision to make a set with: the one that has all that is used here, or the kernel's oldest; None if it is too old."""
    return max(kind.revision, kernel.oldest) if kind.revision <= kernel.newest else None


def _versions(payload: bytes, newest: Attribute) -> Versions:
    found = netlink.attributes(payload, nfnetlink.FAMILY_HEADER_SIZE)
    if newest not in found:
        raise MalformedMessageError(f"an answer without {newest.name}")
    last = netlink.decode_number(found[newest], 1)
    return Versions(oldest=_number(found, Attribute.OLDEST, 1, last), newest=last)


@frozen
class Requests:
    """The payloads of requests in one version of the protocol."""

    protocol: int

    def type(self, kind: SetType, family: Family) -> bytes:
        """Ask for the revisions of a type; the kernel loads its module."""
        return self._begin(family) + netlink.string(Attribute.TYPE_NAME, kind.value) + _byte(Attribute.FAMILY, family)

    def create(self, wanted: IpSet, revision: int) -> bytes:
        """Make a set.

        Raises EncodingError for a definition that cannot be.
        """
        head = netlink.string(Attribute.TYPE_NAME, wanted.type.value) + _byte(Attribute.REVISION, revision)
        return self.named(wanted.name, wanted.family) + head + _byte(Attribute.FAMILY, wanted.family) + _encode_definition(wanted)

    def named(self, name: str, family: Family = Family.IPV4) -> bytes:
        """What destroying and flushing need, and all else that is done with one set begins with.

        Raises EncodingError for a name that is none; an empty one would mean all sets.
        """
        return self._begin(family) + _name(Attribute.SET_NAME, name)

    def pair(self, first: str, second: str) -> bytes:
        """Rename the first set, or swap the contents of both."""
        return self.named(first) + _name(Attribute.SET_NAME_2, second)

    def listing(self, name: str | None = None, flags: int = 0) -> bytes:
        """List one set or all, with their elements unless the flags say otherwise."""
        head = self._begin(Family.IPV4) if name is None else self.named(name)
        return head + (netlink.u32be(Attribute.FLAGS | NETWORK_ORDER, flags) if flags else b"")

    def test(self, name: str, encoded: bytes) -> bytes:
        """Ask whether an element (its attributes) is in a set."""
        return self.named(name) + netlink.nested(Attribute.DATA, encoded)

    def _begin(self, family: Family) -> bytes:
        return nfnetlink.family_header(family) + _byte(Attribute.PROTOCOL, self.protocol)


def _byte(kind: int, value: int) -> bytes:
    return netlink.attribute(kind, bytes((value,)))


def _name(kind: int, name: str) -> bytes:
    if not 1 <= len(name.encode()) <= LONGEST_NAME:
        raise EncodingError(f"{name!r} as the name of a set: it must have 1 to {LONGEST_NAME} bytes")
    return netlink.string(kind, name)


def _encode_definition(wanted: IpSet) -> bytes:
    parts: list[bytes] = []
    if wanted.type.is_bitmap:
        first, last = wanted.ports
        parts.append(netlink.u16be(DataAttribute.PORT | NETWORK_ORDER, first))
        parts.append(netlink.u16be(DataAttribute.PORT_TO | NETWORK_ORDER, last))
    else:
        _ = wanted.form
        parts.append(netlink.u32be(DataAttribute.HASH_SIZE | NETWORK_ORDER, wanted.hash_size))
        parts.append(netlink.u32be(DataAttribute.MAX_ELEMENTS | NETWORK_ORDER, wanted.max_elements))
    if wanted.type is SetType.HASH_IP_MARK:
        parts.append(netlink.u32be(DataAttribute.MARK_MASK | NETWORK_ORDER, wanted.mark_mask))
    if wanted.timeout is not None:
        if wanted.timeout > LONGEST_TIMEOUT:
            raise EncodingError(f"{wanted.name}: a timeout of {wanted.timeout} seconds, at most {LONGEST_TIMEOUT} are possible")
        parts.append(netlink.u32be(DataAttribute.TIMEOUT | NETWORK_ORDER, wanted.timeout))
    flags = _flags(wanted)
    if flags:
        parts.append(netlink.u32be(DataAttribute.FLAGS | NETWORK_ORDER, flags))
    return netlink.attribute(Attribute.DATA | NESTED, b"".join(parts))


def _flags(wanted: IpSet) -> int:
    chosen = {
        DataFlag.COUNTERS: wanted.counters,
        DataFlag.COMMENTS: wanted.comments,
        DataFlag.SKB_INFO: wanted.skb_info,
        DataFlag.FORCE_ADD: wanted.force_add,
    }
    return sum(flag for flag, wished in chosen.items() if wished)


def message_type(command: Command) -> int:
    """The message type of a command."""
    return nfnetlink.message_type(Subsystem.IPSET, command)


def change_flags(*, exclusive: bool) -> int:
    """The flags to make or change with: exclusive means that what is there already, or not there any more, is an error."""
    return MessageFlag.EXCL if exclusive else 0
