"""Others interfere with a daemon's tables where the kernel lets nobody hold them: it is told, and repairs."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kproxy_core.testing.conformance.lasting import all_alive, held
from kproxy_core.testing.lab import Answer, UdpFlow

from .daemon import Daemon, running
from .world import SURE, World, see_everything

pytestmark = pytest.mark.kernel

Nft = Callable[..., str]


@pytest.fixture
def daemon(world: World, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that cannot hold its tables."""
    with running(world, tmp_path, "older_kernel") as started:
        yield started


def test_d26_a_flush_is_repaired_by_notification_alone_and_the_culprit_named(world: World, tmp_path: Path, nft: Nft) -> None:
    """A daemon that never looks for drift by itself, nor checks within a test's patience, repairs it: the kernel has told it."""
    pair = world.cluster.cluster(201)
    with running(world, tmp_path, "older_kernel", "no_polling") as daemon, held(world, 201) as connections, ExitStack() as stack:
        flows = [
            stack.enter_context(UdpFlow(world.host(origin), address, 80, timeout=SURE))
            for origin in ("a2", "node", "outside")
            for address in (pair.ipv4, pair.ipv6)
        ]
        chosen = [flow.exchange("who") for flow in flows]
        nft("flush", "ruleset")
        daemon.wait(lambda: daemon.status().get("drift_count") == 1)
        daemon.wait_for_sync()
        warnings = [line for line in daemon.log() if line["level"] == "warning" and "culprit" in line]
        assert [line["culprit"].split(" ")[0] for line in warnings] == ["nft"]
        see_everything(world)
        assert all_alive(connections)
        for flow, before in zip(flows, chosen, strict=True):
            after = flow.exchange("who")
            assert isinstance(before, Answer)
            assert isinstance(after, Answer)
            assert after.server == before.server


@pytest.mark.parametrize(
    "deed",
    [
        "insert rule ip kproxy-nftables prerouting drop",
        "insert rule ip6 kproxy-nftables output meta l4proto udp drop",
        "delete table ip6 kproxy-nftables",
        "flush chain ip kproxy-nftables output",
    ],
)
def test_smaller_deeds_are_noticed_too(world: World, daemon: Daemon, nft: Nft, deed: str) -> None:
    nft(*deed.split())
    daemon.wait(lambda: daemon.status().get("drift_count") == 1)
    daemon.wait_for_sync()
    see_everything(world)


def test_others_may_work_on_their_own_tables_all_the_time(world: World, daemon: Daemon, nft: Nft) -> None:
    for number in range(20):
        nft("add", "table", "inet", f"theirs{number}")
    nft("insert", "rule", "ip", "kproxy-nftables", "prerouting", "drop")
    daemon.wait(lambda: daemon.status().get("drift_count") == 1)
    see_everything(world)
    for number in range(20):
        nft("delete", "table", "inet", f"theirs{number}")
