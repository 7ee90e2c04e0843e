"""Marked tests run in a guest as part of a pytest run here, with every kind of outcome."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy_core.testing.guest import GuestError, find_kernel

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

CONFTEST = """
import os, pytest
from kproxy_core.testing.guest.items import GuestItems

def pytest_configure(config):
    config.pluginmanager.register(GuestItems(lambda: "IPVS_HERE" in os.environ, time_limit=float(os.environ.get("LIMIT", "300"))))

@pytest.fixture(scope="module")
def module_of_one():
    yield 1
"""
TESTS = """
import os, pytest

def test_here_first(module_of_one): assert "KPROXY_INSIDE_A_GUEST" not in os.environ

@pytest.mark.ipvs
def test_there(module_of_one): assert "KPROXY_INSIDE_A_GUEST" in os.environ; print("printed there")

@pytest.mark.ipvs
@pytest.mark.parametrize("value", ["a b", "x]y", 3])
def test_parameters(value): assert value == 3

@pytest.mark.ipvs
def test_skipped(): pytest.skip("not today")

@pytest.mark.ipvs
@pytest.mark.xfail(strict=True)
def test_expected(): assert False

@pytest.fixture
def broken(): raise OSError("no such luck")

@pytest.mark.ipvs
def test_error(broken): pass

@pytest.mark.ipvs
def test_unwanted(): assert False

def test_here_last(module_of_one): assert "KPROXY_INSIDE_A_GUEST" not in os.environ
"""
DYING = """
import os, pytest
pytestmark = pytest.mark.ipvs
def test_before(): pass
def test_fatal():
    if "KPROXY_INSIDE_A_GUEST" in os.environ: os._exit(42)
def test_after(): pass
"""
SLOW = """
import time, pytest
@pytest.mark.ipvs
def test_slow(): time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def guests() -> None:
    try:
        find_kernel()
    except GuestError as error:
        pytest.skip(str(error))


def outcome(folder: Path, tests: str, *options: str, **variables: str) -> tuple[int, str]:
    """Run tests with the plugin in a folder; the exit status and what pytest printed."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(tests)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        "-v",
        "-rA",
        *options,
        "test_it.py",
    ]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_outcomes_are_those_of_the_guest(tmp_path: Path) -> None:
    status, text = outcome(tmp_path, TESTS, "-k", "not unwanted")
    assert status == 1, text
    assert counts(text) == {"passed": 4, "skipped": 1, "xfailed": 1, "failed": 2, "error": 1, "deselected": 1}, text
    assert "assert 'x]y' == 3" in text
    assert "OSError: no such luck" in text
    assert "printed there" in text
    assert "not today" in text


def counts(text: str) -> dict[str, int]:
    """What pytest's last line counts."""
    last = text.strip().splitlines()[-1]
    return {kind.removesuffix("s"): int(number) for number, kind in re.findall(r"(\d+) ([a-z]+)", last.partition(" in ")[0])}


def test_where_the_kernel_has_it_they_run_here(tmp_path: Path) -> None:
    status, text = outcome(tmp_path, TESTS, "-k", "there", IPVS_HERE="1")
    assert status == 1
    assert "KPROXY_INSIDE_A_GUEST" in text


def test_a_guest_that_ends_early_fails_the_rest(tmp_path: Path) -> None:
    status, text = outcome(tmp_path, DYING)
    assert status == 1
    assert counts(text) == {"passed": 1, "error": 2}, text
    assert "the guest ended without running this test: exit status 42" in text


def test_time_is_up(tmp_path: Path) -> None:
    status, text = outcome(tmp_path, SLOW, LIMIT="2")
    assert (status, counts(text)) == (1, {"error": 1}), text
    assert "it took too long" in text


def test_without_a_guest_they_are_skipped(tmp_path: Path) -> None:
    conftest = CONFTEST + "\nimport kproxy_core.testing.guest.runner as runner\nrunner._which = lambda program: None\n"
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-rs", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed, 8 skipped" in done.stdout
    assert "no IPVS in this kernel, and no guest with a kernel of its own here: on Debian, apt-get install" in done.stdout
