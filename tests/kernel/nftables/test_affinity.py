"""Session affinity: who is remembered, for how long, and when not."""

import time
from collections.abc import Callable, Iterator

import pytest
from attrs import evolve

from kproxy_core.model.names import Protocol
from kproxy_core.model.objects import DEFAULT_AFFINITY_TIMEOUT
from kproxy_core.testing.lab import AddressPair, Answer, Question, ask_all, tally
from kproxy_core.wire.nft_elements import Element, ElementCodec
from kproxy_nftables import sets
from kproxy_nftables.dataplane import NftablesDataplane
from kproxy_nftables.objects import FAMILY_NAMES
from kproxy_nftables.sets import shapes

from .world import ALL, EVERYWHERE, SURE, TCP, TCP_UDP, UDP, World, servers

pytestmark = pytest.mark.kernel

PATIENCE = 30.0
PODS = "a1 a2 abr1 abr2 b1 b2"


def remembered(world: World) -> dict[bytes, Element]:
    """The live elements of the affinity maps of both families, by key."""
    dataplane = world.node.dataplane
    assert isinstance(dataplane, NftablesDataplane)
    found = {}
    for family, name in FAMILY_NAMES.items():
        codec = ElementCodec.of(shapes(family)[f"{name} set", sets.AFFINITY])
        found.update({element.key: element for element in dataplane._socket.full_elements(codec)})
    return found


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def clients(world: World, address: AddressPair, port: int = 80, protocols: tuple[Protocol, ...] = ALL) -> list[Question]:
    """A question from each of the outside client's addresses, in each protocol: clients that are remembered one by one."""
    return [
        Question(host=world.lab.outside, address=to, port=port, protocol=protocol, source_address=source, timeout=SURE)
        for source, to in [(s, address.ipv6 if ":" in s else address.ipv4) for s in world.lab.outside.addresses]
        for protocol in protocols
    ]


def asked_of(world: World, questions: list[Question]) -> list[str]:
    """Who answered each."""
    return [outcome.server if isinstance(outcome, Answer) else str(outcome) for outcome in ask_all(questions)]


def test_s22_the_timeout_is_in_seconds_and_each_service_has_its_own(world: World) -> None:
    numbers = [world.number() for _ in range(3)]
    timeouts = (DEFAULT_AFFINITY_TIMEOUT, 86400, 7)
    names = [f"web{number}" for number in numbers]
    services = [
        world.cluster.service(name, number, affinity_timeout=timeout)
        for name, number, timeout in zip(names, numbers, timeouts, strict=True)
    ]
    world.node.set(*services, *(piece for name in names for piece in world.cluster.endpoints(name, "a1 b1")))
    for number, timeout in zip(numbers, timeouts, strict=True):
        before = remembered(world)
        world.see(world.ask("a2", world.cluster.cluster(number)).answered("a1 b1"))
        made = [element for key, element in remembered(world).items() if key not in before]
        assert [element.timeout for element in made] == [timeout * 1000] * 6  # three protocols, two families


def test_use_refreshes_and_being_unusable_does_not_s25(world: World) -> None:
    number = world.number()
    service = world.cluster.service("web", number, "t=80", affinity_timeout=600)
    world.node.set(service, *world.cluster.endpoints("web", "a1", "t=8080"))
    asked = world.ask("a2", world.cluster.cluster(number).ipv4, 80, TCP)
    world.see(asked.answered("a1"))
    ((key, element),) = remembered(world).items()
    assert element.timeout == 600_000

    def expires() -> int:
        return remembered(world)[key].expires or 0

    until(lambda: expires() < 599_500)
    before = expires()
    world.see(asked.answered("a1"))
    assert expires() > before
    world.node.put(*world.cluster.endpoints("web", "a1/unready", "t=8080"))
    until(lambda: expires() < 599_500)
    before = expires()
    world.see(asked.refused())
    assert expires() <= before
    world.node.put(*world.cluster.endpoints("web", "a1/unready b1", "t=8080"))
    world.see(asked.answered("b1"))
    # The new choice is remembered, for a timeout of its own.
    ((same, other),) = remembered(world).items()
    assert same == key
    assert other.data != element.data
    assert (other.expires or 0) > before


