"""Cases of the field that no other file has: flows without answers, loopback from outside, chains used again, others' rules."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from attrs import evolve

from kproxy_core.config.settings import NodePortScope
from kproxy_core.kernel import sysctl
from kproxy_core.kernel.conntrack import ConntrackSocket
from kproxy_core.model.addresses import parse_address
from kproxy_core.model.names import Protocol
from kproxy_core.model.objects import EndpointSlice, SliceEndpoint
from kproxy_core.testing.lab import Answer, Behaviour, Refused, ServerPlan, UdpFlow
from kproxy_core.wire.nfnetlink import Family

from .world import SURE, TCP, UDP, World

pytestmark = pytest.mark.kernel

Nft = Callable[..., str]

STATSD = 8125
HOST_FIREWALL = "table inet host { chain forward { type filter hook forward priority %d; th dport 8080 drop; }; }"


@pytest.fixture
def cleared(nft: Nft) -> Iterator[None]:
    """Takes away others' tables."""
    yield
    for table in ("host", "witness"):
        nft("add", "table", "inet", table)
        nft("delete", "table", "inet", table)


def test_s44_flows_that_were_never_answered_are_stale_without_endpoints(world: World) -> None:
    """As statsd's clients make them: datagrams one way, so that conntrack has seen no reply."""
    number = world.number()
    world.lab.serve(world.host("a1"), ServerPlan(ports=(STATSD,), protocols=UDP, behaviour=Behaviour.SILENT))
    world.node.set(world.cluster.service("statsd", number, "80/udp"), *world.cluster.endpoints("statsd", "a1", f"{STATSD}/udp"))
    pair = world.cluster.cluster(number)
    with ExitStack() as stack:
        flows = [
            stack.enter_context(UdpFlow(world.host(origin), address, 80, timeout=SURE))
            for origin in ("a2", "node", "outside")
            for address in (pair.ipv4, pair.ipv6)
        ]
        assert not any(isinstance(flow.exchange("count", 0.05), Answer | Refused) for flow in flows)
        assert world.node.clean_conntrack() == 0, "silent, but right"
        world.node.put(*world.cluster.endpoints("statsd", "", f"{STATSD}/udp"))
        assert not any(isinstance(flow.exchange("count", 0.05), Refused) for flow in flows), "conntrack alone keeps them"
        assert world.node.clean_conntrack() == len(flows)
        assert all(isinstance(flow.exchange("count", SURE), Refused) for flow in flows)


def test_s50_s51_only_udp_is_cleaned(world: World) -> None:
    """Associations and connections to an endpoint that is gone are not deleted: SCTP and TCP notice, or end, by themselves."""
    number = world.number()
    service = world.cluster.service("all", number, "t=80 u=80/udp s=80/sctp")
    world.node.set(service, *world.cluster.endpoints("all", "a1", "t=8080 u=8080/udp s=8080/sctp"))
    world.see(world.ask("a2 node outside", world.cluster.cluster(number)).answered("a1"))
    before = _flows(world)
    assert all(before.values()), before
    world.node.put(*world.cluster.endpoints("all", "b1", "t=8080 u=8080/udp s=8080/sctp"))
    assert world.node.clean_conntrack() == len(before[Protocol.UDP])
    after = _flows(world)
    assert not after[Protocol.UDP]
    assert {protocol: after[protocol] for protocol in (Protocol.TCP, Protocol.SCTP)} == {
        protocol: before[protocol] for protocol in (Protocol.TCP, Protocol.SCTP)
    }


def _flows(world: World) -> dict[Protocol, set[bytes | None]]:
    """What conntrack has, by protocol and its own numbers for entries."""
    with world.lab.node.enter(), ConntrackSocket() as conntrack:
        families = (Family.IPV4, Family.IPV6)
        return {
            protocol: {flow.id for family in families for flow in conntrack.flows(family, protocol=protocol)}
            for protocol in Protocol
        }


