"""The questions that a scenario's packets are, and what is wrong with the outcomes."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import TypeVar

from attrs import define, evolve, field, frozen

from kproxy_core.model.addresses import Family
from kproxy_core.testing.conformance.expectations import SURE, describe, not_answered, not_closed, not_dropped, not_refused
from kproxy_core.testing.conformance.places import Places
from kproxy_core.testing.conformance.scenario import Ask, Expect, Target
from kproxy_core.testing.conformance.world import SERVED_PORTS
from kproxy_core.testing.lab import DROP_TIMEOUT, Answer, Dropped, Lab, Outcome, Question, Refused, Unreachable

Client = tuple[str, str, Family, str]
"""Who is to be answered by the same server each time: host, its address if it is a chosen one, family and protocol."""

Owners = Mapping[str, str]
"""Who has an address."""

K = TypeVar("K")
V = TypeVar("V")


@frozen(kw_only=True)
class Put:
    """A question and what it is asked for."""

    ask: Ask
    target: Target
    family: Family
    question: Question

    @property
    def protocol(self) -> str:
        """The name of the protocol."""
        return self.question.protocol.name

    @property
    def client(self) -> Client:
        """Who asks."""
        return self.question.host.name, self.question.source_address or "", self.family, self.protocol

    def within(self, seconds: float | None) -> Question:
        """The question with some time to be answered; without any given as much as what is expected needs."""
        if self.ask.expect.fate == "dropped":
            return evolve(self.question, timeout=DROP_TIMEOUT)
        return self.question if seconds is None else evolve(self.question, timeout=min(seconds, self.question.timeout))

    def __str__(self) -> str:
        return f"{self.target}: {describe(self.question)}"


def questions(ask: Ask, lab: Lab, places: Places, owners: Owners) -> Iterator[Put]:
    """Every question that an entry of a scenario stands for, in the families that the lab has."""
    for origin in ask.origins:
        for target in ask.to:
            for family in ask.families:
                address = places.address(target, family)
                if not address or (family is Family.IPV6 and len(lab.families) < 2):
                    continue
                for source in sources(ask.source, family, places):
                    for protocol in ask.protocols:
                        question = Question(
                            host=lab.hosts[origin],
                            address=address,
                            port=places.port(target, ask.port),
                            protocol=protocol,
                            source_address=source or None,
                            timeout=SURE,
                        )
                        put = Put(ask=ask, target=target, family=family, question=question)
                        if ask.expect.fate == "unclaimed" and _is_silent(put, owners):
                            put = evolve(put, question=evolve(question, timeout=DROP_TIMEOUT))
                        for _ in range(ask.times):
                            yield put


def sources(written: str, family: Family, places: Places) -> list[str]:
    """The addresses from which an entry is asked in a family; the empty one leaves it to the kernel."""
    plan = places.plan
    if not written:
        return [""]
    if written == "each" or written.isdecimal():
        numbers = range(plan.outside_addresses) if written == "each" else [int(written)]
        pairs = [plan.client_addresses(number) for number in numbers]
        return [pair.ipv6 if family is Family.IPV6 else pair.ipv4 for pair in pairs]
    if "/" in written:
        network = ip_network(places.expand(written))
        return [str(host) for host in network.hosts()] if (network.version == 6) == (family is Family.IPV6) else []
    addresses = [places.expand(each) for each in written.split(",")]
    return [each.strip() for each in addresses if (":" in each) == (family is Family.IPV6)]


@define
class Memory:
    """Who answered whom, by the name under which it is to be remembered."""

    _servers: dict[str, dict[Client, str]] = field(factory=dict)

    def complaint(self, ask: Ask, client: Client, server: str) -> str:
        """Remember, or compare with what is remembered, unless that server is not among those expected any more."""
        remembered = self._servers.setdefault(ask.alike, {})
        known = remembered.setdefault(client, server)
        if known not in ask.expect.servers:
            known = remembered[client] = server
        return "" if known == server else f"answered by {server}, before by {known}"

    def all_as_before(self, name: str, answers: Mapping[Client, str]) -> bool:
        """Whether each was answered as is remembered."""
        known = self._servers.get(name, {})
        return all(known.get(client) == server for client, server in answers.items())


def judge(put: Sequence[Put], outcomes: Sequence[Outcome], memory: Memory, owners: Owners, *, strict: bool) -> dict[int, str]:
    """What is wrong, by the number of the question. ``strict`` wants RST for refused TCP."""
    found: dict[int, str] = {}
    for number, (one, outcome) in enumerate(zip(put, outcomes, strict=True)):
        wrong = complaint(one, outcome, owners, strict=strict)
        if not wrong and one.ask.alike and isinstance(outcome, Answer):
            wrong = memory.complaint(one.ask, one.client, outcome.server)
        if wrong:
            found[number] = f"{wrong}: {_shown(outcome)}"
    for numbers in _grouped((id(one.ask), number) for number, one in enumerate(put)).values():
        first = min(numbers)
        wrong = _as_a_whole([put[number] for number in numbers], [outcomes[number] for number in numbers], memory)
        if wrong and first not in found:
            found[first] = wrong
    return found


def _grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _as_a_whole(put: Sequence[Put], outcomes: Sequence[Outcome], memory: Memory) -> str:
    ask = put[0].ask
    answers = [(one, outcome.server) for one, outcome in zip(put, outcomes, strict=True) if isinstance(outcome, Answer)]
    if ask.every:
        for (family, protocol), names in _grouped(((one.family, one.protocol), server) for one, server in answers).items():
            silent = ask.expect.servers - set(names)
            if silent:
                return f"{protocol} over {family.label}: of {len(names)} none was answered by {', '.join(sorted(silent))}"
    if ask.shares:
        for (family, protocol), names in _grouped(((one.family, one.protocol), server) for one, server in answers).items():
            if not fits(names, dict(ask.shares)):
                return f"{protocol} over {family.label}: {dict(Counter(names))} is too far from {dict(ask.shares)}"
    if ask.unlike and memory.all_as_before(ask.unlike, {one.client: server for one, server in answers}):
        return f"everybody is answered by the same server as in {ask.unlike}"
    return ""


def fits(servers: Sequence[str], shares: Mapping[str, int]) -> bool:
    """Whether servers were chosen as shares say: a chi-square test that by chance fails less than once in a hundred million."""
    counts, whole = Counter(servers), sum(shares.values())
    if not counts.keys() <= shares.keys():
        return False
    expected = {server: len(servers) * share / whole for server, share in shares.items()}
    distance = sum((counts[server] - wanted) ** 2 / wanted for server, wanted in expected.items())
    freedom = len(shares) - 1
    return distance <= freedom + 10 * math.sqrt(2 * freedom) + 20


def complaint(one: Put, outcome: Outcome, owners: Owners, *, strict: bool) -> str:
    """What is wrong with an outcome by itself; empty if it is what is expected."""
    match one.ask.expect.fate:
        case "answered":
            return _of_answered(one.ask.expect, outcome)
        case "refused":
            return not_refused(one.question, outcome) if strict else "" if isinstance(outcome, Refused) else "not refused"
        case "dropped":
            return not_dropped(outcome)
    return _of_unclaimed(one, outcome, owners)


def _of_answered(expect: Expect, outcome: Outcome) -> str:
    client = expect.client(outcome.server) if isinstance(outcome, Answer) else ""
    return not_answered(outcome, expect.servers, "" if client == "either" else client)


def _is_silent(one: Put, owners: Owners) -> bool:
    """Whether nobody answers what no Service claims: nobody has the address, or a closed port of SCTP says nothing."""
    owner = owners.get(one.question.address)
    return owner is None or (one.question.port not in SERVED_PORTS and one.protocol == "SCTP")


def _of_unclaimed(one: Put, outcome: Outcome, owners: Owners) -> str:
    owner = owners.get(one.question.address)
    if owner is None:
        lost = isinstance(outcome, Dropped | Unreachable)
        return "" if lost else "not let go on its way"
    if one.question.port in SERVED_PORTS:
        server = owner if one.question.port == SERVED_PORTS[0] else f"{owner}:{one.question.port}"
        return not_answered(outcome, {server}, "" if one.question.host.name == owner else "kept")
    return not_dropped(outcome) if one.protocol == "SCTP" else not_closed(outcome)


def _shown(outcome: Outcome) -> str:
    if isinstance(outcome, Answer):
        return f"{outcome.server} saw {outcome.client}, the client was {outcome.source}"
    return str(outcome)
