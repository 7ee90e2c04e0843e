"""Notices that somebody else changed what is ours: cheaply and soon where that can be told, else by suspicion."""

import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from kproxy_core.kernel.closing import Closing
from kproxy_core.kernel.ipset import IpSetSocket
from kproxy_core.kernel.iptables import IptablesPrograms, LegacyTables, TableInfo, Variant
from kproxy_core.kernel.nft_watch import ForeignChange, NftWatch
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.model.addresses import Family
from kproxy_core.plugin.backend import Drift
from kproxy_core.wire import nfnetlink
from kproxy_core.wire.ipset import IpSet, ListedSet
from kproxy_iptables.objects import CHAIN_PREFIX, SET_PREFIXES
from kproxy_iptables.plan import FIXED_SETS
from kproxy_iptables.scaffold import HOOKS
from kproxy_iptables.sets import CLIENTS_IN_A_BUCKET

_READ_SHARE: Final = 0.05
"""How much of the time may go into reading everything back because others keep changing their own rules."""
_GONE: Final = 0.5
"""A table that has lost this much has been flushed: no rules of others make up so much of it in between."""
_TABLE_NAMES: Final = {Family.IPV4: "ip", Family.IPV6: "ip6"}


class Watch(Closing):
    """Tells of others' changes to the tables of one variant."""

    def fileno(self) -> int:
        """A descriptor that becomes readable on a change, or -1."""
        return -1

    @abstractmethod
    def settle(self) -> None:
        """Forget all suspicion: the tables are about to be read."""

    @abstractmethod
    def writing(self, transactions: int, *, hooks: bool) -> AbstractContextManager[None]:
        """What happens inside is our own doing, so many transactions, with rules in built-in chains or without.

        Earlier suspicion stays.
        """

    @abstractmethod
    def suspects(self) -> bool:
        """Whether anybody else may have changed our rules since the tables were settled."""

    @abstractmethod
    def is_certain(self) -> bool:
        """Whether our rules have been damaged for certain; some may be all the same when this is false."""

    @property
    def culprit(self) -> str:
        """Who it was, where the kernel tells."""
        return ""


