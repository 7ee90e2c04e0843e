"""The real daemon, a process of its own in the node: real packets while it works, is killed, starts again, is interfered with."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy_core.kernel import writer_lock
from kproxy_core.model.changes import WatchedObject
from kproxy_core.testing.lab import Answer, Lab, UdpFlow, ask, hold
from kproxy_core.testing.manifests import manifests

from .test_lasting import clients_of
from .world import EVERYWHERE, SURE, TCP, World, everything, see_everything

pytestmark = pytest.mark.kernel

PATIENCE = 20.0
"""Seconds; less than the period of the daemon's own checks, so that what is mended sooner was noticed."""
SYNC_PERIOD = "60s"


class Daemon:
    """A daemon that follows a folder of manifests."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab = lab
        self._folder = folder
        self._made = 0
        self.process: subprocess.Popen[str] | None = None
        self._log = folder / "log.json"

    def start(self, *more: str) -> None:
        """Start one, or one more, with more options."""
        command = [sys.executable, "-m", "kproxy_core.cli.main", "run", "--source", f"manifests:{self._folder}"]
        command += ["--mode", "nftables", "--node-name", "node", "--sync-period", SYNC_PERIOD, "--log-format", "json", *more]
        command += ["--cluster-cidr", f"{self._lab.plan.pods_ipv4},{self._lab.plan.pods_ipv6}"]
        self._made += 1
        self._log = self._folder / f"log-{self._made}"
        with self._log.open("w") as log:
            self.process = self._lab.node.popen(command, stderr=log, stdin=subprocess.DEVNULL)

    def write(self, *objects: WatchedObject) -> None:
        """Make these the whole cluster, in one step, as an atomic writer does."""
        fresh = self._folder / ".fresh"
        fresh.write_text(manifests(objects))
        fresh.rename(self._folder / "cluster.yaml")

    def end(self, how: int = signal.SIGTERM) -> None:
        """End it and wait for its end."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
            self.process = None

    def status(self) -> dict[str, Any]:
        """What it says of itself; empty while it does not answer."""
        try:
            with self._lab.node.enter():
                return writer_lock.ask({"ask": "status"})
        except writer_lock.ControlError:
            return {}

    def log(self) -> list[dict[str, Any]]:
        """What it has logged."""
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    def wait(self, condition: Callable[[], object]) -> None:
        """Wait for a condition while it lives."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"in vain; the daemon says: {self._log.read_text()[-3000:]}"
            assert self.process is None or self.process.poll() is None, self._log.read_text()
            time.sleep(0.02)

    def wait_for_sync(self) -> None:
        """Wait until it has nothing to do."""
        self.wait(lambda: (now := self.status()) and now["synced"] and not now["pending"] and now["pid"] == self.process.pid)  # type: ignore[union-attr]

    def logged(self, words: str) -> bool:
        """Whether it has said so."""
        return any(words in line["message"] for line in self.log())


@pytest.fixture
def daemon(world: World, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon, started with a cluster of everything."""
    made = Daemon(world.lab, tmp_path)
    made.write(*everything(world))
    made.start()
    try:
        made.wait_for_sync()
        yield made
    finally:
        made.end(signal.SIGKILL)
        with world.lab.node.enter():
            world.node.dataplane.cleanup()


def _changed(world: World, name: str, hosts: str) -> Iterable[WatchedObject]:
    """Everything, with other endpoints for one Service."""
    slices = {piece.name: piece for piece in world.cluster.endpoints(name, hosts)}
    return (slices.get(thing.name, thing) if not isinstance(thing.name, str) else thing for thing in everything(world))


def test_it_serves_and_follows_its_manifests(world: World, daemon: Daemon) -> None:
    see_everything(world)
    with clients_of(world, 201) as clients:
        for hosts in ("a1 b1 b2", "b1 b2", "a2 b1"):
            daemon.write(*_changed(world, "plain", hosts))
            _wait_for_endpoints(world, daemon, hosts)
            clients.go_on(20)


def _wait_for_endpoints(world: World, daemon: Daemon, hosts: str) -> None:
    daemon.wait(lambda: _endpoints(world, 201) == set(hosts.split()))


def _endpoints(world: World, number: int) -> set[str]:
    asked = world.ask("node", world.cluster.cluster(number).ipv4, protocols=TCP, times=40).answered("a1 a2 b1 b2")
    return {answer.server for answer in world.see(asked) if isinstance(answer, Answer)}


