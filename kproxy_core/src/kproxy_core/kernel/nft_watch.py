"""Who changes nf_tables: our own commits told from those of others, without paying for every element."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from attrs import frozen

from kproxy_core.kernel.closing import Closing
from kproxy_core.kernel.errors import OverrunError
from kproxy_core.kernel.namespaces import Namespace
from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.wire import nfnetlink
from kproxy_core.wire.netlink import Protocol
from kproxy_core.wire.nfnetlink import Family, Group, Subsystem
from kproxy_core.wire.nft_constants import MessageKind
from kproxy_core.wire.nft_generation import Generation, generation_filter

_GENERATIONS: Final = 1 << 32


@frozen(kw_only=True)
class ForeignChange:
    """A commit that is not ours; port, pid and process are None when it was noticed only by its number.

    For pid see wire.nft_generation.Generation.
    """

    generation: int
    port: int | None = None
    pid: int | None = None
    process: str | None = None


class NftWatch(Closing):
    """Notices foreign commits to nf_tables of one network namespace; for one thread at a time.

    own_ports: port ids of our committing sockets (NftSocket.port). Every generation from the opening on is
    accounted for: announced by one of these ports, named in join(), or foreign. So nothing foreign is missed, not even
    while unsubscribed or after an overrun; at worst a commit of our own is taken for foreign.
    """

    def __init__(self, own_ports: Collection[int], *, namespace: Namespace | None = None) -> None:
        self._own_ports = frozenset(own_ports)
        self._netlink = NetlinkSocket(Protocol.NETFILTER, namespace=namespace)
        self._netlink.attach_filter(generation_filter())
        self._netlink.join(Group.NFTABLES)
        # A question on the subscribed socket could not tell its answer from announcements.
        self._asker = NetlinkSocket(Protocol.NETFILTER, namespace=namespace)
        self._pending: list[ForeignChange] = []
        self._own: set[int] = set()
        self._last = self._ask()

    def fileno(self) -> int:
        """Readable when there is something to drain."""
        return self._netlink.fileno()

    def close(self) -> None:
        """Close it."""
        self._netlink.close()
        self._asker.close()

    @property
    def generation(self) -> int:
        """The newest generation accounted for."""
        return self._last

    def drain(self) -> tuple[ForeignChange, ...]:
        """The foreign commits since the last call, without waiting."""
        self._collect()
        found, self._pending = tuple(self._pending), []
        return found

    def leave(self) -> None:
        """Unsubscribe before a large commit of our own: with a subscriber the kernel builds a message per element."""
        self._netlink.leave(Group.NFTABLES)
        self._collect()

    def join(self, own: Iterable[int | None] = ()) -> None:
        """Subscribe again; `own` are the generations our commits made meanwhile (CommitResult.generations).

        Others made meanwhile are foreign changes of the next drain().
        """
        self._netlink.join(Group.NFTABLES)
        self._own.update(generation for generation in own if generation is not None)
        self._collect()
        self._catch_up()
        self._own.clear()

    def _collect(self) -> None:
        try:
            messages = self._netlink.received()
        except OverrunError:
            self._catch_up()
            return
        for message in messages:
            if message.type == Generation.MESSAGE_TYPE:
                self._account(Generation.decode(message))

    def _account(self, made: Generation) -> None:
        ahead = (made.id - self._last) % _GENERATIONS
        if ahead == 0 or ahead > _GENERATIONS // 2:
            return  # accounted for already, when it was noticed by number
        self._skip_to(made.id - 1)
        if made.port not in self._own_ports and made.id not in self._own:
            self._pending.append(ForeignChange(generation=made.id, port=made.port, pid=made.pid, process=made.process))
        self._last = made.id

    def _catch_up(self) -> None:
        """Account for generations that nobody announced to us."""
        self._skip_to(self._ask())

    def _skip_to(self, generation: int) -> None:
        count = (generation - self._last) % _GENERATIONS
        if count > _GENERATIONS // 2:
            return
        unknown = count - len([own for own in self._own if 0 < (own - self._last) % _GENERATIONS <= count])
        if unknown:
            self._pending.append(ForeignChange(generation=generation))
        self._last = generation

    def _ask(self) -> int:
        kind = nfnetlink.message_type(Subsystem.NFTABLES, MessageKind.GETGEN)
        answers = self._asker.request(kind, nfnetlink.family_header(Family.UNSPEC), "read the nf_tables generation")
        return Generation.decode(answers[0]).id
