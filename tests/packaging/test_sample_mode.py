"""A stranger's mode: small, installed beside the core's wheel from its own folder, and proved there by its own test."""

import json
import shutil
from pathlib import Path

import pytest

from .conftest import ROOT, Installation, install

SAMPLE = ROOT / "examples" / "nfttext"
SUBSET = "TestScenarios or second_sync or not_answered or kill_at or not_touched or cleanup or same_at_any_size"
"""Of its conformance test: all scenarios, and laws that take seconds. The oracle and the rest take minutes more."""


@pytest.fixture(scope="module")
def beside_the_core(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An environment of the core's wheel and the sample's folder."""
    folder = tmp_path_factory.mktemp("stranger")
    shutil.copytree(SAMPLE, folder / "nfttext", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    (wheel,) = dist.glob("kproxy_core-*.whl")
    made = install(folder / "environment", [Path(f"{wheel}[testing]"), folder / "nfttext"])
    shutil.copytree(folder / "nfttext" / "tests", made.folder / "tests")
    return made


def test_contract_and_kit_suffice_for_a_mode_of_two_hundred_lines() -> None:
    lines = {str(path.relative_to(SAMPLE)): len(path.read_text().splitlines()) for path in SAMPLE.rglob("*.py")}
    assert {"src/kproxy_nfttext/plugin.py", "tests/test_conformance.py"} <= set(lines)
    assert sum(lines.values()) <= 200, lines


@pytest.mark.index
def test_it_is_found_and_loads(beside_the_core: Installation) -> None:
    done = beside_the_core.run("kproxy", "modes", "--json")
    assert done.returncode == 0, done.stderr
    (mode,) = json.loads(done.stdout)["modes"]
    assert (mode["name"], mode["distribution"], mode["loads"], mode["error"]) == ("nfttext", "kproxy-nfttext", True, "")


@pytest.mark.index
@pytest.mark.kernel
@pytest.mark.slow
def test_its_conformance_test_passes(beside_the_core: Installation) -> None:
    done = beside_the_core.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", "tests", "-k", SUBSET)
    assert done.returncode == 0, done.stdout + done.stderr
    skips = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert all("needs " in line or "lacks the capability" in line for line in skips), skips
    assert " passed" in done.stdout
