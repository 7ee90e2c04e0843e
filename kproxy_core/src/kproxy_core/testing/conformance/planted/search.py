"""Looks on paper for the scenarios that must show a fault, the cheapest first, so that the kernel is asked little."""

from collections.abc import Iterable, Iterator

from attrs import evolve, frozen

from kproxy_core.model.state import NodeState
from kproxy_core.resolve.node import node_context
from kproxy_core.resolve.resolve import resolve
from kproxy_core.testing.conformance.crosscheck import SentPacket, packets_of
from kproxy_core.testing.conformance.planted.catalogue import Fault
from kproxy_core.testing.conformance.planted.faulty import state_with_fault
from kproxy_core.testing.conformance.scenario import Open, Packets, Scenario, Step, Wait
from kproxy_core.testing.interpret import interpret
from kproxy_core.testing.oracle import Scene

_DROP, _CONVERSATION, _STEP, _PACKET = 0.4, 1.0, 0.02, 0.002
"""What they cost in seconds, roughly."""


@frozen(kw_only=True)
class Candidate:
    """A scenario, cut down to the packets that should show a fault; what it costs, in seconds, roughly."""

    scenario: Scenario
    cost: float


class Search:
    """Scenarios on paper: each is resolved once, whatever the number of faults."""

    def __init__(self, scenarios: Iterable[Scenario], *, everywhere: bool) -> None:
        self._scenarios = {scenario.name: scenario for scenario in scenarios}
        self._everywhere = everywhere
        self._known: dict[str, tuple[tuple[SentPacket, NodeState], ...]] = {}

    def candidates(self, fault: Fault) -> Iterator[Candidate]:
        """The scenarios that show a fault: those that it names, whole; then those of which paper says so, the cheapest first."""
        named = (self._scenarios[name] for name in fault.shown_by if name in self._scenarios)
        yield from (Candidate(scenario=scenario, cost=cost(scenario)) for scenario in named)
        for scenario in sorted(self._scenarios.values(), key=cost):
            lines = self.lines_that_differ(fault, scenario)
            if lines:
                shorter = _only(scenario, lines)
                yield Candidate(scenario=shorter, cost=cost(shorter))

    def lines_that_differ(self, fault: Fault, scenario: Scenario) -> frozenset[int]:
        """The lines whose packets meet something else than is written when the state is rendered with a fault."""
        faulty: dict[int, NodeState] = {}
        lines: set[int] = set()
        for sent, state in self._sent(scenario):
            if sent.ask.line not in lines:
                if id(state) not in faulty:
                    faulty[id(state)] = state_with_fault(state, fault)
                if sent.complaint(interpret(faulty[id(state)], sent.packet, sent.scene.site.addresses)):
                    lines.add(sent.ask.line)
        return frozenset(lines)

    def _sent(self, scenario: Scenario) -> tuple[tuple[SentPacket, NodeState], ...]:
        """The packets of a scenario, each with the state that it meets."""
        if scenario.name not in self._known:
            states: dict[int, NodeState] = {}
            found = []
            for sent in packets_of(scenario, everywhere=self._everywhere):
                if id(sent.scene) not in states:
                    states[id(sent.scene)] = _state(sent.scene)
                found.append((sent, states[id(sent.scene)]))
            self._known[scenario.name] = tuple(found)
        return self._known[scenario.name]


def _state(scene: Scene) -> NodeState:
    site = scene.site
    context = node_context(scene.snapshot, site.addresses, scene.settings, node_ports_everywhere=site.node_ports_everywhere)
    return resolve(scene.snapshot, context, scene.settings)


def _only(scenario: Scenario, lines: frozenset[int]) -> Scenario:
    """The scenario with packets on these lines alone; conversations stay, since later steps go on with them."""
    steps: list[Step] = []
    for step in scenario.steps:
        if not isinstance(step, Packets):
            steps.append(step)
        elif asks := tuple(ask for ask in step.asks if ask.line in lines):
            steps.append(evolve(step, asks=asks))
    return evolve(scenario, steps=tuple(steps))


def cost(scenario: Scenario) -> float:
    """What running a scenario costs, in seconds, roughly."""
    waits = sum(step.seconds for step in scenario.steps if isinstance(step, Wait))
    talks = sum(_CONVERSATION for step in scenario.steps if isinstance(step, Open))
    told = [step for step in scenario.steps if isinstance(step, Packets)]
    drops = sum(_DROP for step in told if any(ask.expect.fate == "dropped" for ask in step.asks))
    packets = sum(ask.times * len(ask.origins) * len(ask.to) for step in told for ask in step.asks)
    return waits + talks + drops + _PACKET * packets + _STEP * len(scenario.steps)
