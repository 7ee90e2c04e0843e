"""The real daemon at work: real packets while it follows its manifests, is killed, starts again, gives way to another."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy_core.testing.conformance.lasting import all_alive, clients_of, held
from kproxy_core.testing.lab import Answer, UdpFlow, ask

from .daemon import PATIENCE, Daemon, changed, running
from .world import EVERYWHERE, SURE, TCP, TCP_UDP, World, see_everything, servers

pytestmark = pytest.mark.kernel


@pytest.fixture
def daemon(world: World, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon, started with a cluster of everything."""
    with running(world, tmp_path) as started:
        yield started


def test_it_serves_and_follows_its_manifests(world: World, daemon: Daemon) -> None:
    see_everything(world)
    with clients_of(world, 201) as clients:
        for hosts in ("a1 b1 b2", "b1 b2", "a2 b1"):
            daemon.write(*changed(world, "plain", hosts))
            _wait_for_endpoints(world, daemon, hosts)
            clients.go_on(20)


def _wait_for_endpoints(world: World, daemon: Daemon, hosts: str) -> None:
    daemon.wait(lambda: _endpoints(world, 201) == {frozenset(hosts.split())})


def _endpoints(world: World, number: int) -> set[frozenset[str]]:
    """Who answers: a set of servers for each family and protocol, one in all if they agree."""
    pair = world.cluster.cluster(number)
    ways = [
        world.ask("node", address, protocols=(protocol,), times=20).answered("a1 a2 b1 b2")
        for address in (pair.ipv4, pair.ipv6)
        for protocol in TCP_UDP
    ]
    outcomes = iter(world.see(*ways))
    return {frozenset(servers([next(outcomes) for _ in each.questions])) for each in ways}


def test_kill_9_harms_no_connection_old_or_new_and_the_next_one_changes_nothing(world: World, daemon: Daemon) -> None:
    with held(world, 201) as connections, clients_of(world, 201) as clients:
        daemon.end(signal.SIGKILL)
        clients.go_on(30)
        daemon.start()
        daemon.wait_for_sync()
        clients.go_on(30)
        assert all_alive(connections)
    assert daemon.status()["last_sync"]["operations"] == world.taking_over
    see_everything(world)


def test_what_has_changed_while_it_was_dead_is_made_up_for(world: World, daemon: Daemon) -> None:
    flow = UdpFlow(world.host("a2"), world.cluster.cluster(203).ipv4, 80, timeout=SURE)
    first = flow.exchange("who")
    assert isinstance(first, Answer)
    assert first.server == "a1"
    daemon.end(signal.SIGKILL)
    daemon.write(*changed(world, "inner", "a2"))
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
        daemon.write(*changed(world, "plain", "b2 a1"))
        _wait_for_endpoints(world, daemon, "b2 a1")
    (told,) = (line for line in daemon.log() if "first sync" in line["message"])
    assert told["operations"] == world.taking_over


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
