"""What the kit thinks of outcomes: right ones pass, and each wrong one is told."""

import random

import pytest
from attrs import evolve

from kproxy_core.model.addresses import Family
from kproxy_core.model.names import Protocol
from kproxy_core.testing.conformance.expectations import SURE
from kproxy_core.testing.conformance.judgement import Memory, Put, fits, judge, questions, sources
from kproxy_core.testing.conformance.places import Places
from kproxy_core.testing.conformance.scenario import DROPPED, REFUSED, UNCLAIMED, Answers, Ask, Expect, Target, answered
from kproxy_core.testing.lab import (
    DROP_TIMEOUT,
    AddressPair,
    Answer,
    Closed,
    Dropped,
    Host,
    Outcome,
    Question,
    Refused,
    Unreachable,
)

PLACES = Places()
OWNERS = PLACES.owners()


class Somewhere(Host):
    """A host of no lab."""

    def __init__(self, name: str) -> None:
        pair = PLACES.hosts[name]
        self.name, self.ipv4, self.ipv6, self.pod = name, pair.ipv4, pair.ipv6, None


def put(
    expect: Expect, *, target: str = "cluster 1", protocol: Protocol = Protocol.TCP, origin: str = "a2", **more: object
) -> Put:
    """A question of a scenario."""
    kind, what = target.split()
    goal = Target(kind, what)
    ask = Ask(origins=(origin,), to=(goal,), expect=expect, protocols=(protocol,), **more)  # type: ignore[arg-type]
    question = Question(
        host=Somewhere(origin), address=PLACES.address(goal, Family.IPV4), port=PLACES.port(goal, ask.port), protocol=protocol
    )
    return Put(ask=ask, target=goal, family=Family.IPV4, question=question)


def answer(server: str, client: str = "10.244.1.11") -> Answer:
    """An answer to a2, which is 10.244.1.11."""
    return Answer(
        server=server,
        port=8080,
        protocol=Protocol.TCP,
        client=client,
        client_port=1,
        local="10.244.1.10",
        source="10.244.1.11",
        source_port=1,
        seconds=0.0,
    )


MASQUERADED = answer("a1", client="172.18.0.2")
EITHER = answered("a1 b1")
MIXED = Expect("answered", (Answers(("a1",), "masqueraded"), Answers(("b1",), "kept")))


def told(one: Put, outcome: Outcome, *, strict: bool = True) -> str:
    """What is wrong with one outcome."""
    return judge([one], [outcome], Memory(), OWNERS, strict=strict).get(0, "")


@pytest.mark.parametrize(
    ("one", "outcome"),
    [
        (put(EITHER), answer("a1")),
        (put(EITHER), MASQUERADED),
        (put(answered("a1", "kept")), answer("a1")),
        (put(answered("a1", "masqueraded")), MASQUERADED),
        (put(MIXED), MASQUERADED),
        (put(MIXED), answer("b1")),
        (put(REFUSED), Refused(by="rst")),
        (put(REFUSED, protocol=Protocol.UDP), Refused(by="icmp")),
        (put(REFUSED, protocol=Protocol.SCTP), Refused(by="icmp")),
        (put(DROPPED), Dropped()),
        (put(DROPPED), Dropped(locally=True)),
        (put(UNCLAIMED), Dropped()),
        (put(UNCLAIMED), Unreachable(reason="EHOSTUNREACH")),
        (put(UNCLAIMED, target="host b1", port="9"), Refused(by="rst")),
        (put(UNCLAIMED, target="host b1"), answer("b1")),
        (put(UNCLAIMED, target="host b1", port="8081"), answer("b1:8081")),
    ],
)
def test_what_is_right(one: Put, outcome: Outcome) -> None:
    assert told(one, outcome) == ""


@pytest.mark.parametrize(
    ("one", "outcome", "complaint"),
    [
        (put(EITHER), answer("b2"), "answered by another than a1, b1: b2 saw"),
        (put(EITHER), Dropped(), "no answer"),
        (put(EITHER), Closed(by="fin"), "no answer"),
        (put(EITHER), Refused(by="rst"), "no answer"),
        (put(answered("a1", "kept")), MASQUERADED, "the client's address was not kept"),
        (put(answered("a1", "masqueraded")), answer("a1"), "the client's address was kept"),
        (put(MIXED), answer("a1"), "the client's address was kept"),
        (put(REFUSED), Refused(by="icmp"), "not refused by rst"),
        (put(REFUSED), Dropped(), "not refused by rst"),
        (put(REFUSED), answer("a1"), "not refused by rst"),
        (put(REFUSED, protocol=Protocol.UDP), Dropped(), "not refused by icmp"),
        (put(REFUSED, protocol=Protocol.SCTP), Refused(by="abort"), "not refused by icmp"),
        (put(DROPPED), Refused(by="rst"), "not dropped"),
        (put(DROPPED), answer("a1"), "not dropped"),
        (put(UNCLAIMED), answer("a1"), "not let go on its way"),
        (put(UNCLAIMED), Refused(by="rst"), "not let go on its way"),
        (put(UNCLAIMED, target="host b1"), Dropped(), "no answer"),
        (put(UNCLAIMED, target="host b1"), answer("a1"), "answered by another than b1"),
        (put(UNCLAIMED, target="host b1"), answer("b1", client="172.18.0.2"), "the client's address was not kept"),
        (put(UNCLAIMED, target="host b1", port="9"), answer("a1"), "reached"),
    ],
)
def test_what_is_wrong(one: Put, outcome: Outcome, complaint: str) -> None:
    assert told(one, outcome).startswith(complaint)


