"""Tables that the mode holds (Linux 6.9 and later): nobody else removes or changes them, and they outlive their holder."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.plugin.errors import ApplyError
from kproxy_core.testing.conformance.lasting import all_alive, held
from kproxy_core.testing.lab import Answer, UdpFlow
from kproxy_core.testing.node import NodeUnderTest
from kproxy_core.wire.nfnetlink import Family
from kproxy_core.wire.nft_constants import TableFlag
from kproxy_core.wire.nft_objects import Table
from kproxy_core.wire.nft_operations import add, delete, flush_chain
from kproxy_nftables import trials
from kproxy_nftables.backend import NftablesBackend
from kproxy_nftables.objects import HELD, TABLE

from .altered import NO_FLAGS
from .busy import busy
from .daemon import Daemon, running
from .world import EVERYWHERE, SURE, TCP, World, everything, see_everything

pytestmark = pytest.mark.kernel

Nft = Callable[..., str]


@pytest.fixture(autouse=True)
def _a_kernel_with_them(world: World) -> None:
    if not world.node.backend.table_flags:
        pytest.skip("this kernel lets nobody hold a table for good (NFT_TABLE_F_PERSIST, Linux 6.9)")


@pytest.fixture
def stranger(world: World) -> Iterator[NftSocket]:
    """Another process' socket."""
    with world.lab.node.enter():
        socket = NftSocket()
    with socket:
        yield socket


@pytest.fixture
def refused(world: World) -> Callable[..., str]:
    """Run nft in the node: what it complains of; it must fail."""

    def run(*arguments: str) -> str:
        done = world.lab.node.run(["nft", *arguments], check=False)
        assert done.returncode != 0
        return done.stderr

    return run


def holders(stranger: NftSocket) -> dict[Family, tuple[TableFlag, int | None]]:
    """Our tables' flags, and who holds them."""
    return {each.family: (TableFlag(each.flags), each.owner) for each in stranger.tables() if each.name == TABLE}


def all_held(stranger: NftSocket) -> bool:
    """Whether both tables have a holder, the same."""
    found = holders(stranger).values()
    return len(found) == 2 and {flags for flags, _ in found} == {HELD} and len({owner for _, owner in found}) == 1


def all_orphans(stranger: NftSocket) -> bool:
    """Whether both tables are there without a holder."""
    return list(holders(stranger).values()) == [(TableFlag.PERSIST, None)] * 2


# -- others


def test_d25_d26_a_flush_of_all_rules_breaks_no_busy_connection(world: World, nft: Nft, stranger: NftSocket) -> None:
    world.node.set(*everything(world))
    nft("add", "table", "inet", "theirs")
    with ExitStack() as stack:
        connections = busy(stack, world, 201)
        before = stranger.generation()
        nft("flush", "ruleset")
        assert stranger.generation() == before + 1
        connections.go_on(5)
        assert not connections.broken
    assert [table.name for table in stranger.tables()] == [TABLE, TABLE]
    assert stranger.generation() == before + 1, "there was nothing to repair"
    see_everything(world)


@pytest.mark.parametrize(
    "deed",
    [
        "delete table ip kproxy-nftables",
        "flush table ip6 kproxy-nftables",
        "insert rule ip kproxy-nftables prerouting drop",
        "flush chain ip kproxy-nftables output",
        "add element ip kproxy-nftables cluster-ips { 192.0.2.77 }",
        "add counter ip kproxy-nftables theirs",
        "add chain ip kproxy-nftables theirs { type filter hook forward priority 0; policy drop; }",
    ],
)
def test_nobody_else_changes_them(world: World, refused: Callable[..., str], deed: str) -> None:
    assert "Operation not permitted" in refused(*deed.split())


def test_what_others_do_to_their_own_tables_has_nothing_read_back(world: World, nft: Nft) -> None:
    world.node.set(*everything(world))
    play = world.node.check() and world.node.play
    assert play
    play.transcript.clear()
    for deed in ("add table inet theirs", "add chain inet theirs c", "delete table inet theirs"):
        nft(*deed.split())
        play.drift()
    assert play.transcript == []
    nft("flush", "ruleset")
    assert play.drift().transcript == []


