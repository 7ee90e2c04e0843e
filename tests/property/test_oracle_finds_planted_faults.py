"""The comparison with the oracle is worth something: faults planted into the resolver, one at a time, are each found by it."""

import functools

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from kproxy_core.model.packet import Packet, Verdict
from kproxy_core.testing.interpret import interpret
from kproxy_core.testing.oracle import Scene, decide
from kproxy_core.testing.strategies import packets_at, scenes

from .planted_faults import Fault, NoLongerAppliesError, Resolve, planted
from .planted_faults_in_resolve import FAULTS

ROUNDS = 30
ROUND = settings(
    max_examples=10,
    derandomize=False,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[*HealthCheck],
)

Question = tuple[Scene, tuple[tuple[Packet, Verdict], ...]]


@functools.cache
def questions() -> tuple[Question, ...]:
    """Generated clusters with packets and the oracle's verdicts, the same ones each time: drawing them is what takes long.

    Drawn in short rounds with seeds of their own: after its first ten examples hypothesis goes on with variations of each.
    """
    collected: list[Question] = []

    def collect(scene: Scene) -> None:
        collected.append((scene, tuple((packet, decide(scene, packet)) for packet in packets_at(scene))))

    for number in range(ROUNDS):
        seed(number)(ROUND(given(scenes())(collect)))()
    return tuple(collected)


def disagrees(resolve: Resolve, question: Question) -> bool:
    """Whether the state that is resolved means anything else than the oracle says, or has no meaning at all."""
    scene, answers = question
    state = resolve(scene)
    try:
        return any(interpret(state, packet, scene.site.addresses) != verdict for packet, verdict in answers)
    except ValueError:
        return True


def test_a_copy_without_a_fault_agrees() -> None:
    with planted(None) as resolve:
        assert not any(disagrees(resolve, question) for question in questions())


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.what for fault in FAULTS])
def test_a_fault_is_found(fault: Fault) -> None:
    with planted(fault) as resolve:
        assert any(disagrees(resolve, question) for question in questions()), f"not found: {fault}"


def test_faults_differ_and_are_many() -> None:
    assert (
        len({(fault.module, fault.right, fault.wrong) for fault in FAULTS})
        == len({fault.what for fault in FAULTS})
        == len(FAULTS)
    )
    assert len(FAULTS) >= 20


def test_a_fault_that_does_not_apply_is_loud() -> None:
    gone = Fault("gone", "topology", "this text is not there", "")
    ambiguous = Fault("ambiguous", "topology", "ready", "")
    for fault in (gone, ambiguous):
        with pytest.raises(NoLongerAppliesError), planted(fault):
            pass
