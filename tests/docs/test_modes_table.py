"""The README's table of modes says what the last run of the conformance kit came to."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

from kproxy_core.testing.conformance.corpus import corpus

ROOT = Path(__file__).parents[2]
REMEDY = "run: python tools/modes.py"


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("modes", ROOT / "tools" / "modes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_has_the_table_of_the_results() -> None:
    tool = _tool()
    readme = (ROOT / "README.md").read_text()
    assert tool.SECTION.search(readme)
    assert tool.with_table(readme, json.loads(tool.RESULTS.read_text())) == readme, REMEDY


def test_the_results_are_those_of_the_scenarios_that_there_are() -> None:
    results = json.loads(_tool().RESULTS.read_text())
    assert results["scenarios"] == [scenario.name for scenario in corpus()], REMEDY
    for mode, result in results["modes"].items():
        assert result["passed"] + len(result["failed"]) + len(result["skipped"]) == len(corpus()), f"{mode}: {REMEDY}"


def test_every_mode_of_this_repository_is_in_the_results() -> None:
    results = json.loads(_tool().RESULTS.read_text())
    plugins = {path.name.removeprefix("kproxy_") for path in (ROOT / "plugins").iterdir() if (path / "pyproject.toml").exists()}
    assert set(results["modes"]) == plugins, REMEDY


def test_a_failure_shows_in_the_table() -> None:
    tool = _tool()
    results = {"modes": {"nftables": {"passed": 1, "failed": ["one"], "skipped": {"two": "needs SCTP"}, "packets": 12345}}}
    row = next(line for line in tool.table(results).splitlines() if line.startswith("| nftables"))
    assert row.endswith("| 1 of 2 scenarios, 12,345 packets, without `SCTP` |")