def test_nft_lists_them_with_and_without_a_holder(world: World, nft: Nft) -> None:
    world.node.set(*everything(world))

    def listed() -> list[str]:
        found = json.loads(nft("-j", "list", "ruleset"))["nftables"]
        assert all(f"table {family} {TABLE}" in nft("list", "ruleset") for family in ("ip", "ip6"))
        return [min(each) for each in found]

    with_holder = listed()
    world.node.close()
    assert listed() == with_holder
    world.node.restart()


# -- from process to process


def test_they_outlive_their_holder_and_the_next_one_takes_them_over(world: World, stranger: NftSocket) -> None:
    world.node.set(*everything(world))
    assert all_held(stranger)
    with held(world, 201) as connections:
        world.node.close()
        assert all_orphans(stranger)
        see_everything(world)
        before = stranger.generation()
        report = world.node.restart()
        assert report is not None
        assert report.ok
        assert report.operations == 2, "each table is taken over, and nothing else done"
        assert stranger.generation() == before + 1
        assert all_held(stranger)
        assert all_alive(connections)
    again = world.node.check()
    assert again is not None
    assert again.operations == 0


def test_a_flush_between_two_processes_is_repaired_by_the_second(world: World, nft: Nft, stranger: NftSocket) -> None:
    world.node.set(*everything(world))
    world.node.close()
    nft("flush", "ruleset")
    assert not holders(stranger)
    world.node.restart()
    assert all_held(stranger)
    see_everything(world)


def test_a_flush_just_before_they_are_taken_over_is_repaired(world: World, nft: Nft, stranger: NftSocket) -> None:
    """What takes a table over would make an empty one where there is none."""
    world.node.set(*everything(world))
    world.node.close()
    with NodeUnderTest(world.lab.node, NftablesBackend(), world.defaults) as node:
        node.play.hold()
        node.set(*everything(world))
        nft("flush", "ruleset")
        node.play.release()
        node.notice()
        assert not node.difference()
        see_everything(world)
    world.node.restart()


@pytest.mark.parametrize("flags", [TableFlag(0), TableFlag.DORMANT, TableFlag.PERSIST, TableFlag.PERSIST | TableFlag.DORMANT])
def test_tables_of_other_flags_become_held_ones(world: World, stranger: NftSocket, flags: TableFlag) -> None:
    """Made by a version that did not hold tables, on an older kernel, or touched by somebody while nobody held them."""
    world.node.dataplane.cleanup()
    assert stranger.commit([add(Table(family=family, name=TABLE, flags=flags)) for family in (Family.IPV4, Family.IPV6)]).ok
    report = world.node.restart(cluster=everything(world))
    assert report is not None
    assert report.ok
    assert all_held(stranger)
    assert not world.node.difference()
    see_everything(world)