def test_d26_a_flush_is_noticed_and_repaired_and_the_culprit_named(world: World, daemon: Daemon, nft: Callable[..., str]) -> None:
    held = [hold(world.host(origin), world.cluster.cluster(201).ipv4, 80, timeout=SURE) for origin in ("a2", "node", "outside")]
    nft("flush", "ruleset")
    daemon.wait(lambda: daemon.status().get("drift_count") == 1)
    daemon.wait_for_sync()
    warnings = [line for line in daemon.log() if line["level"] == "warning" and "culprit" in line]
    assert [line["culprit"].split(" ")[0] for line in warnings] == ["nft"]
    see_everything(world)
    assert all(each.alive(SURE) for each in held)
    for each in held:
        each.close()


@pytest.mark.parametrize(
    "deed",
    [
        "insert rule ip kproxy-nftables prerouting drop",
        "delete table ip6 kproxy-nftables",
        "flush chain ip kproxy-nftables output",
    ],
)
def test_smaller_deeds_are_noticed_too(world: World, daemon: Daemon, nft: Callable[..., str], deed: str) -> None:
    nft(*deed.split())
    daemon.wait(lambda: daemon.status().get("drift_count") == 1)
    daemon.wait_for_sync()
    see_everything(world)


def test_others_may_work_on_their_own_tables_all_the_time(world: World, daemon: Daemon, nft: Callable[..., str]) -> None:
    for number in range(20):
        nft("add", "table", "inet", f"theirs{number}")
    nft("insert", "rule", "ip", "kproxy-nftables", "prerouting", "drop")
    daemon.wait(lambda: daemon.status().get("drift_count") == 1)
    see_everything(world)
    for number in range(20):
        nft("delete", "table", "inet", f"theirs{number}")


def test_kill_9_harms_no_connection_old_or_new_and_the_next_one_changes_nothing(world: World, daemon: Daemon) -> None:
    held = [hold(world.host(origin), world.cluster.cluster(201).ipv6, 80, timeout=SURE) for origin in ("a2", "node", "outside")]
    with clients_of(world, 201) as clients:
        daemon.end(signal.SIGKILL)
        clients.go_on(30)
        daemon.start()
        daemon.wait_for_sync()
        clients.go_on(30)
    assert daemon.status()["last_sync"]["operations"] == 0
    assert all(each.alive(SURE) for each in held)
    for each in held:
        each.close()
    see_everything(world)


def test_what_has_changed_while_it_was_dead_is_made_up_for(world: World, daemon: Daemon) -> None:
    flow = UdpFlow(world.host("a2"), world.cluster.cluster(203).ipv4, 80, timeout=SURE)
    first = flow.exchange("who")
    assert isinstance(first, Answer)
    assert first.server == "a1"
    daemon.end(signal.SIGKILL)
    daemon.write(*_changed(world, "inner", "a2"))
    daemon.start()
    daemon.wait_for_sync()
    assert 0 < daemon.status()["last_sync"]["operations"] < 60
    world.see(world.ask("abr2 node", world.cluster.cluster(203)).answered("a2"))
    # The stale UDP flow is deleted beside the sync.
    daemon.wait(lambda: isinstance(now := flow.exchange("who"), Answer) and now.server == "a2")
    flow.close()


def test_a_second_daemon_waits_and_takes_over(world: World, daemon: Daemon) -> None:
    first = daemon.process
    assert first is not None
    daemon.start()
    daemon.wait(lambda: daemon.logged("waiting until it ends"))
    assert daemon.status()["pid"] == first.pid
    with clients_of(world, 201) as clients:
        first.kill()
        first.wait(PATIENCE)
        daemon.wait_for_sync()
        clients.go_on(20)
        daemon.write(*_changed(world, "plain", "b2 a1"))
        _wait_for_endpoints(world, daemon, "b2 a1")
    assert [line for line in daemon.log() if "first sync: 0 operations" in line["message"]]


def test_node_addresses_are_followed(world: World, daemon: Daemon) -> None:
    node, address = world.lab.node, "172.18.0.50"
    daemon.end()
    daemon.start("--nodeport-addresses", "172.18.0.48/28")
    daemon.wait_for_sync()
    asked = world.ask(EVERYWHERE, address, 31201, TCP)
    node.add_address(f"{address}/24")
    try:
        world.see(world.ask(EVERYWHERE, node.ipv4, 31201, TCP).unreachable())
        daemon.wait(lambda: _is_served(world, address, 31201))
        world.see(asked.answered("a1 b1"))
    finally:
        node.remove_address(f"{address}/24")
    daemon.wait(lambda: not _is_served(world, "172.18.0.50", 31201))


def _is_served(world: World, address: str, port: int) -> bool:
    return isinstance(ask(world.host("a2"), address, port), Answer)
