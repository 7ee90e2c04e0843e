"""What ``kproxy new-mode`` writes is installed, proved and run at once, as it is."""

import os
import site
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Running, kproxy
from .on_a_node import node_under_test

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]

NAME = "fresh_mode"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an environment with a fresh mode in it, and all that is in the one of these tests."""
    done = kproxy("new-mode", NAME, "--directory", str(tmp_path))
    assert done.status == 0, done.err
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Not "system_site_packages", which would show those of the interpreter that this environment was made from.
    lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
    (packages / "these_tests.pth").write_text("\n".join(lines))
    interpreter = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(interpreter), "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--no-index", str(tmp_path / "kproxy-fresh-mode")], check=True, cwd=tmp_path)
    return interpreter


def test_a_fresh_mode_is_proved_and_run(tmp_path: Path, python: Path, background: Callable[..., Running]) -> None:
    modes = subprocess.run([python, "-m", "kproxy_core.cli.main", "modes"], capture_output=True, text=True, check=True)
    assert f"{NAME}  (kproxy-fresh-mode 0.1.0)" in modes.stdout

    tests = tmp_path / "kproxy-fresh-mode" / "tests"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    proof = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests, "-k", "TestScenarios and hairpin"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert proof.returncode == 0, proof.stdout + proof.stderr

    with node_under_test(tmp_path, background) as there:
        pods = [there.lab.hosts["a1"], there.lab.hosts["b1"]]
        cluster = there.serve("web", *pods)
        daemon = there.run(argv=[str(python), "-m", "kproxy_core.cli.main"], mode=NAME)
        assert all(
            there.who(there.lab.hosts[origin], address) == {"a1", "b1"} for origin in ("a2", "node") for address in cluster
        )
        assert daemon.stop() == 0
        assert there.tables() == ["kproxy-fresh-mode"]
        assert all(there.who(there.lab.hosts["a2"], address) == {"a1", "b1"} for address in cluster)
