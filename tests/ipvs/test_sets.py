"""Sets by netlink work on this kernel, too: on the guest's 6.1, where it is not this machine's own."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ipvs, pytest.mark.kernel]
TESTS = Path(__file__).parents[1] / "kernel" / "wire" / "test_ipset.py"


def test_the_tests_of_sets_pass_here() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS)]
    done = subprocess.run(command, cwd=TESTS.parents[3], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