def test_s30_affinity_survives_a_time_without_endpoints(world: World) -> None:
    number = world.number()
    service = world.cluster.service("web", number, external=number, affinity_timeout=600)
    world.node.set(service, *world.cluster.endpoints("web", PODS))
    questions = clients(world, world.cluster.external(number))
    chosen = asked_of(world, questions)
    world.node.put(*world.cluster.endpoints("web", ""))
    world.see(world.ask(EVERYWHERE, world.cluster.external(number)).refused())
    world.node.put(*world.cluster.endpoints("web", PODS))
    world.forget_connections()
    assert asked_of(world, questions) == chosen


def test_a_changed_timeout_counts_from_the_next_use(world: World) -> None:
    number = world.number()
    service = world.cluster.service("web", number, "t=80", affinity_timeout=600)
    world.node.set(service, *world.cluster.endpoints("web", PODS, "t=8080"))
    asked = world.ask("a2", world.cluster.cluster(number).ipv4, 80, TCP)
    (chosen,) = servers(world.see(asked.answered(PODS)))
    world.node.put(evolve(service, affinity_timeout=60))
    world.see(asked.answered(chosen))
    (element,) = remembered(world).values()
    assert 0 < (element.expires or 0) <= 60_000


def test_a_service_with_the_id_of_another_one_knows_none_of_its_clients(world: World) -> None:
    """A new process counts ids from one again, while clients are remembered for hours."""
    number, other = world.number(), world.number()
    first = world.cluster.service("first", number, external=number, affinity_timeout=600)
    world.node.set(first, *world.cluster.endpoints("first", PODS))
    questions = clients(world, world.cluster.external(number))
    chosen = asked_of(world, questions)
    assert asked_of(world, questions) == chosen
    ids = {key[:4] for key in remembered(world)}
    world.node.set()
    world.node.restart()
    second = world.cluster.service("second", other, external=other, affinity_timeout=600)
    world.node.set(second, *world.cluster.endpoints("second", PODS))
    world.forget_connections()
    moved = clients(world, world.cluster.external(other))
    assert asked_of(world, moved) != chosen
    assert {key[:4] for key in remembered(world)} == ids


@pytest.fixture
def thousand(world: World) -> Iterator[list[str]]:
    """A thousand more addresses of the outside client."""
    world.lab.outside.run(["ip", "route", "add", "local", "172.19.0.0/16", "dev", "lo"])
    yield [f"172.19.{number >> 8}.{number & 255}" for number in range(1, 1001)]
    world.lab.outside.run(["ip", "route", "del", "local", "172.19.0.0/16", "dev", "lo"])


def _questions(world: World, number: int, sources: list[str]) -> list[Question]:
    to = world.cluster.external(number).ipv4
    return [
        Question(host=world.lab.outside, address=to, port=80, protocol=UDP[0], source_address=source, timeout=SURE)
        for source in sources
    ]


def test_a_thousand_clients_are_a_thousand_elements_and_nothing_else(world: World, thousand: list[str]) -> None:
    number = world.number()
    service = world.cluster.service("web", number, external=number, affinity_timeout=600)
    world.node.set(service, *world.cluster.endpoints("web", "a1 a2 b1 b2"))
    before = world.node.dataplane.read()
    questions = _questions(world, number, thousand)
    chosen = asked_of(world, questions)
    assert tally(ask_all(questions)).keys() == {"a1", "a2", "b1", "b2"}
    assert asked_of(world, questions) == chosen
    assert len(remembered(world)) == len(thousand)
    assert world.node.dataplane.read() == before


def test_clients_too_many_to_remember_are_served_all_the_same(
    world: World, thousand: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    number = world.number()
    monkeypatch.setattr(sets, "AFFINITY_SIZE", 16)
    service = world.cluster.service("web", number, external=number, affinity_timeout=600)
    report = world.node.set(service, *world.cluster.endpoints("web", "a1 b1"))
    world.node.restart()
    assert report is not None
    questions = _questions(world, number, thousand[:200])
    outcomes = tally(ask_all(questions))
    assert outcomes.keys() == {"a1", "b1"}
    assert sum(outcomes.values()) == 200
    assert len(remembered(world)) == 16
    chosen = {question.source_address: who for question, who in zip(questions, asked_of(world, questions), strict=True)}
    known = [question for question in questions if _is_known(world, question)]
    assert len(known) == 16
    assert asked_of(world, known) == [chosen[question.source_address] for question in known]
    world.see(world.ask("a2 node outside", world.cluster.external(number), protocols=TCP_UDP).answered("a1 b1"))


def _is_known(world: World, question: Question) -> bool:
    packed = bytes(map(int, str(question.source_address).split(".")))
    return any(key.endswith(packed) for key in remembered(world))
