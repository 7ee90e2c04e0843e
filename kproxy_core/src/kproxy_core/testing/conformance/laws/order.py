"""It does not matter in what order, or how often, a mode is told of things; and what has been told needs no second sync."""

import os
import random
from collections.abc import Iterator, Sequence
from typing import ClassVar

from attrs import frozen
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from kproxy_core.model.changes import Change
from kproxy_core.plugin.backend import AnyBackend
from kproxy_core.program.program import objects
from kproxy_core.runtime.assembly import program_for
from kproxy_core.testing.conformance.everything import everything
from kproxy_core.testing.conformance.laws.faults import good
from kproxy_core.testing.conformance.mode_tests import ModeTests
from kproxy_core.testing.oracle import Scene
from kproxy_core.testing.strategies import changes_leading_to, scenes

_PATIENCE = 5.0
_DRAWING = settings(
    derandomize=False, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
)


@frozen
class Story:
    """A scene, and two ways to tell of its cluster, with detours."""

    scene: Scene
    histories: tuple[tuple[Change, ...], tuple[Change, ...]]


class OrderLaws(ModeTests):
    """On generated clusters; ``KPROXY_SEED`` repeats a run. ``stories`` is how many clusters there are.

    ``restart_cost`` is how many operations a restart may take where nothing has changed: a mode may have to claim what is there.
    """

    stories: ClassVar[int] = 30
    restart_cost: ClassVar[int] = 0

    def test_the_order_of_events_does_not_matter(self) -> None:
        """Whatever the history of a cluster, the kernel holds what it would if it had been told of it alone, and at once."""
        node = self.world.node
        number = int(os.environ.get("KPROXY_SEED", random.SystemRandom().randrange(1 << 32)))
        backend: AnyBackend = node.backend
        for story in drawn(number, self.stories):
            for history in story.histories:
                node.restart_untold(story.scene.settings)
                for change in history:
                    node.play >> [change]
                    node.play.settle(_PATIENCE)
                good(node.play.engine.last_report)
                _, fresh = program_for(backend, history, story.scene.settings, node.addresses())
                held = backend.canonical(node.dataplane.read())
                assert held == backend.canonical(fresh), f"KPROXY_SEED={number}: {history}"

    def test_a_second_sync_and_a_restart_are_empty(self) -> None:
        """With everything there is: nothing is done, but for claims, and nothing is another one than before."""
        node = self.world.node
        good(node.set(*everything(self.world)))
        before = node.dataplane.read()
        assert objects(before)
        assert good(node.check()).operations == 0
        assert good(node.restart()).operations <= self.restart_cost
        assert node.dataplane.read() == before
        assert good(node.check()).operations == 0
        assert node.play.engine.drift_count == 0


def drawn(number: int, count: int) -> Iterator[Story]:
    """So many stories, the same for the same number."""
    found: list[Story] = []

    @st.composite
    def stories(draw: st.DrawFn) -> Story:
        scene = draw(scenes())
        return Story(scene, (draw(changes_leading_to(scene.snapshot)), draw(changes_leading_to(scene.snapshot))))

    def collect(story: Story) -> None:
        found.append(story)

    seed(number)(settings(_DRAWING, max_examples=count)(given(stories())(collect)))()
    yield from _told_whole(found)


def _told_whole(stories: Sequence[Story]) -> Iterator[Story]:
    """Without those that keep back a kind of object: nothing is done before all have been listed."""
    return (story for story in stories if story.scene.snapshot.synced)
