"""Stories that go wrong are made small, told in steps, and written as scenarios that read the same."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.model.addresses import parse_address
from kproxy_core.model.names import Protocol
from kproxy_core.model.objects import Service
from kproxy_core.model.packet import Delivered, Packet, Refused, Target, Verdict
from kproxy_core.model.snapshot import ClusterSnapshot
from kproxy_core.testing.conformance.oracle_kernel.atlas import Atlas, Sent
from kproxy_core.testing.conformance.oracle_kernel.deck import Extent, deal
from kproxy_core.testing.conformance.oracle_kernel.failure import Failure
from kproxy_core.testing.conformance.oracle_kernel.reproduction import scenario_of
from kproxy_core.testing.conformance.oracle_kernel.shrink import Story, shrunk
from kproxy_core.testing.conformance.oracle_kernel.telling import Way, steps_between
from kproxy_core.testing.conformance.reader import read
from kproxy_core.testing.conformance.writer import write
from kproxy_core.testing.manifests import objects_in
from kproxy_core.testing.oracle import Scene
from kproxy_core.testing.strategies import snapshots

LONG = 600.0


def some_scene() -> Scene:
    """A cluster with a Service that has source ranges and endpoints."""
    cards = deal(Extent(seed=1, clusters=60, packets=1))
    return next(card.scene for card in cards if any(map(restricted, card.scene.snapshot.services.values())))


def restricted(service: Service) -> bool:
    return bool(service.source_ranges) and len(service.ports) > 1


def test_what_does_not_matter_is_taken_away() -> None:
    story = Story(scene=some_scene(), before=ClusterSnapshot())

    def goes_wrong(smaller: Story) -> bool:
        return any(map(restricted, smaller.scene.snapshot.services.values()))

    small = shrunk(story, goes_wrong, LONG)
    assert small.before is None
    (service,) = small.scene.snapshot.services.values()
    assert len(service.ports) == 2
    assert (service.external_ips, service.ingress, service.affinity_timeout) == ((), (), None)
    assert not any(small.scene.snapshot.slices.values())
    assert not small.scene.snapshot.service_cidrs


def test_a_story_that_goes_wrong_in_any_case_shrinks_to_nothing() -> None:
    small = shrunk(Story(scene=some_scene()), lambda _: True, LONG)
    assert not small.scene.snapshot.services


def test_a_story_is_as_it_was_when_there_is_no_time() -> None:
    story = Story(scene=some_scene())
    assert shrunk(story, lambda _: True, 0.0) is story


@given(snapshots(), snapshots(), st.integers(0, 1 << 16))
def test_steps_lead_from_one_cluster_to_the_next(before: ClusterSnapshot, after: ClusterSnapshot, seed: int) -> None:
    there = {(type(each), str(each.name)): each for each in objects_in(before)}
    for step in steps_between(before, after, seed):
        assert 1 <= len(step.objects) <= 3
        for each in step.objects:
            if step.puts:
                there[type(each), str(each.name)] = each
            else:
                del there[type(each), str(each.name)]
    assert there == {(type(each), str(each.name)): each for each in objects_in(after)}


def test_the_deck_is_the_same_for_the_same_seed_and_no_two_cards_are_alike() -> None:
    first, again = (list(deal(Extent(seed=3, clusters=25, packets=1))) for _ in range(2))
    assert first == again
    assert len({str(card.scene) for card in first}) == 25


class PaperHost:
    """A host that is only asked for its name."""

    def __init__(self, name: str, *addresses: str) -> None:
        self.name, self.addresses, self.pod = name, addresses, None
        self.ipv4, self.ipv6 = "172.18.0.2", "fd00:18::2"

    def address(self, ipv6: bool) -> str:
        return self.ipv6 if ipv6 else self.ipv4


class PaperLab:
    """A lab that is not built."""

    def __init__(self) -> None:
        self.node = PaperHost("node", "172.18.0.2")
        self.outside = PaperHost("outside", "172.18.0.100")
        self.node2 = PaperHost("node2", "172.18.0.3")
        self.hosts = {host.name: host for host in (self.node, self.outside, self.node2)}
        self.plan = type("Plan", (), {"pod_ranges": staticmethod(lambda _: ("10.244.1.0/24",))})


@pytest.mark.parametrize("answered", [True, False])
def test_a_failure_is_a_scenario_that_can_be_read(answered: bool) -> None:
    atlas = Atlas(PaperLab())  # type: ignore[arg-type]
    target = Target(address=parse_address("172.18.0.3"), port=8081, masqueraded=True)
    packet = Packet(
        source=parse_address("172.18.0.100"),
        destination=parse_address("203.0.113.10"),
        protocol=Protocol.UDP,
        port=80,
        interface="eth0",
    )
    verdict: Verdict = Delivered(frozenset({target})) if answered else Refused()
    sent = Sent(packet=packet, origin=PaperLab().outside, verdict=verdict)  # type: ignore[arg-type]
    for before, after in pairwise(deal(Extent(seed=9, clusters=30, packets=1))):
        story = Story(scene=after.scene, before=before.scene.snapshot, seed=7)
        failure = Failure(story=story, way=Way.PIECEMEAL, sent=sent, complaint="dropped", again=True)
        text = write(scenario_of(failure, atlas, "found"))
        assert write(read(text)) == text
        assert ("node2:8081 masqueraded" if answered else "expect: refused") in text
