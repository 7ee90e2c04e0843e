"""One world for each module; every test begins with an empty cluster, the usual settings and no connections."""

from collections.abc import Callable, Iterator

import pytest

from kproxy_core.testing.lab import Lab
from kproxy_nftables import trials

from ...programs import program
from .altered import NO_FLAGS
from .world import World


@pytest.fixture(scope="module")
def an_older_kernel() -> Iterator[None]:
    """Have modes that are opened in this process find a kernel on which nobody can hold a table for good."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "HELD", NO_FLAGS)
        yield


@pytest.fixture(scope="module")
def shared_world(shared_lab: Lab) -> Iterator[World]:
    """The module's world."""
    world = World(shared_lab)
    yield world
    world.node.close()


@pytest.fixture
def world(shared_world: World) -> World:
    """The module's world, made empty."""
    shared_world.reset()
    return shared_world


@pytest.fixture
def nft(shared_world: World) -> Callable[..., str]:
    """Run nft in the node: its output; it must succeed. ``stdin`` is a script for ``-f -``."""
    path = program("nft")

    def run(*arguments: str, stdin: str | None = None) -> str:
        return shared_world.lab.node.run([path, *arguments], input=stdin).stdout

    return run
