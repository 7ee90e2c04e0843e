"""How connections spread over endpoints: evenly, or as weights say; a chi-square test that practically never fails by chance."""

from collections import Counter

import pytest

from kproxy_core.model.names import Protocol
from kproxy_core.testing.lab import Answer, ask_many, tally

from .world import SURE, World

pytestmark = pytest.mark.kernel

CONNECTIONS = 2000
BOUND = 60.0
"""Of chi-square with five degrees of freedom: less likely than one in ten billion to be exceeded by chance."""
PODS = ("a1", "a2", "abr1", "abr2", "b1", "b2")


def chi_square(counts: Counter[str], shares: dict[str, float]) -> float:
    """How far counts are from what shares would give."""
    total = sum(counts.values())
    whole = sum(shares.values())
    return sum((counts[name] - total * share / whole) ** 2 / (total * share / whole) for name, share in shares.items())


@pytest.mark.parametrize(("protocol", "ipv6"), [(Protocol.TCP, False), (Protocol.UDP, True)], ids=["tcp-v4", "udp-v6"])
def test_connections_spread_evenly(world: World, protocol: Protocol, ipv6: bool) -> None:
    number = world.number()
    world.node.set(world.cluster.service("web", number), *world.cluster.endpoints("web", " ".join(PODS)))
    address = world.cluster.cluster(number).ipv6 if ipv6 else world.cluster.cluster(number).ipv4
    counts = tally(ask_many(world.lab.outside, address, 80, CONNECTIONS, protocol=protocol, timeout=SURE))
    assert counts.keys() == set(PODS)
    assert chi_square(counts, dict.fromkeys(PODS, 1.0)) < BOUND, counts


def test_still_evenly_after_endpoints_have_come_and_gone(world: World) -> None:
    """Slots that were filled in the order of changes are as good as any."""
    number = world.number()
    world.node.set(world.cluster.service("web", number, "u=80/udp"))
    for hosts in ("a1 a2 abr1", "a2 b1", "a2 b1 b2 abr2 a1", "b2 a1", "a1 a2 abr1 abr2 b1 b2", "a1 abr1 b1 b2 node2"):
        world.node.put(*world.cluster.endpoints("web", hosts, "u=8080/udp"))
    counts = tally(
        ask_many(world.lab.outside, world.cluster.cluster(number).ipv4, 80, CONNECTIONS, protocol=Protocol.UDP, timeout=SURE)
    )
    assert chi_square(counts, dict.fromkeys(("a1", "abr1", "b1", "b2", "node2"), 1.0)) < BOUND, counts


@pytest.mark.parametrize("affinity", [None, 60], ids=["plain", "sticky"])
def test_weights(world: World, affinity: int | None) -> None:
    number = world.number()
    shares = {"a1": 1.0, "a2": 2.0, "b1": 5.0}
    weights = {world.host(name).ipv4: int(share) for name, share in shares.items()} | {"*": 0}
    service = world.cluster.service("web", number, weights=weights, affinity_timeout=affinity)
    world.node.set(service, *world.cluster.endpoints("web", " ".join(PODS)))
    address = world.cluster.cluster(number).ipv4
    if affinity is None:
        counts = tally(ask_many(world.lab.outside, address, 80, CONNECTIONS, protocol=Protocol.UDP, timeout=SURE))
        assert counts.keys() == shares.keys()
        assert chi_square(counts, shares) < BOUND, counts
    else:
        (outcome,) = set(tally(ask_many(world.lab.outside, address, 80, 10, timeout=SURE)))
        assert outcome in shares


def test_one_endpoint_of_many_ports(world: World) -> None:
    number = world.number()
    world.node.set(
        world.cluster.service("web", number, "t=80"),
        *world.cluster.endpoints("web", "a1 b1", "t=8080", "-1"),
        *world.cluster.endpoints("web", "a1 b1", "t=8081", "-2"),
    )
    outcomes = ask_many(world.lab.outside, world.cluster.cluster(number).ipv4, 80, CONNECTIONS, timeout=SURE)
    counts = Counter(outcome.server for outcome in outcomes if isinstance(outcome, Answer))
    assert chi_square(counts, dict.fromkeys(("a1", "b1", "a1:8081", "b1:8081"), 1.0)) < BOUND, counts