def test_x1_a_neighbour_does_not_reach_node_ports_on_loopback(world: World, nft: Nft, cleared: None) -> None:
    """CVE-2020-8558, with NodePorts on every local address: prerouting sees such a packet before routing calls it martian."""
    number = world.number()
    node, outside = world.lab.node, world.lab.outside
    with node.enter():
        before = _route_localnet()
    world.node.restart(evolve(world.defaults, node_port_addresses=NodePortScope.ALL))
    world.node.set(
        world.cluster.service("web", number, f"80@{30000 + number}"),
        *world.cluster.endpoints("web", "a1", "8080"),
        world.cluster.node(),
    )
    nft(
        "-f",
        "-",
        stdin="table inet witness { counter came { }\n chain c { type filter hook prerouting priority raw;"
        f" ip daddr 127.0.0.1 tcp dport {30000 + number} iif != lo counter name came; }}; }}",
    )
    was = outside.sysctl("net.ipv4.conf.all.route_localnet")
    outside.sysctl("net.ipv4.conf.all.route_localnet", 1)
    outside.run(["ip", "address", "del", "127.0.0.1/8", "dev", "lo"])
    outside.run(["ip", "route", "add", "127.0.0.1", "via", node.ipv4, "src", outside.ipv4])
    try:
        world.see(world.ask("outside", "127.0.0.1", 30000 + number, TCP).dropped())
    finally:
        outside.run(["ip", "route", "del", "127.0.0.1", "via", node.ipv4])
        outside.run(["ip", "address", "add", "127.0.0.1/8", "dev", "lo"])
        outside.sysctl("net.ipv4.conf.all.route_localnet", was)
    listed = json.loads(nft("-j", "list", "counters", "table", "inet", "witness"))["nftables"]
    assert [item["counter"]["packets"] > 0 for item in listed if "counter" in item] == [True], "it came as far as the node"
    world.see(world.ask("outside", node.ipv4, 30000 + number, TCP).answered("a1"))
    with node.enter():
        assert _route_localnet() == before


def _route_localnet() -> str:
    return sysctl.read("net/ipv4/conf/all/route_localnet")


@pytest.mark.parametrize("priority", [-10, 10], ids=["before", "after"])
def test_d39_what_the_hosts_firewall_drops_stays_dropped(world: World, nft: Nft, cleared: None, priority: int) -> None:
    """Ours decide about the destination alone; whether a packet may pass is the host's business."""
    number = world.number()
    world.node.set(world.cluster.service("web", number), *world.cluster.endpoints("web", "b1"))
    nft("-f", "-", stdin=HOST_FIREWALL % priority)
    world.see(
        world.ask("a2 outside", world.cluster.cluster(number)).dropped(),
        world.ask("node", world.cluster.cluster(number)).answered("b1"),
    )


def test_d37_one_endpoint_costs_the_same_whatever_there_is(world: World) -> None:
    number = world.number()
    changed = world.cluster.service("changed", number)
    costs = []
    for size in (10, 100, 1000):
        others = [world.cluster.service(f"s{index}", 1000 + index, "80") for index in range(size)]
        slices = [piece for each in others for piece in _ten_endpoints(world, str(each.name.name))]
        world.node.set(changed, *world.cluster.endpoints("changed", "a1 b1"), *others, *slices)
        more = world.node.put(*world.cluster.endpoints("changed", "a1 b1 b2"))
        fewer = world.node.put(*world.cluster.endpoints("changed", "a1 b1"))
        assert more is not None
        assert fewer is not None
        costs.append((more.operations, fewer.operations))

    assert costs[0] == costs[1] == costs[2]
    world.see(world.ask("a2 outside", world.cluster.cluster(number), times=2).answered("a1 b1"))


def _ten_endpoints(world: World, name: str) -> list[EndpointSlice]:
    pieces = world.cluster.endpoints(name, "", "8080")
    places = (("10.244.7.{}", "node"), ("fd00:244:7::{}", "node"))
    return [
        evolve(
            piece,
            endpoints=tuple(SliceEndpoint(address=parse_address(place.format(index)), node_name=node) for index in range(1, 11)),
        )
        for piece, (place, node) in zip(pieces, places, strict=True)
    ]
