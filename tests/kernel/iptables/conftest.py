"""One world for each module and variant of iptables; every test begins with an empty cluster and the usual settings."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy_core.kernel.iptables import Variant, find_program
from kproxy_core.model.addresses import Family
from kproxy_core.testing.conformance.world import World
from kproxy_core.testing.lab import Lab, can_build
from kproxy_iptables.backend import IptablesBackend

Run = Callable[..., str]


@pytest.fixture(scope="module", params=[Variant.NFT, Variant.LEGACY], ids=["nft", "legacy"])
def variant(request: pytest.FixtureRequest) -> Variant:
    """The variant of iptables that the module's world uses."""
    found: Variant = request.param
    if any(find_program(found, family, "restore") is None for family in Family):
        pytest.skip(f"iptables ({found.value}) is not installed")
    return found


@pytest.fixture(scope="module")
def failed_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the world's mode keeps the texts that were refused."""
    return tmp_path_factory.mktemp("failed")


@pytest.fixture(scope="module")
def shared_world(variant: Variant, failed_texts: Path) -> Iterator[World[IptablesBackend]]:
    """The module's world, in a lab of its own: nothing of the other variant is to be there."""
    if not can_build():
        pytest.skip("no privilege to make network namespaces (run as root, or: python -m kproxy_core.testing.lab pytest)")
    with Lab() as lab:
        world = World(lab, IptablesBackend(variant=variant.value, failed_texts=failed_texts))
        yield world
        world.close()


@pytest.fixture
def world(shared_world: World[IptablesBackend]) -> World[IptablesBackend]:
    """The module's world, made empty."""
    shared_world.reset()
    return shared_world


@pytest.fixture
def iptables(shared_world: World[IptablesBackend], variant: Variant) -> Run:
    """Run iptables, ip6tables, or one of their relatives, of the world's variant in the node: its output; it must succeed."""

    def run(arguments: str, stdin: str | None = None) -> str:
        program, *rest = arguments.split()
        stem, _, action = program.partition("-")
        word = "nft" if variant is Variant.NFT else "legacy"
        name = "-".join(part for part in (stem, word, action) if part)
        return shared_world.lab.node.run([name, *rest], input=stdin).stdout

    return run


@pytest.fixture
def shell(shared_world: World[IptablesBackend]) -> Run:
    """Run any other program in the node: its output; it must succeed."""

    def run(arguments: str) -> str:
        return shared_world.lab.node.run(arguments.split()).stdout

    return run
