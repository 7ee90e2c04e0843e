"""Foreign commits to nf_tables are noticed, our own are not, whether subscribed or not."""

import os
import select
import socket
import struct

import pytest

from kproxy_core.kernel import namespaces
from kproxy_core.kernel.nft_watch import ForeignChange, NftWatch
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.wire import nftables as nft_wire
from kproxy_core.wire.nfnetlink import Group
from kproxy_core.wire.nftables import DataType, ElementCodec, Family, Set, Table

from .conftest import Nft

pytestmark = pytest.mark.kernel

TABLE = Table(family=Family.IPV4, name="kproxy")
SET = Set(family=Family.IPV4, table="kproxy", name="s", key_type=DataType.IPV4_ADDR, key_length=4)
CODEC = ElementCodec.of(SET)
SCAFFOLD = [nft_wire.add(TABLE), nft_wire.add(SET)]


def readable(watch: NftWatch) -> bool:
    return bool(select.select([watch], [], [], 0)[0])


def other_commit(namespace: int, name: str = "other") -> int:
    """A commit by another socket: its generation."""
    with NftSocket(namespace=namespace) as other:
        (made,) = other.commit([nft_wire.add(Table(family=Family.IPV4, name=name))]).generations
    assert made is not None
    return made


def test_own_commits_are_not_foreign(namespace: int, nftables: NftSocket) -> None:
    with NftWatch([nftables.port], namespace=namespace) as watch:
        assert not readable(watch)
        assert nftables.commit(SCAFFOLD).ok
        assert nftables.commit(CODEC.add_keys([b"\1\1\1\1"])).ok
        assert watch.drain() == ()
        assert watch.generation == nftables.generation()


def test_a_foreign_commit_is_noticed_with_its_author(namespace: int, nftables: NftSocket) -> None:
    with NftWatch([nftables.port], namespace=namespace) as watch, NftSocket(namespace=namespace) as other:
        assert nftables.commit(SCAFFOLD).ok
        (made,) = other.commit([nft_wire.delete(TABLE)]).generations
        assert readable(watch)
        (change,) = watch.drain()
        assert (change.generation, change.port) == (made, other.port)
        assert change.pid is not None
        assert change.process
        assert not readable(watch)
        assert watch.drain() == ()


def test_a_flush_by_nft_is_noticed_and_named(namespace: int, nftables: NftSocket, nft: Nft) -> None:
    assert nftables.commit(SCAFFOLD).ok
    with NftWatch([nftables.port], namespace=namespace) as watch:
        nft("flush", "ruleset")
        (change,) = watch.drain()
        assert change.process == "nft"
        assert nftables.tables() == ()


def test_what_happened_before_is_not_told(namespace: int, nftables: NftSocket) -> None:
    other_commit(namespace)
    with NftWatch([nftables.port], namespace=namespace) as watch:
        assert watch.drain() == ()


def test_other_namespaces_are_not_watched(namespace: int, nftables: NftSocket) -> None:
    elsewhere = namespaces.create()
    with NftWatch([nftables.port], namespace=namespace) as watch:
        other_commit(elsewhere)
        assert watch.drain() == ()
    os.close(elsewhere)


def test_the_changes_themselves_do_not_reach_the_watch(namespace: int, nftables: NftSocket) -> None:
    """A thousand elements are a thousand notifications, of which the filter lets none in."""
    with NftWatch([], namespace=namespace) as watch:
        assert nftables.commit([*SCAFFOLD, *CODEC.add_keys([struct.pack("!I", n) for n in range(1000)])]).ok
        changes = watch.drain()
    assert [change.port for change in changes] == [nftables.port]


def test_an_own_commit_while_unsubscribed_is_not_foreign(namespace: int, nftables: NftSocket) -> None:
    with NftWatch([nftables.port], namespace=namespace) as watch:
        watch.leave()
        first = nftables.commit(SCAFFOLD)
        second = nftables.commit(CODEC.add_keys([b"\1\1\1\1"]))
        assert not readable(watch)
        watch.join([*first.generations, *second.generations])
        assert watch.drain() == ()
        other_commit(namespace)
        assert len(watch.drain()) == 1


@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_a_foreign_commit_while_unsubscribed_is_noticed(when: str, namespace: int, nftables: NftSocket) -> None:
    generations: list[int | None] = []
    with NftWatch([nftables.port], namespace=namespace) as watch:
        watch.leave()
        if when == "before":
            other_commit(namespace)
        generations += nftables.commit(SCAFFOLD).generations
        if when == "between":
            other_commit(namespace)
        generations += nftables.commit(CODEC.add_keys([b"\1\1\1\1"])).generations
        if when == "after":
            other_commit(namespace)
        watch.join(generations)
        assert watch.drain() == (ForeignChange(generation=nftables.generation()),)
        assert watch.drain() == ()


def test_a_foreign_commit_just_before_unsubscribing_is_noticed_with_its_author(namespace: int, nftables: NftSocket) -> None:
    with NftWatch([nftables.port], namespace=namespace) as watch:
        made = other_commit(namespace)
        watch.leave()
        watch.join(nftables.commit(SCAFFOLD).generations)
        (change,) = watch.drain()
        assert change.generation == made
        assert change.process


def test_a_commit_of_ours_that_changed_nothing_hides_no_foreign_one(namespace: int, nftables: NftSocket) -> None:
    assert nftables.commit([nft_wire.add(TABLE)]).ok
    with NftWatch([nftables.port], namespace=namespace) as watch:
        watch.leave()
        other_commit(namespace)
        result = nftables.commit([nft_wire.add(TABLE)])
        assert result.generations == (None,)
        watch.join(result.generations)
        assert len(watch.drain()) == 1


def test_an_overrun_hides_no_foreign_commit(namespace: int, nftables: NftSocket) -> None:
    """More announcements than the receive buffer holds: what is lost is found by number."""
    with NftWatch([nftables.port], namespace=namespace) as watch:
        with socket.socket(fileno=os.dup(watch.fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        with NftSocket(namespace=namespace) as other:
            for number in range(40):
                assert other.commit([nft_wire.add(Table(family=Family.IPV4, name=f"t{number}"))]).ok
        changes = watch.drain()
        assert 0 < len(changes) < 40
        assert watch.generation == nftables.generation()
        assert watch.drain() == ()
        other_commit(namespace, "more")
        assert len(watch.drain()) == 1


def test_a_gap_between_announcements_is_a_foreign_commit(namespace: int, nftables: NftSocket) -> None:
    """Nothing was announced, yet the next announcement is not of the next generation."""
    with NftWatch([nftables.port], namespace=namespace) as watch:
        watch._netlink.leave(Group.NFTABLES)
        made = other_commit(namespace)
        watch._netlink.join(Group.NFTABLES)
        assert watch.drain() == ()
        assert nftables.commit(SCAFFOLD).ok
        assert watch.drain() == (ForeignChange(generation=made),)


def test_no_socket_is_needed_to_watch_everybody(namespace: int) -> None:
    with NftWatch([], namespace=namespace) as watch:
        other_commit(namespace)
        assert len(watch.drain()) == 1
