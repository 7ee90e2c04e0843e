"""Listings are complete and consistent or fail, and a lost answer is never taken for a good one."""

import errno
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable

import pytest

from kproxy_core.kernel import namespaces
from kproxy_core.kernel.errors import (
    DumpInterruptedError,
    NetlinkError,
    NotFoundError,
    OutcomeUnknownError,
    OverrunError,
)
from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.wire import netlink, nfnetlink
from kproxy_core.wire import nftables as nft_wire
from kproxy_core.wire.errors import MalformedMessageError
from kproxy_core.wire.netlink import Protocol
from kproxy_core.wire.nfnetlink import Group, Subsystem
from kproxy_core.wire.nftables import Chain, DataType, ElementCodec, Family, MessageKind, Set, SetFlag, Table

pytestmark = pytest.mark.kernel

TABLE = Table(family=Family.IPV4, name="kproxy")
SET = Set(family=Family.IPV4, table="kproxy", name="s", key_type=DataType.IPV4_ADDR, key_length=4)
CODEC = ElementCodec.of(SET)
KEYS = [struct.pack("!I", number) for number in range(5000)]


def interrupt(nftables: NftSocket, monkeypatch: pytest.MonkeyPatch, act: Callable[[], bool], times: int) -> None:
    """Do something after the first buffer of each of so many listings."""
    inner = nftables._netlink
    honest = inner._awaited
    sequences: set[int] = set()

    def awaited(what: str) -> bytes:
        buffer = honest(what)
        sequence = next(netlink.iter_messages(buffer)).sequence
        if what.startswith("list") and sequence not in sequences and len(sequences) < times:
            sequences.add(sequence)
            assert act()
        return buffer

    monkeypatch.setattr(inner, "_awaited", awaited)


