"""Laws of the nftables mode under the real engine: the order of events, increments, restarts and faults make no difference."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy_core.engine import events as e
from kproxy_core.model.changes import Change
from kproxy_core.testing.oracle import Scene
from kproxy_core.testing.playbook import Playbook
from kproxy_core.testing.strategies import changes_leading_to, scenes

from ..unit.nftables.on_paper import BACKEND, compiled, read, resolved
from ..unit.nftables.paper_mode import Paper, PaperBackend, no_fault

Story = tuple[Scene, tuple[Change, ...]]
HALF = max(1, settings().max_examples // 2)
PAUSES = st.lists(st.sampled_from([0.0, 0.0, 0.2, 1.5]), min_size=1, max_size=4)
LONG = 120.0


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """A scene, and a history that leads to it."""
    scene = draw(scenes())
    return scene, draw(changes_leading_to(scene.snapshot))


def daemon(paper: Paper, scene: Scene) -> Playbook[PaperBackend]:
    return Playbook(
        PaperBackend(paper, everywhere=scene.site.node_ports_everywhere), scene.settings, map(str, scene.site.addresses)
    )


def tell(play: Playbook[PaperBackend], history: Sequence[Change], pauses: Sequence[float]) -> None:
    for number, change in enumerate(history):
        play >> [change]
        play.advance(pauses[number % len(pauses)])
    play.settle(LONG)


def held(paper: Paper) -> object:
    dataplane = PaperBackend(paper).open()
    return BACKEND.canonical(dataplane.read())


@settings(max_examples=HALF)
@given(stories(), PAUSES)
def test_the_order_of_events_and_increments_make_no_difference(story: Story, pauses: list[float]) -> None:
    scene, history = story
    paper = Paper()
    tell(daemon(paper, scene), history, pauses)
    assert held(paper) == BACKEND.canonical(compiled(resolved(scene)))


@settings(max_examples=HALF)
@given(stories(), PAUSES)
def test_a_check_and_a_restart_after_any_history_change_nothing(story: Story, pauses: list[float]) -> None:
    scene, history = story
    paper = Paper()
    play = daemon(paper, scene)
    tell(play, history, pauses)
    before, operations = read(paper.tables), paper.operations
    play >> e.CheckRequested()
    play.close()
    play = daemon(paper, scene) >> history
    play.settle(LONG)
    assert play.reports[-1].ok
    assert paper.operations == operations
    assert read(paper.tables) == before


@settings(max_examples=HALF)
@given(stories(), PAUSES, st.integers(1, 400), st.booleans())
def test_a_refusal_anywhere_is_made_up_for(story: Story, pauses: list[float], number: int, crash: bool) -> None:
    """The nth operation is refused; then the process may end, too. The next attempt leads to the same as always."""
    scene, history = story
    paper = Paper(fault=lambda now: now == number)
    play = daemon(paper, scene)
    tell(play, history, pauses)
    if crash:
        play.close()
        play = daemon(paper, scene)
        tell(play, history, [0.0])
    paper.fault = no_fault
    play.advance(400.0)
    play.settle(LONG)
    assert held(paper) == BACKEND.canonical(compiled(resolved(scene)))
    assert not play.engine.quarantine.refusals