class NftTables(Watch):
    """By the kernel's announcement of each transaction."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._socket = NftSocket()
        self._watch = NftWatch([])
        self._families = tuple(families)
        self._suspects: tuple[ForeignChange, ...] = ()
        self._hooks: Mapping[tuple[Family, str, str], int] = {}

    def close(self) -> None:
        """Close the sockets."""
        self._watch.close()
        self._socket.close()

    def fileno(self) -> int:
        """Readable when anybody has changed nf_tables."""
        return self._watch.fileno()

    def settle(self) -> None:
        """Forget what was announced so far."""
        self._watch.drain()
        self._suspects = ()
        self._hooks = self._count_hooks()

    @contextmanager
    def writing(self, transactions: int, *, hooks: bool) -> Iterator[None]:
        """Not listen meanwhile, so that the kernel builds no message for each rule; then account for our own transactions."""
        self._watch.leave()
        first = self._watch.generation
        try:
            yield
        finally:
            self._watch.join((first + number) % (1 << 32) for number in range(1, transactions + 1))
            if hooks:
                self._hooks = self._count_hooks()

    def suspects(self) -> bool:
        """Every transaction of others is a suspicion."""
        self._suspects += self._watch.drain()
        return bool(self._suspects)

    def is_certain(self) -> bool:
        """Rules of ours are missing from built-in chains; a flush takes those away, too."""
        return self._count_hooks() != self._hooks

    @property
    def culprit(self) -> str:
        """The process of the last transaction that was not ours."""
        named = [f"{change.process} (pid {change.pid})" for change in self._suspects if change.process]
        return named[-1] if named else ""

    def _count_hooks(self) -> dict[tuple[Family, str, str], int]:
        """Count our rules in each built-in chain."""
        return {
            (family, table, chain): sum(
                CHAIN_PREFIX.encode() in rule.expressions
                for rule in self._socket.rules(nfnetlink.Family(family), table, chain)
                if rule.chain == chain and rule.table == table
            )
            for family in self._families
            for table, hooks in HOOKS.items()
            for chain in hooks
        }


class LegacySizes(Watch):
    """By the size of each table, which the kernel tells in microseconds; it announces nothing."""

    def __init__(self, families: Iterable[Family], programs: IptablesPrograms) -> None:
        self._tables = {family: LegacyTables(family) for family in families}
        self._programs = programs
        self._settled: Mapping[tuple[Family, str], TableInfo | None] = {}
        self._is_suspected = False

    def close(self) -> None:
        """Close the sockets."""
        for each in self._tables.values():
            each.close()

    def settle(self) -> None:
        """Remember the sizes."""
        self._settled = self._sizes()
        self._is_suspected = False

    @contextmanager
    def writing(self, transactions: int, *, hooks: bool) -> Iterator[None]:
        """Remember the new sizes, and whether the old ones were as they should be."""
        del transactions, hooks
        self._is_suspected = self.suspects()
        try:
            yield
        finally:
            self._settled = self._sizes()

    def suspects(self) -> bool:
        """A table has another size."""
        return self._is_suspected or self._sizes() != self._settled

    def is_certain(self) -> bool:
        """A table has lost much of what it had, or all."""
        for key, size in self._sizes().items():
            settled = self._settled.get(key)
            if settled is not None and (size is None or size.entries < settled.entries * _GONE):
                return True
        return False

    def _sizes(self) -> dict[tuple[Family, str], TableInfo | None]:
        # To ask about a table that is not there would make it.
        there = {family: self._programs.legacy_tables(family) for family in self._tables}
        return {
            (family, table): each.info(table) if table in there[family] else None
            for family, each in self._tables.items()
            for table in HOOKS
        }


class DriftWatch(Closing):
    """Puts together what is known of tables and sets, and how often it may be looked into.

    ``settle`` before everything is read and tell with ``has_read`` what that took; change sets inside ``changing_sets``, tables
    inside ``writing``.
    """

    def __init__(self, programs: IptablesPrograms, ipset: IpSetSocket, families: Iterable[Family]) -> None:
        families = tuple(families)
        self._tables: Watch = NftTables(families) if programs.variant is Variant.NFT else LegacySizes(families, programs)
        self._ipset = ipset
        self._prefixes = tuple(SET_PREFIXES[family] for family in families)
        self._sets: Mapping[str, object] = {}
        self._are_sets_suspected = False
        self._crowded: tuple[IpSet, ...] = ()
        self._read_at = 0.0
        self._read_cost = 0.0

    def close(self) -> None:
        """Close the sockets."""
        self._tables.close()

    def fileno(self) -> int:
        """A descriptor to wait on, or -1."""
        return self._tables.fileno()

    def settle(self) -> None:
        """Forget all suspicion: everything is about to be read."""
        self._tables.settle()
        self._sets = self._sizes_of_sets()
        self._are_sets_suspected = False

    def has_read(self, cost: float) -> None:
        """Everything was read, which took so many seconds."""
        self._read_at, self._read_cost = time.monotonic(), cost

    @contextmanager
    def changing_sets(self) -> Iterator[None]:
        """What happens to sets inside is our own doing; earlier suspicion stays."""
        self._are_sets_suspected = self._do_sets_differ()
        try:
            yield
        finally:
            self._sets = self._sizes_of_sets()

    def writing(self, transactions: int, *, hooks: bool) -> AbstractContextManager[None]:
        """What happens to tables inside is our own doing, see :meth:`Watch.writing`."""
        return self._tables.writing(transactions, hooks=hooks)

    def suspects(self) -> bool:
        """Whether anybody else may have changed anything since it was settled."""
        return self._do_sets_differ() or self._tables.suspects()

    def drift(self) -> Drift | None:
        """Say whether others changed what is ours; suspicions only as often as it takes a twentieth of the time to look."""
        if self._do_sets_differ():
            return Drift()
        if not self._tables.suspects():
            return None
        due = self._read_at + self._read_cost / _READ_SHARE
        if time.monotonic() < due and not self._tables.is_certain():
            return None
        return Drift(culprit=self._tables.culprit)

    def _do_sets_differ(self) -> bool:
        return self._are_sets_suspected or self._sizes_of_sets() != self._sets

    def take_crowded(self) -> tuple[IpSet, ...]:
        """Sets of clients that need more buckets, as seen last."""
        crowded, self._crowded = self._crowded, ()
        return crowded

    def _sizes_of_sets(self) -> dict[str, object]:
        """Our sets, each with the number of its elements; of clients the kernel adds and forgets them."""
        found = [each for each in self._ipset.sets() if each.name.startswith(self._prefixes)]
        self._crowded = tuple(each.definition for each in found if each.definition is not None and _is_crowded(each))
        return {each.name: _size(each) for each in found}


def _size(found: ListedSet) -> object:
    return found.elements if found.name in FIXED_SETS else None


def _is_crowded(found: ListedSet) -> bool:
    buckets = found.definition.hash_size if found.definition is not None else 0
    return found.name not in FIXED_SETS and found.elements > buckets * CLIENTS_IN_A_BUCKET
