"""The mark that asks for masquerade, what becomes of it, and where in the kernel all this is."""

import json
import re
from collections.abc import Callable, Iterator

import pytest
from attrs import evolve

from kproxy_core.model.addresses import parse_address
from kproxy_core.model.objects import SliceEndpoint
from kproxy_core.testing.lab import Answer

from ...programs import program
from .world import TCP, TCP_UDP, World

pytestmark = pytest.mark.kernel

Nft = Callable[..., str]

WATCH = """
table inet witness {
    counter seen { }
    counter marked { }
    counter borrowed { }
    chain before { type filter hook prerouting priority mangle; meta mark set %(mark)s; }
    chain sent { type route hook output priority mangle; meta mark set %(mark)s; }
    chain after {
        type filter hook postrouting priority srcnat + 50;
        %(match)s counter name seen
        %(match)s meta mark & %(bit)s != 0 counter name marked
        %(match)s meta mark != %(mark)s counter name borrowed
    }
}
"""


@pytest.fixture
def witness(world: World, nft: Nft) -> Iterator[Callable[[], dict[str, int]]]:
    """Counts of somebody else's rules: packets after SNAT, those with the bit, and those whose mark is not that of before."""

    def counts() -> dict[str, int]:
        listed = json.loads(nft("-j", "list", "counters", "table", "inet", "witness"))["nftables"]
        return {item["counter"]["name"]: item["counter"]["packets"] for item in listed if "counter" in item}

    yield counts
    world.lab.node.run([program("nft"), "delete", "table", "inet", "witness"], check=False)


@pytest.mark.parametrize("bit", [14, 0, 7, 31])
def test_the_masquerade_bit_is_taken_off_and_all_others_are_left(world: World, witness: object, nft: Nft, bit: int) -> None:
    assert callable(witness)
    number = world.number()
    mark = 0x5A5A5A5A & ~(1 << bit)
    nft("-f", "-", stdin=WATCH % {"mark": hex(mark), "bit": hex(1 << bit), "match": "th dport 8080"})
    world.node.restart(evolve(world.defaults, masquerade_bit=bit))
    sticky = world.cluster.service("sticky", number + 100, affinity_timeout=60, external=number)
    world.node.set(
        world.cluster.service("web", number),
        sticky,
        *world.cluster.endpoints("web", "a1 b1"),
        *world.cluster.endpoints("sticky", "a1 b1"),
    )
    outcomes = world.see(
        world.ask("outside", world.cluster.cluster(number), protocols=TCP_UDP, times=3).answered("a1 b1", client="masqueraded"),
        world.ask("outside", world.cluster.external(number), protocols=TCP_UDP, times=3).answered("a1 b1", client="masqueraded"),
        world.ask("a2 node", world.cluster.cluster(number), protocols=TCP_UDP, times=3).answered("a1 b1"),
    )
    counts = witness()
    assert counts["seen"] >= len(outcomes)
    assert counts["marked"] == 0
    assert counts["borrowed"] == 0


def test_d28_an_encapsulated_packet_does_not_inherit_the_mark(world: World, witness: object, nft: Nft) -> None:
    """It would be masqueraded once more, with a checksum that the network card then gets wrong."""
    assert callable(witness)
    number = world.number()
    node, node2 = world.lab.node, world.lab.node2
    link = "type vxlan id 7 dstport 4789"
    for host, other, address in ((node, node2, "10.99.0.1"), (node2, node, "10.99.0.2")):
        made = host.run(["ip", "link", "add", "vx0", *link.split(), "local", host.ipv4, "remote", other.ipv4], check=False)
        if made.returncode:
            pytest.skip(f"no vxlan in this kernel: {made.stderr.strip()}")
        host.run(["ip", "addr", "add", f"{address}/24", "dev", "vx0"])
        host.run(["ip", "link", "set", "vx0", "up"])
    try:
        piece = world.cluster.endpoints("web", "b1", "t=8080")[0]
        behind = SliceEndpoint(address=parse_address("10.99.0.2"), node_name="node2")
        world.node.set(world.cluster.service("web", number, "t=80"), evolve(piece, endpoints=(behind,)))
        nft("-f", "-", stdin=WATCH % {"mark": "0", "bit": hex(1 << 14), "match": "udp dport 4789"})
        world.see(world.ask("outside", world.cluster.cluster(number).ipv4, protocols=TCP).answered("node2", client="masqueraded"))
        counts = witness()
        assert counts["seen"] > 0
        assert counts["marked"] == counts["borrowed"] == 0
    finally:
        for host in (node, node2):
            host.run(["ip", "link", "del", "vx0"], check=False)


def test_d29_masquerading_picks_ports_fully_at_random(world: World, nft: Nft) -> None:
    number = world.number()
    world.node.set(world.cluster.service("web", number), *world.cluster.endpoints("web", "a1"))
    for family in ("ip", "ip6"):
        assert "masquerade fully-random" in nft("list", "chain", family, "kproxy-nftables", "postrouting")
    asked = world.ask("outside", world.cluster.cluster(number).ipv4, protocols=TCP, times=10).answered("a1", "masqueraded")
    shifts = {answer.client_port - answer.source_port for answer in world.see(asked) if isinstance(answer, Answer)}
    assert len(shifts) > 5


def test_no_packet_filter_hook_on_established_traffic(world: World, nft: Nft) -> None:
    """Chains of type nat are asked about the first packet of a connection only."""
    number = world.number()
    served = f"t=80@{30000 + number} u=80/udp"
    world.node.set(
        world.cluster.service("web", number, served, external=number, balancer=number, ranges="10.0.0.0/8", affinity_timeout=60),
        *world.cluster.endpoints("web", "a1 b1"),
        world.cluster.node(),
        world.cluster.service_cidr(),
    )
    chains = [item["chain"] for item in json.loads(nft("-j", "list", "chains"))["nftables"] if "chain" in item]
    assert {chain["table"] for chain in chains} == {"kproxy-nftables"}
    hooked = [(chain["family"], chain["hook"], chain["type"], chain["prio"]) for chain in chains if "hook" in chain]
    assert sorted(hooked) == [
        (family, hook, "nat", priority)
        for family in ("ip", "ip6")
        for hook, priority in (("output", -100), ("postrouting", 100), ("prerouting", -100))
    ]
    assert not re.search(r"\bct state\b", nft("list", "ruleset"))
