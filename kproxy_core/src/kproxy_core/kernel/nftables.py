"""nf_tables of one network namespace: transactions, and reading back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from typing import Final, TypeVar

from attrs import frozen

from kproxy_core.kernel.closing import Closing
from kproxy_core.kernel.errors import DumpInterruptedError, NotFoundError, OutcomeUnknownError
from kproxy_core.kernel.namespaces import Namespace
from kproxy_core.kernel.netlink_socket import NetlinkSocket, answers_in
from kproxy_core.wire import netlink, nfnetlink
from kproxy_core.wire.errors import RepeatedElementError
from kproxy_core.wire.netlink import Acknowledgement, ControlType, Message, Protocol
from kproxy_core.wire.nfnetlink import Family, Subsystem
from kproxy_core.wire.nft_constants import MessageKind
from kproxy_core.wire.nft_elements import Element, ElementCodec, decode_elements, element_at
from kproxy_core.wire.nft_generation import Generation
from kproxy_core.wire.nft_objects import Chain, DumpedRule, Flowtable, NamedObject, Set, Table
from kproxy_core.wire.nft_operations import Operation, batch_parts, split, trial_parts

_T = TypeVar("_T")
_READ_ATTEMPTS: Final = 10


@frozen(kw_only=True)
class OperationError:
    """What the kernel says against one operation, or (index None) against the transaction as a whole.

    index: which of the operations given to commit(). error: the errno. text: the kernel's own words, if any. element: which
    element of an element message, where the kernel tells.
    """

    index: int | None
    error: int
    operation: Operation | None = None
    text: str | None = None
    element: int | None = None


@frozen(kw_only=True)
class CommitResult:
    """What became of the operations.

    done: how many took effect: all, none, or those before the failed part of a transaction that had to be cut.
    transactions: how many it took. errors: every operation that the kernel refused (it checks on after the first).
    generations: of each transaction that took effect the generation it made; None where that is not known, or nothing changed.
    """

    done: int
    transactions: int
    errors: tuple[OperationError, ...] = ()
    generations: tuple[int | None, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all of it took effect."""
        return not self.errors


