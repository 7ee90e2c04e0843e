"""Operations, the messages of a transaction, and the transaction itself as bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from attrs import evolve, frozen

from kproxy_core.wire import netlink, nfnetlink
from kproxy_core.wire.errors import EncodingError
from kproxy_core.wire.netlink import MessageFlag
from kproxy_core.wire.nfnetlink import Family, Subsystem
from kproxy_core.wire.nft_constants import MessageKind
from kproxy_core.wire.nft_objects import Chain, DumpedRule, Flowtable, NamedObject, Rule, Set, Table

_OVERHEAD: Final = netlink.HEADER.size + nfnetlink.FAMILY_HEADER_SIZE
_BRACKETS: Final = 2 * _OVERHEAD + 8
_ECHO_LIMIT: Final = 4096


@frozen(kw_only=True)
class Operation:
    """One message of a transaction.

    cut: a transaction that is too large to be sent at once may be cut before this operation; what comes before must
    make sense alone. label: whatever the caller wants to know again when the kernel refuses the operation.
    """

    kind: MessageKind
    flags: int
    family: Family
    attributes: bytes
    cut: bool = False
    label: object = None

    @property
    def size(self) -> int:
        """Bytes of the whole message."""
        return _OVERHEAD + len(self.attributes)

    def encode(self, sequence: int, more_flags: int = 0) -> bytes:
        """The whole message."""
        return self.head(sequence, more_flags) + self.attributes

    def head(self, sequence: int, more_flags: int = 0) -> bytes:
        """The message up to its attributes."""
        kind = nfnetlink.message_type(Subsystem.NFTABLES, self.kind)
        flags = MessageFlag.REQUEST | self.flags | more_flags
        return netlink.HEADER.pack(self.size, kind, flags, sequence, 0) + nfnetlink.family_header(self.family)


def add(thing: Table | Chain | Set | Rule) -> Operation:
    """Make it, or (of all but a rule) let it be if it is there; a rule goes to the end of its chain.

    A set or base chain that is there with other properties is an error (EEXIST, EOPNOTSUPP).
    """
    flags = MessageFlag.CREATE | (MessageFlag.APPEND if isinstance(thing, Rule) else 0)
    return _new(thing, flags)


def create(thing: Table | Chain | Set) -> Operation:
    """Make it; EEXIST if it is there."""
    return _new(thing, MessageFlag.CREATE | MessageFlag.EXCL)


def insert(rule: Rule) -> Operation:
    """Put a rule at the start of its chain (with `position`: before that rule)."""
    return _new(rule, MessageFlag.CREATE)


def replace(rule: Rule) -> Operation:
    """Put a rule in the place of the one whose handle it carries."""
    if rule.handle is None:
        raise EncodingError("a rule that replaces another must carry its handle")
    return _new(rule, MessageFlag.REPLACE)


def _new(thing: Table | Chain | Set | Rule, flags: int) -> Operation:
    kinds = {
        Table: MessageKind.NEWTABLE,
        Chain: MessageKind.NEWCHAIN,
        Set: MessageKind.NEWSET,
        Rule: MessageKind.NEWRULE,
    }
    return Operation(kind=kinds[type(thing)], flags=flags, family=thing.family, attributes=thing.encode())


def delete(thing: Table | Chain | Set | DumpedRule | NamedObject | Flowtable) -> Operation:
    """Delete it; ENOENT if it is not there, EBUSY while something refers to a chain, set, named object or flowtable.

    A table goes with all that is in it. A rule is found by its handle, so it must have been read.
    """
    kinds = {
        Table: MessageKind.DELTABLE,
        Chain: MessageKind.DELCHAIN,
        Set: MessageKind.DELSET,
        DumpedRule: MessageKind.DELRULE,
        NamedObject: MessageKind.DELOBJ,
        Flowtable: MessageKind.DELFLOWTABLE,
    }
    return Operation(kind=kinds[type(thing)], flags=0, family=thing.family, attributes=thing.encode_key())


def flush_chain(chain: Chain) -> Operation:
    """Delete all rules of a chain."""
    attributes = netlink.string(1, chain.table) + netlink.string(2, chain.name)
    return Operation(kind=MessageKind.DELRULE, flags=0, family=chain.family, attributes=attributes)


def flush_set(target: Set) -> Operation:
    """Delete all elements of a set."""
    return Operation(kind=MessageKind.DELSETELEM, flags=0, family=target.family, attributes=target.encode_key())


def cut_before(operations: Sequence[Operation]) -> list[Operation]:
    """The same operations; a transaction may be cut before the first of them."""
    return [evolve(operations[0], cut=True), *operations[1:]] if operations else []


def encode_batch(operations: Sequence[Operation], sequence: int, generation: int | None = None) -> bytes:
    """A transaction as one buffer: the kernel applies all of it or nothing.

    The opening message has number `sequence`, operation i number `sequence + 1 + i`. The last operation is acknowledged;
    of others only errors are. With `generation`, see nfnetlink.batch_begin().

    The kernel is asked to tell the sender the generation which the commit made. It looks for that wish in the first
    operation, and then reports what that one did as well; so the wish is left out where that would be much.
    """
    return b"".join(batch_parts(operations, sequence, generation))


def trial_parts(operations: Sequence[Operation], sequence: int) -> Iterator[bytes]:
    """Yield a transaction that is not closed: the kernel tries it as any other, and takes all of it back (``nft --check``)."""
    return _opened_parts(operations, sequence, None, echo=False)


def batch_parts(operations: Sequence[Operation], sequence: int, generation: int | None = None) -> Iterator[bytes]:
    """Yield a transaction in parts, without a copy of what is large in it; see :func:`encode_batch`."""
    yield from _opened_parts(operations, sequence, generation, echo=True)
    yield nfnetlink.batch_end(Subsystem.NFTABLES, sequence + 1 + len(operations))


def _opened_parts(operations: Sequence[Operation], sequence: int, generation: int | None, *, echo: bool) -> Iterator[bytes]:
    yield nfnetlink.batch_begin(Subsystem.NFTABLES, sequence, MessageFlag.REQUEST, generation)
    last = len(operations) - 1
    for index, operation in enumerate(operations):
        more = MessageFlag.ACK if index == last else 0
        if echo and index == 0 and operation.size <= _ECHO_LIMIT:
            more |= MessageFlag.ECHO
        yield operation.head(sequence + 1 + index, more)
        yield operation.attributes


def split(operations: Sequence[Operation], limit: int) -> list[Sequence[Operation]]:
    """Cut a transaction, where the operations allow it, into as few as possible of at most `limit` bytes each.

    Raises EncodingError when the operations between two cuts do not fit.
    """
    if _BRACKETS + sum(operation.size for operation in operations) <= limit:
        return [operations] if operations else []
    starts = [index for index, operation in enumerate(operations) if index == 0 or operation.cut]
    result: list[Sequence[Operation]] = []
    begin, room = 0, limit - _BRACKETS
    for start, end in zip(starts, [*starts[1:], len(operations)], strict=True):
        size = sum(operation.size for operation in operations[start:end])
        if size > limit - _BRACKETS:
            raise EncodingError(f"operations {start} to {end - 1} take {size} bytes, {limit - _BRACKETS} can be sent at once")
        if size > room:
            result.append(operations[begin:start])
            begin, room = start, limit - _BRACKETS
        room -= size
    result.append(operations[begin:])
    return result
