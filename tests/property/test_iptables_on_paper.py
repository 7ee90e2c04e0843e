"""The iptables mode on paper: plans lead from one program to the other whatever comes between, and what is read is understood."""

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.program.program import Program, objects
from kproxy_core.testing.oracle import Scene
from kproxy_core.testing.strategies import scenes, snapshots
from kproxy_iptables.attribution import attribute

from ..unit.iptables.on_paper import BACKEND, apply, compiled, loaded, plan_between, resolved


@st.composite
def two_scenes(draw: st.DrawFn) -> tuple[Scene, Scene]:
    """The same node before and after changes in the cluster, rarely with other settings, too."""
    first = draw(scenes())
    second = draw(scenes()) if draw(st.integers(0, 3)) == 0 else evolve(first, snapshot=draw(snapshots()))
    return first, second


@given(two_scenes(), st.one_of(st.none(), st.integers(1, 40)))
def test_a_plan_leads_from_one_program_to_the_other(pair: tuple[Scene, Scene], lines_at_once: int | None) -> None:
    """In as many transactions as it may be written in: each leads only to what is there by then."""
    first, second = compiled(resolved(pair[0])), compiled(resolved(pair[1]))
    kernel = loaded(first)
    assert kernel.read() == objects(first)
    apply(kernel, plan_between(first, second), lines_at_once)
    assert kernel.read() == objects(second)
    assert plan_between(second, second) == []


@given(scenes())
def test_what_is_read_back_is_attributed_to_its_owners(scene: Scene) -> None:
    program = compiled(resolved(scene))
    found = attribute(loaded(program).read())
    assert objects(found) == objects(program)
    assert {port: each.own for port, each in found.fragments.items()} == {
        port: each.own for port, each in program.fragments.items() if each.own
    }
    assert found.common == program.common
    assert BACKEND.canonical(found) == BACKEND.canonical(program)


@given(scenes())
def test_everything_can_be_taken_away_again(scene: Scene) -> None:
    program = compiled(resolved(scene))
    kernel = loaded(program)
    apply(kernel, plan_between(program, Program()))
    assert kernel.read() == {}