class NftSocket(Closing):
    """nf_tables of one network namespace, for one thread at a time.

    Raises NetlinkError, OverrunError and DumpInterruptedError of kernel.errors; NotFoundError for a table or set that is
    not there.
    """

    def __init__(self, *, namespace: Namespace | None = None) -> None:
        self._netlink = NetlinkSocket(Protocol.NETFILTER, namespace=namespace)

    @property
    def port(self) -> int:
        """The port id under which this socket's commits are announced."""
        return self._netlink.port

    def close(self) -> None:
        """Close it; a table with TableFlag.OWNER and without PERSIST dies with it."""
        self._netlink.close()

    def commit(self, operations: Sequence[Operation], *, generation: int | None = None) -> CommitResult:
        """Apply operations: all of them or none, and the first packet after sees the new state.

        Where the kernel grants too small a send buffer (a user namespace) the transaction is cut at operations that
        allow it, and stops at the first part that fails. EncodingError when a part between two cuts is too large even
        then. With `generation` the (first) transaction fails with ERESTART if anybody changed anything since that one.
        Raises OutcomeUnknownError when the kernel's answer is lost.
        """
        if not operations:
            return CommitResult(done=0, transactions=0)
        whole = sum(operation.size for operation in operations) + 64
        done = 0
        generations: list[int | None] = []
        for part in split(operations, self._netlink.reserve(whole)):
            errors, made = self._transact(part, done, None if done else generation)
            if errors:
                return CommitResult(done=done, transactions=len(generations), errors=errors, generations=tuple(generations))
            done += len(part)
            generations.append(made)
        return CommitResult(done=done, transactions=len(generations), generations=tuple(generations))

    def check(self, operations: Sequence[Operation]) -> tuple[OperationError, ...]:
        """Have the kernel try operations as one transaction and take them back: what it says against them.

        Nothing changes, no generation is made, and nobody is told. They must fit into one send (a few hundred do).
        """
        sequence = self._netlink.next_sequence(len(operations) + 1)
        return self._send(trial_parts(operations, sequence), operations, sequence, 0)[0] if operations else ()

    def _transact(
        self, part: Sequence[Operation], offset: int, generation: int | None
    ) -> tuple[tuple[OperationError, ...], int | None]:
        sequence = self._netlink.next_sequence(len(part) + 2)
        return self._send(batch_parts(part, sequence, generation), part, sequence, offset)

    def _send(
        self, parts: Iterable[bytes], part: Sequence[Operation], sequence: int, offset: int
    ) -> tuple[tuple[OperationError, ...], int | None]:
        self._netlink.received()
        self._netlink.send_parts(list(parts), "commit to nf_tables")
        acknowledged, made = False, None
        errors: list[OperationError] = []
        for message in self._netlink.received():
            if message.type == ControlType.ERROR:
                told = netlink.acknowledgement(message)
                if told.error:
                    errors.append(_operation_error(told, part, sequence, offset))
                acknowledged |= told.sequence == sequence + len(part)
            elif message.type == Generation.MESSAGE_TYPE:
                made = Generation.decode(message).id
        if not errors and not acknowledged:
            raise OutcomeUnknownError("nf_tables did not acknowledge a transaction")
        return tuple(errors), made

    def generation(self) -> int:
        """The number of the present rule set; each transaction that changes something adds one."""
        answers = self._get(MessageKind.GETGEN, Family.UNSPEC, b"", "read the nf_tables generation")
        return Generation.decode(answers[0]).id

    def consistently(self, read: Callable[[], _T], what: str = "read nf_tables") -> tuple[_T, int]:
        """Call `read` until it can be believed: its result, and the generation.

        That is when nothing was changed meanwhile, or when it gives the same twice running: on hosts where others change their
        own tables all the time, no long listing is ever undisturbed. Raises DumpInterruptedError when neither happens.
        """
        before = self.generation()
        earlier: _T | None = None
        for _ in range(_READ_ATTEMPTS):
            result = read()
            after = self.generation()
            if after == before or result == earlier:
                return result, after
            before, earlier = after, result
        raise DumpInterruptedError(f"{what}: nf_tables changed during each of {_READ_ATTEMPTS} attempts")

    def tables(self, family: Family = Family.UNSPEC) -> tuple[Table, ...]:
        """All tables of a family (UNSPEC: of all)."""
        return tuple(Table.decode(m.payload) for m in self._dump(MessageKind.GETTABLE, family, b"", "list tables"))

    def chains(self, family: Family, table: str) -> tuple[Chain, ...]:
        """The chains of a table; none when it is not there."""
        listed = self._dump(MessageKind.GETCHAIN, family, netlink.string(1, table), "list chains")
        return tuple(chain for m in listed if (chain := Chain.decode(m.payload)).table == table)

    def sets(self, family: Family, table: str) -> tuple[Set, ...]:
        """The named sets and maps of a table; none when it is not there."""
        try:
            listed = self._dump(MessageKind.GETSET, family, netlink.string(1, table), f"list sets of {table}")
        except NotFoundError:
            return ()
        return tuple(Set.decode(m.payload) for m in listed)

    def rules(self, family: Family, table: str, chain: str | None = None) -> tuple[DumpedRule, ...]:
        """The rules of a table, or of one chain, in order; none when it is not there."""
        wanted = netlink.string(1, table) + (b"" if chain is None else netlink.string(2, chain))
        listed = self._dump(MessageKind.GETRULE, family, wanted, f"list rules of {table}")
        return tuple(DumpedRule.decode(m.payload) for m in listed)

    def named_objects(self, family: Family, table: str) -> tuple[NamedObject, ...]:
        """The counters, quotas, limits and so on of a table that have names; none when it is not there."""
        listed = self._dump(MessageKind.GETOBJ, family, netlink.string(1, table), f"list named objects of {table}")
        return tuple(NamedObject.decode(m.payload) for m in listed)

    def flowtables(self, family: Family, table: str) -> tuple[Flowtable, ...]:
        """The flowtables of a table; none when it is not there."""
        listed = self._dump(MessageKind.GETFLOWTABLE, family, netlink.string(1, table), f"list flowtables of {table}")
        return tuple(Flowtable.decode(m.payload) for m in listed)

    def elements(self, codec: ElementCodec) -> list[tuple[bytes, bytes]]:
        """The elements of a set as packed keys and data, in no particular order.

        Wrap this and the next three in consistently(): the kernel does not say when a transaction came between (seen on 6.18),
        and a listing may then lack elements that were there throughout.
        """
        return self._listed(codec, lambda payloads: _once(payloads, codec.decode, lambda pair: pair[0]))

    def elements_with_comments(self, codec: ElementCodec) -> list[tuple[bytes, bytes, str | None]]:
        """As elements(), with the comments."""
        return self._listed(codec, lambda payloads: _once(payloads, codec.decode_with_comments, lambda item: item[0]))

    def full_elements(self, codec: ElementCodec) -> list[Element]:
        """The elements of any set, with all they have."""
        return self._listed(codec, lambda payloads: _once(payloads, decode_elements, _identity))

    def collected(self, codec: ElementCodec, collect: Callable[[Iterable[tuple[bytes, bytes]]], _T]) -> _T:
        """What `collect` makes of a set's elements, given as by elements(), but one after the other: never all at once.

        It has to raise RepeatedElementError when one comes twice, and is then called again.
        """
        return self._listed(codec, lambda payloads: collect(chain.from_iterable(map(codec.decode, payloads))))

    def element(self, codec: ElementCodec, key: bytes) -> Element | None:
        """One element by key; None when it is not there. Of an interval set: the interval that covers the key."""
        try:
            answers = self._get(MessageKind.GETSETELEM, codec.family, codec.encode_get(key), f"look up in {codec.set_name}")
        except NotFoundError:
            return None
        return next((element for m in answers for element in decode_elements(m.payload)), None)

    def _listed(self, codec: ElementCodec, collect: Callable[[Iterable[bytes]], _T]) -> _T:
        """List elements until each is there once; `collect` gets the messages' payloads.

        For each buffer of a listing the kernel passes over as many elements as it has already told. When a large set was filled
        just before, it is still rearranging its hash table beside that (seen on 6.18), and then as many elements are missing as
        are there twice.
        """
        number = nfnetlink.message_type(Subsystem.NFTABLES, MessageKind.GETSETELEM)
        wanted = netlink.string(1, codec.table) + netlink.string(2, codec.set_name)
        what = f"list elements of {codec.set_name}"
        why = ""
        for _ in range(_READ_ATTEMPTS):
            dump = self._netlink.dump_once(number, nfnetlink.family_header(codec.family) + wanted, what)
            try:
                with contextlib.closing(dump) as buffers:
                    return collect(message.payload for buffer in buffers for message in answers_in(buffer))
            except DumpInterruptedError:
                why = "it changed"
            except RepeatedElementError:
                why = "some were there twice"
        raise DumpInterruptedError(f"{what}: {why} during each of {_READ_ATTEMPTS} attempts")

    def _dump(self, kind: MessageKind, family: Family, attributes: bytes, what: str) -> list[Message]:
        number = nfnetlink.message_type(Subsystem.NFTABLES, kind)
        return self._netlink.dump(number, nfnetlink.family_header(family) + attributes, what)

    def _get(self, kind: MessageKind, family: Family, attributes: bytes, what: str) -> list[Message]:
        number = nfnetlink.message_type(Subsystem.NFTABLES, kind)
        return self._netlink.request(number, nfnetlink.family_header(family) + attributes, what)


def _once(payloads: Iterable[bytes], decode: Callable[[bytes], Iterable[_T]], identity: Callable[[_T], Hashable]) -> list[_T]:
    found = [element for payload in payloads for element in decode(payload)]
    if len(set(map(identity, found))) != len(found):
        raise RepeatedElementError("an element is there twice")
    return found


def _identity(element: Element) -> Hashable:
    return element.key, element.key_end, element.flags


def _operation_error(told: Acknowledgement, part: Sequence[Operation], sequence: int, offset: int) -> OperationError:
    index = told.sequence - sequence - 1
    if not 0 <= index < len(part):
        return OperationError(index=None, error=told.error, text=told.text)
    element = element_at(part[index], told.offset) if told.offset is not None else None
    return OperationError(index=offset + index, error=told.error, operation=part[index], text=told.text, element=element)
