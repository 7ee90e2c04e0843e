"""The scenarios that come with the kit."""

import functools
from pathlib import Path

from kproxy_core.testing.conformance.reader import read_file
from kproxy_core.testing.conformance.scenario import Scenario

FOLDER = Path(__file__).parent / "scenarios"


@functools.cache
def corpus() -> tuple[Scenario, ...]:
    """Every scenario of the kit, by name. Raises ``ScenarioError`` for one that cannot be read."""
    return scenarios_in(FOLDER)


def scenarios_in(folder: Path) -> tuple[Scenario, ...]:
    """The scenarios of a folder, by name. Raises ``ScenarioError``, ``OSError``."""
    return tuple(read_file(path) for path in sorted(folder.glob("*.yaml")))