def test_without_rst_any_refusal_will_do() -> None:
    assert told(put(REFUSED), Refused(by="icmp"), strict=False) == ""
    assert told(put(REFUSED), Dropped(), strict=False) == "not refused: Dropped(connected=False, locally=False)"


def test_drops_are_waited_for_briefly_and_all_else_surely() -> None:
    assert put(DROPPED).within(None).timeout == put(DROPPED).within(0.1).timeout == DROP_TIMEOUT
    sure = evolve(put(EITHER), question=evolve(put(EITHER).question, timeout=SURE))
    assert sure.within(None).timeout == SURE
    assert sure.within(0.5).timeout == 0.5


# -- over several packets


def several(ask: Put, servers: str) -> tuple[list[Put], list[Outcome]]:
    """The same question several times, and who answered."""
    names = servers.split()
    return [ask] * len(names), [answer(name) for name in names]


def test_a_client_is_answered_alike_as_long_as_its_server_is_expected() -> None:
    memory = Memory()

    def wrong(expect: Expect, servers: str) -> list[str]:
        return list(judge(*several(put(expect, alike="chosen"), servers), memory, OWNERS, strict=True).values())

    assert wrong(EITHER, "a1 a1") == []
    assert wrong(EITHER, "a1 b1") == ["answered by b1, before by a1: b1 saw 10.244.1.11, the client was 10.244.1.11"]
    assert wrong(answered("b1 b2"), "b2 b2") == []
    assert wrong(answered("a1 b1 b2"), "b2") == []
    assert len(wrong(answered("a1 b1 b2"), "a1")) == 1


def test_everybody_as_before_is_too_much_of_the_same() -> None:
    memory = Memory()
    judge(*several(put(EITHER, alike="chosen"), "a1"), memory, OWNERS, strict=True)
    for servers, count in (("a1", 1), ("b1", 0), ("a1 b1", 0)):
        found = judge(*several(put(EITHER, unlike="chosen"), servers), memory, OWNERS, strict=True)
        assert len(found) == count, servers


def test_every_server_must_have_answered() -> None:
    assert judge(*several(put(EITHER, every=True), "a1 b1 a1"), Memory(), OWNERS, strict=True) == {}
    found = judge(*several(put(EITHER, every=True), "a1 a1"), Memory(), OWNERS, strict=True)
    assert found == {0: "TCP over IPv4: of 2 none was answered by b1"}


def test_shares() -> None:
    generator = random.Random(7)
    shares = {"a": 1, "b": 2, "c": 5}
    drawn = generator.choices(list(shares), weights=list(shares.values()), k=900)
    assert fits(drawn, shares)
    assert fits(["a", "b", "b", "c", "c", "c", "c", "c"] * 100, shares)
    assert not fits(generator.choices(list(shares), k=900), shares)
    assert not fits([*drawn, "d"], shares)
    assert not fits(["c"] * 900, shares)
    assert not fits(generator.choices("abcdef", weights=[10, 10, 10, 10, 10, 5], k=2000), dict.fromkeys("abcdef", 1))


def test_shares_that_are_not_met_are_told() -> None:
    found = judge(*several(put(EITHER, shares=(("a1", 1), ("b1", 1))), "a1 " * 200), Memory(), OWNERS, strict=True)
    assert found == {0: "TCP over IPv4: {'a1': 200} is too far from {'a1': 1, 'b1': 1}"}


# -- questions


@pytest.mark.parametrize(
    ("written", "family", "found"),
    [
        ("", Family.IPV4, [""]),
        ("0", Family.IPV6, ["fd00:18::100"]),
        ("each", Family.IPV4, ["172.18.0.100", "172.18.0.101", "172.18.0.102", "172.18.0.103"]),
        ("{a1 ipv4}, {a1 ipv6}", Family.IPV4, ["10.244.1.10"]),
        ("172.19.0.0/30", Family.IPV4, ["172.19.0.1", "172.19.0.2"]),
        ("172.19.0.0/30", Family.IPV6, []),
    ],
)
def test_sources(written: str, family: Family, found: list[str]) -> None:
    assert sources(written, family, PLACES) == found


def test_questions_are_put_in_each_family_protocol_and_time() -> None:
    class Paper:
        hosts = {name: Somewhere(name) for name in PLACES.hosts}  # noqa: RUF012
        families: tuple[int, ...] = (2, 10)

    ask = Ask(origins=("a2", "node"), to=(Target("cluster", "1"), Target("address", "{b1 ipv6}")), expect=EITHER, times=2)
    made = list(questions(ask, Paper(), PLACES, OWNERS))  # type: ignore[arg-type]
    assert len(made) == 2 * 3 * 3 * 2
    assert {one.question.address for one in made} == {"10.96.0.1", "fd00:96::1", PLACES.hosts["b1"].ipv6}
    Paper.families = (2,)
    assert {one.family for one in questions(ask, Paper(), PLACES, OWNERS)} == {Family.IPV4}  # type: ignore[arg-type]


def test_pairs_are_what_they_seem() -> None:
    assert PLACES.frontend("external", 7) == AddressPair(ipv4="192.0.2.7", ipv6="2001:db8:e::7")
    assert PLACES.expand("{nodePort 7} {pods node2 ipv4} {services ipv6}") == "32007 10.244.2.0/24 fd00:96::/112"