def test_d35_tables_without_flags_are_made_anew_in_one_transaction_under_traffic(
    world: World, stranger: NftSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node.dataplane.cleanup()
    with monkeypatch.context() as older:
        older.setattr(trials, "HELD", NO_FLAGS)
        world.node.restart(cluster=everything(world))
    assert list(holders(stranger).values()) == [(TableFlag(0), None)] * 2
    with ExitStack() as stack:
        connections = busy(stack, world, 201)
        before = stranger.generation()
        report = world.node.restart()
        assert report is not None
        assert report.ok
        assert stranger.generation() == before + 1
        connections.go_on()
        assert not connections.broken
    assert all_held(stranger)
    see_everything(world)


def test_a_kernel_that_loses_the_feature_is_served_as_before(
    world: World, stranger: NftSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a version of the mode that does without it."""
    world.node.set(*everything(world))
    with monkeypatch.context() as older:
        older.setattr(trials, "HELD", NO_FLAGS)
        world.node.restart()
        assert list(holders(stranger).values()) == [(TableFlag(0), None)] * 2
        see_everything(world)
        world.node.close()
    world.node.restart()


# -- cleanup


def test_o5_cleanup_by_another_process_waits_for_the_end_of_the_holder(world: World, stranger: NftSocket) -> None:
    world.node.set(*everything(world))
    with world.lab.node.enter():
        other = NftablesBackend().open()
    with other:
        assert len(other.leftovers().lines) == 2
        with pytest.raises(ApplyError, match="held by a process that still runs"):
            other.cleanup()
        assert all_held(stranger)
        world.node.close()
        assert len(other.cleanup().lines) == 2
        assert not holders(stranger)
    world.node.restart()


def test_an_operator_removes_what_a_dead_daemon_left(world: World, nft: Nft, stranger: NftSocket) -> None:
    world.node.set(*everything(world))
    world.node.close()
    for family in ("ip", "ip6"):
        nft("delete", "table", family, TABLE)
    assert not holders(stranger)
    world.node.restart()


# -- the daemon


@pytest.fixture
def daemon(world: World, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon, started with a cluster of everything."""
    with running(world, tmp_path) as started:
        yield started


def test_a_daemon_is_not_impressed_by_a_flush(world: World, daemon: Daemon, nft: Nft, stranger: NftSocket) -> None:
    pair = world.cluster.cluster(201)
    with held(world, 201) as connections, UdpFlow(world.host("a2"), pair.ipv6, 80, timeout=SURE) as flow:
        first = flow.exchange("who")
        nft("add", "table", "inet", "theirs")
        generation = stranger.generation()
        nft("flush", "ruleset")
        see_everything(world)
        assert all_alive(connections)
        after = flow.exchange("who")
        assert isinstance(first, Answer)
        assert isinstance(after, Answer)
        assert after.server == first.server
    assert stranger.generation() == generation + 1, "there was nothing to repair"
    assert daemon.status()["drift_count"] == 0


def test_kill_9_leaves_them_and_the_next_daemon_is_not_impressed_either(
    world: World, daemon: Daemon, nft: Nft, stranger: NftSocket
) -> None:
    daemon.end(signal.SIGKILL)
    assert all_orphans(stranger)
    see_everything(world)
    daemon.start()
    daemon.wait_for_sync()
    assert all_held(stranger)
    nft("flush", "ruleset")
    see_everything(world)
    assert daemon.status()["drift_count"] == 0


def test_a_waiting_daemon_takes_them_over(world: World, daemon: Daemon, stranger: NftSocket) -> None:
    first = daemon.process
    assert first is not None
    (before,) = {owner for _, owner in holders(stranger).values()}
    daemon.start()
    daemon.wait(lambda: daemon.logged("waiting until it ends"))
    first.kill()
    first.wait()
    daemon.wait_for_sync()
    assert all_held(stranger)
    assert {owner for _, owner in holders(stranger).values()} != {before}
    world.see(world.ask(EVERYWHERE, world.cluster.cluster(201), protocols=TCP).answered("a1 b1"))


def test_a_daemon_replaces_one_of_a_version_that_held_nothing(world: World, tmp_path: Path, stranger: NftSocket) -> None:
    with running(world, tmp_path, "older_kernel") as older, ExitStack() as stack:
        connections = busy(stack, world, 201)
        older.end()
        newer = Daemon(world.lab, tmp_path)
        newer.start()
        try:
            newer.wait_for_sync()
            connections.go_on()
            assert not connections.broken
            assert all_held(stranger)
        finally:
            newer.end(signal.SIGKILL)


def test_a_table_that_lost_a_base_chain_while_nobody_held_it_is_taken_over_and_repaired(
    world: World, stranger: NftSocket
) -> None:
    """The kernel takes no base chain into a table whose flags the same transaction changes."""
    world.node.set(*everything(world))
    world.node.close()
    (chain,) = (each for each in stranger.chains(Family.IPV4, TABLE) if each.name == "prerouting")
    assert stranger.commit([flush_chain(chain), delete(chain)]).ok
    report = world.node.restart()
    assert report is not None
    assert report.ok, report
    assert all_held(stranger)
    assert not world.node.difference()
    see_everything(world)
