"""NodePorts on addresses that come and go: an element each, and nothing else."""

import pytest
from attrs import evolve

from kproxy_core.model.addresses import parse_network
from kproxy_core.testing.lab import AddressPair, Host

from .world import EVERYWHERE, TCP_UDP, World

pytestmark = pytest.mark.kernel

LOOPBACK = AddressPair(ipv4="127.0.0.1", ipv6="::1")
SECOND = AddressPair(ipv4="172.18.0.50", ipv6="fd00:18::50")


def _with_length(address: str) -> str:
    return f"{address}/64" if ":" in address else f"{address}/24"


def _give(host: Host, pair: AddressPair) -> None:
    for address in (pair.ipv4, pair.ipv6):
        host.add_address(_with_length(address))


def _take(host: Host, pair: AddressPair) -> None:
    for address in (pair.ipv4, pair.ipv6):
        host.remove_address(_with_length(address))


def test_node_port_addresses_by_range_follow_addresses_that_come_and_go(world: World) -> None:
    number = world.number()
    node_port = 30000 + number
    ranges = tuple(map(parse_network, ("172.18.0.48/28", "fd00:18::50/124", "127.0.0.0/8", "::1/128")))
    world.node.restart(evolve(world.defaults, node_port_addresses=ranges))
    service = world.cluster.service("web", number, f"t=80@{node_port} u=80/udp@{node_port} s=80/sctp@{node_port}")
    world.node.set(service, *world.cluster.endpoints("web", "a1 b1"), world.cluster.node())
    world.see(world.ask(EVERYWHERE, world.node_addresses(), node_port, TCP_UDP).unreachable())
    _give(world.lab.node, SECOND)
    try:
        report = world.node.see_addresses()
        assert report is not None
        assert report.operations == 2  # an element in each family
        world.see(
            world.ask(EVERYWHERE, SECOND, node_port).answered("a1 b1"),
            world.ask(EVERYWHERE, world.node_addresses(), node_port, TCP_UDP).unreachable(),
            world.ask("node", LOOPBACK, node_port, TCP_UDP).unreachable(),
        )
    finally:
        _take(world.lab.node, SECOND)
    report = world.node.see_addresses()
    assert report is not None
    assert report.operations == 2
    assert not world.node.difference()
