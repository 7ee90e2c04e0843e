"""What belongs to others is not touched, and a cleanup leaves nothing that is the mode's own."""

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import pytest

from kproxy_core.testing.conformance.laws.belongings import KINDS, Belongings, Listing, NotHereError, is_kept
from kproxy_core.testing.conformance.laws.change import whole_change
from kproxy_core.testing.conformance.laws.faults import good
from kproxy_core.testing.conformance.mode_tests import ModeTests
from kproxy_core.testing.lab import Host


class NeighbourLaws(ModeTests):
    """``strangers`` are the kinds of things that others have on a node, each a test; a mode may add some of its own kind."""

    strangers: ClassVar[Mapping[str, Belongings]] = KINDS

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make a test for each kind."""
        if "kind" in metafunc.fixturenames:
            metafunc.parametrize("kind", self.strangers)

    def test_what_others_have_is_not_touched(self, kind: str) -> None:
        """Through a first start, changes, a restart and a cleanup; afterwards there is what there was, and nothing else."""
        world, stranger = self.world, self.strangers[kind]
        change, node, host = whole_change(world), world.node, world.lab.node
        node.dataplane.cleanup()
        with planted(stranger, host) as theirs:
            node.restart_untold()
            good(node.set(*change.before))
            assert is_kept(theirs, stranger.listing(host))
            change.look_before()
            good(node.set(*change.after))
            good(node.restart())
            change.look_after()
            assert is_kept(theirs, stranger.listing(host))
            node.dataplane.cleanup()
            assert stranger.listing(host) == theirs

    def test_a_cleanup_leaves_nothing(self) -> None:
        """Whatever can be listed here is as before; a fresh process finds nothing of ours, and a second cleanup neither."""
        world, node = self.world, self.world.node
        node.dataplane.cleanup()
        before = listings(world.lab.node, self.strangers)
        assert not node.dataplane.leftovers()
        change = whole_change(world)
        node.restart_untold()
        good(node.set(*change.before))
        good(node.set(*change.after))
        there = node.dataplane.leftovers()
        assert there
        node.close()
        with world.lab.node.enter(), node.backend.open() as other:
            assert other.leftovers() == there
            assert other.cleanup() == there
            assert not other.leftovers()
            assert not other.cleanup()
            assert not other.read().fragments
        assert listings(world.lab.node, self.strangers) == before
        node.restart()
        change.look_after()


def listings(host: Host, kinds: Mapping[str, Belongings]) -> dict[str, Listing]:
    """All that can be listed on this machine."""
    found = {}
    for name, kind in kinds.items():
        try:
            kind.require(host)
        except NotHereError:
            continue
        found[name] = kind.listing(host)
    return found


@contextmanager
def planted(stranger: Belongings, host: Host) -> Iterator[Listing]:
    """Have others' things there for as long as this lasts; yields the listing. Skips where there can be none."""
    try:
        stranger.require(host)
    except NotHereError as error:
        pytest.skip(f"nobody can have such things here: {error}")
    stranger.plant(host)
    theirs = stranger.listing(host)
    assert theirs
    try:
        yield theirs
    except BaseException:
        with contextlib.suppress(subprocess.CalledProcessError):  # what is not there any more is what has gone wrong
            stranger.uproot(host)
        raise
    stranger.uproot(host)
