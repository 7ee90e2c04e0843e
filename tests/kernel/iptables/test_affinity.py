"""Session affinity by sets of clients: who is remembered, for how long, how many, and what when an endpoint goes."""

from collections import Counter

import pytest

from kproxy_core.kernel.ipset import IpSetSocket
from kproxy_core.model.names import Protocol
from kproxy_core.testing.conformance.world import TCP, World
from kproxy_core.testing.lab import Answer, Question, ask_all, tally
from kproxy_iptables import sets
from kproxy_iptables.backend import IptablesBackend

pytestmark = pytest.mark.kernel

IptablesWorld = World[IptablesBackend]
SURE = 15.0
MANY = 1000
PODS = "a1 a2 b1 b2"


def remembered(world: IptablesWorld) -> dict[bytes, int]:
    """The clients in all sets, with the seconds that each has left."""
    with world.lab.node.enter(), IpSetSocket() as ipset:
        sets = [each.definition for each in ipset.sets() if each.name.startswith(("KPROXY-4-SEP-", "KPROXY-6-SEP-"))]
        elements = [element for each in sets if each is not None for element in ipset.elements(each)]
    return {element.key: element.timeout or 0 for element in elements}


@pytest.fixture
def crowd(world: IptablesWorld) -> list[str]:
    """A thousand addresses for the outside client."""
    world.lab.outside.run(["ip", "route", "replace", "local", "198.18.0.0/15", "dev", "lo"])
    for node in (world.lab.node, world.lab.node2):
        node.run(["ip", "route", "replace", "198.18.0.0/15", "via", world.lab.outside.ipv4])
    return [f"198.18.{number // 250}.{number % 250 + 1}" for number in range(MANY)]


def test_a_thousand_clients_stick(world: IptablesWorld, crowd: list[str]) -> None:
    """kube-proxy's match remembers 100 of them."""
    number = world.number()
    service = world.cluster.service("web", number, "u=80/udp", external=number, affinity_timeout=600)
    world.node.set(service, *world.cluster.endpoints("web", PODS, "u=8080/udp"))
    questions = [
        Question(
            host=world.lab.outside,
            address=world.cluster.external(number).ipv4,
            port=80,
            protocol=Protocol.UDP,
            source_address=address,
            timeout=SURE,
        )
        for address in crowd
    ]
    first = [outcome.server if isinstance(outcome, Answer) else str(outcome) for outcome in ask_all(questions)]
    assert set(first) == set(PODS.split())
    assert min(Counter(first).values()) > MANY / 8
    assert len(remembered(world)) == MANY
    world.forget_connections()
    again = [outcome.server if isinstance(outcome, Answer) else str(outcome) for outcome in ask_all(questions)]
    assert again == first
    # Those of an endpoint that goes pick anew, and are remembered there; all others stay.
    world.node.put(*world.cluster.endpoints("web", "a1 a2 b1", "u=8080/udp"))
    world.forget_connections()
    left = [outcome.server if isinstance(outcome, Answer) else str(outcome) for outcome in ask_all(questions)]
    assert [after for before, after in zip(first, left, strict=True) if before != "b2"] == [
        server for server in first if server != "b2"
    ]
    moved = Counter(after for before, after in zip(first, left, strict=True) if before == "b2")
    assert moved.keys() == {"a1", "a2", "b1"}
    assert len(remembered(world)) == MANY


def test_s22_each_service_has_its_own_timeout_in_seconds_and_use_refreshes_it(world: IptablesWorld) -> None:
    numbers = [world.number() for _ in range(2)]
    services = [
        world.cluster.service(f"web{number}", number, "t=80", affinity_timeout=timeout)
        for number, timeout in zip(numbers, (86400, 30), strict=True)
    ]
    behind = [piece for number in numbers for piece in world.cluster.endpoints(f"web{number}", "a1", "t=8080")]
    world.node.set(*services, *behind)
    for number, timeout in zip(numbers, (86400, 30), strict=True):
        world.forget_clients()
        world.see(world.ask("a2", world.cluster.cluster(number).ipv4, protocols=TCP).answered("a1"))
        (left,) = remembered(world).values()
        assert timeout - 10 < left <= timeout
    # Another timeout is a matter of the next connection.
    world.node.put(world.cluster.service(f"web{numbers[1]}", numbers[1], "t=80", affinity_timeout=7200))
    assert max(remembered(world).values()) <= 30
    world.see(world.ask("a2", world.cluster.cluster(numbers[1]).ipv4, protocols=TCP).answered("a1"))
    assert 7000 < max(remembered(world).values()) <= 7200


def test_a_restart_forgets_nobody(world: IptablesWorld) -> None:
    number = world.number()
    world.node.set(
        world.cluster.service("web", number, "t=80", affinity_timeout=600), *world.cluster.endpoints("web", PODS, "t=8080")
    )
    asked = world.ask("a2 node outside", world.cluster.cluster(number), protocols=TCP)
    first = tally(world.see(asked.answered(PODS)))
    before = remembered(world)
    world.node.restart()
    assert remembered(world).keys() == before.keys()
    assert tally(world.see(asked.answered(PODS))) == first


def test_sets_grow_with_their_clients(world: IptablesWorld, crowd: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel lets no rule enlarge a set, and forgets who does not fit."""
    monkeypatch.setattr(sets, "_FIRST_BUCKETS", 64)
    number = world.number()
    service = world.cluster.service("web", number, "u=80/udp", external=number, affinity_timeout=600)
    world.node.set(service, *world.cluster.endpoints("web", "a1", "u=8080/udp"))
    questions = [
        Question(
            host=world.lab.outside,
            address=world.cluster.external(number).ipv4,
            port=80,
            protocol=Protocol.UDP,
            source_address=address,
            timeout=SURE,
        )
        for address in crowd
    ]
    assert tally(ask_all(questions)) == {"a1": MANY}
    kept = remembered(world)
    assert MANY / 2 < len(kept) < MANY, "that would have been enough"
    for _ in range(2):
        assert world.node.dataplane.drift() is None
    assert remembered(world).keys() >= kept.keys()
    assert max(remembered(world).values()) <= 600
    world.forget_connections()
    assert tally(ask_all(questions)) == {"a1": MANY}
    assert len(remembered(world)) == MANY
    assert not world.node.difference()