def test_a_listing_of_elements_that_change_meanwhile_is_made_again(
    namespace: int, nftables: NftSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel does not mark such a listing, and it lacks elements that nobody touched."""
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(SET), *CODEC.add_keys(KEYS)]).ok
    with NftSocket(namespace=namespace) as other:
        interrupt(nftables, monkeypatch, lambda: other.commit(CODEC.delete(KEYS[4000:])).ok, times=1)
        found, _ = nftables.consistently(lambda: nftables.elements(CODEC))
        assert sorted(key for key, _ in found) == KEYS[:4000]


def test_a_listing_of_objects_that_change_meanwhile_is_made_again(
    namespace: int, nftables: NftSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    chains = [Chain(family=Family.IPV4, table="kproxy", name=f"{number:0200}") for number in range(1000)]
    assert nftables.commit([nft_wire.add(TABLE), *map(nft_wire.add, chains)]).ok
    with NftSocket(namespace=namespace) as other:
        interrupt(nftables, monkeypatch, lambda: other.commit(list(map(nft_wire.delete, chains[:500]))).ok, times=1)
        assert nftables.chains(Family.IPV4, "kproxy") == tuple(chains[500:])


def test_a_listing_that_always_changes_is_an_error(namespace: int, nftables: NftSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    chains = [Chain(family=Family.IPV4, table="kproxy", name=f"{number:0200}") for number in range(1000)]
    elements = CODEC.add_keys(KEYS)
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(SET), *elements, *map(nft_wire.add, chains)]).ok
    keys = iter(KEYS)
    with NftSocket(namespace=namespace) as other:
        interrupt(nftables, monkeypatch, lambda: other.commit(CODEC.delete([next(keys)])).ok, times=1000)
        with pytest.raises(DumpInterruptedError, match="list elements of s"):
            nftables.consistently(lambda: nftables.elements(CODEC), "list elements of s")
        with pytest.raises(DumpInterruptedError, match="list chains"):
            nftables.chains(Family.IPV4, "kproxy")
    monkeypatch.undo()
    assert len(nftables.elements(CODEC)) == len(list(keys))


def test_a_listing_that_is_left_off_does_not_stand_in_the_way_of_the_next(namespace: int, nftables: NftSocket) -> None:
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(SET), *CODEC.add_keys(KEYS)]).ok

    def first(elements: Iterable[tuple[bytes, bytes]]) -> bytes:
        return next(iter(elements))[0]

    def none(elements: Iterable[tuple[bytes, bytes]]) -> bytes:
        next(iter(elements))
        raise MalformedMessageError("not as it should be")

    assert nftables.collected(CODEC, first) in KEYS
    with pytest.raises(MalformedMessageError) as caught:
        nftables.collected(CODEC, none)
    # While the error is kept, so is all that led to it.
    assert caught.value
    assert nftables.tables() == (TABLE,)
    assert nftables.collected(CODEC, lambda elements: sorted(key for key, _ in elements)) == KEYS


def test_an_answer_to_an_abandoned_request_is_passed_over(namespace: int, nftables: NftSocket) -> None:
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(SET), *CODEC.add_keys(KEYS[:10])]).ok
    kind = nfnetlink.message_type(Subsystem.NFTABLES, MessageKind.GETGEN)
    flags = netlink.MessageFlag.REQUEST | netlink.MessageFlag.ACK
    stale = netlink.message(kind, flags, 999_999, nfnetlink.family_header(0))
    inner = nftables._netlink
    inner.send(stale, "ask and forget")
    assert nftables.tables() == (TABLE,)
    inner.send(stale, "ask and forget")
    with NftSocket(namespace=namespace) as other:
        (made,) = other.commit(CODEC.delete(KEYS[1:2])).generations
    assert nftables.generation() == made
    inner.send(stale, "ask and forget")
    assert nftables.commit(CODEC.delete(KEYS[:1])).ok
    inner.send(stale, "ask and forget")
    assert len(nftables.elements(CODEC)) == 8


def shrink(descriptor: int) -> None:
    """Make a receive buffer as small as the kernel allows."""
    with socket.socket(fileno=os.dup(descriptor)) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)


def test_lost_answers_are_not_taken_for_success(namespace: int, nftables: NftSocket) -> None:
    """The echo of the first operation leaves no room for the acknowledgement."""
    with NftSocket(namespace=namespace) as other:
        assert other.commit([nft_wire.add(TABLE), nft_wire.add(SET)]).ok
        shrink(other._netlink.fileno())
        with pytest.raises((OutcomeUnknownError, OverrunError)):
            other.commit(CODEC.add_keys(KEYS[:150]))
    assert len(nftables.elements(CODEC)) == 150


def test_no_answer_is_not_taken_for_success(namespace: int, nftables: NftSocket) -> None:
    with NftSocket(namespace=namespace) as other:
        other._netlink.attach_filter(struct.pack("=HBBI", 6, 0, 0, 0))
        with pytest.raises(OutcomeUnknownError):
            other.commit([nft_wire.add(TABLE)])
    assert nftables.tables() == (TABLE,)


def test_notifications_beyond_the_buffer_are_an_overrun(namespace: int, nftables: NftSocket) -> None:
    with NetlinkSocket(Protocol.NETFILTER, namespace=namespace) as listener:
        listener.join(Group.NFTABLES)
        shrink(listener.fileno())
        assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(SET), *CODEC.add_keys(KEYS)]).ok
        assert select.select([listener], [], [], 5)[0]
        with pytest.raises(OverrunError):
            listener.received()
        listener.leave(Group.NFTABLES)


def test_errors_have_the_type_of_their_cause(namespace: int) -> None:
    with NetlinkSocket(Protocol.NETFILTER, namespace=namespace) as probe:
        kind = nfnetlink.message_type(Subsystem.NFTABLES, MessageKind.GETTABLE)
        missing = nfnetlink.family_header(Family.IPV4) + netlink.string(1, "nosuch")
        with pytest.raises(NotFoundError, match=r"look: No such file or directory \(ENOENT\)") as caught:
            probe.request(kind, missing, "look")
        assert (caught.value.error, caught.value.what) == (errno.ENOENT, "look")
        with pytest.raises(NetlinkError, match="look"):
            probe.request(nfnetlink.message_type(Subsystem.NFTABLES, 99), missing, "look")
        with pytest.raises(NetlinkError, match="ADD_MEMBERSHIP 9999"):
            probe.join(9999)


UNPRIVILEGED = """
import os
from kproxy_core.kernel.errors import PermissionDeniedError
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.wire.nftables import Family, Table, add
os.setgid(65534)
os.setuid(65534)
with NftSocket() as nftables:
    try:
        nftables.tables()
    except PermissionDeniedError as error:
        print(error)
    (error,) = nftables.commit([add(Table(family=Family.IPV4, name="t"))]).errors
    print(error.index, error.error)
"""


def test_without_privilege_permission_is_denied(namespace: int, nobody: int) -> None:
    with namespaces.entered(namespace):
        done = subprocess.run([sys.executable, "-c", UNPRIVILEGED], capture_output=True, text=True, check=False)
    assert done.stdout == "list tables: Operation not permitted (EPERM)\nNone 1\n", done.stderr


def test_a_port_id_is_unique(namespace: int) -> None:
    with NftSocket(namespace=namespace) as first, NftSocket(namespace=namespace) as second:
        assert first.port != second.port


def test_large_answers_fit(nftables: NftSocket) -> None:
    """A set of the largest possible elements is listed in many buffers."""
    wide = Set(
        family=Family.IPV4,
        table="kproxy",
        name="w",
        key_type=DataType.INTEGER,
        key_length=64,
        data_type=DataType.INTEGER,
        data_length=64,
        flags=SetFlag.MAP,
    )
    codec = ElementCodec.of(wide)
    pairs = [(struct.pack("!I60x", number), struct.pack("!60xI", number)) for number in range(3000)]
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(wide), *codec.add(pairs)]).ok
    assert sorted(nftables.elements(codec)) == pairs
