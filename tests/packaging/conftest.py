"""Builds the distributions once, and installs them into environments in which nothing of this checkout is."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from attrs import frozen

ROOT = Path(__file__).parents[2]
PROJECTS = sorted(path.parent for pattern in ("*/pyproject.toml", "plugins/*/pyproject.toml") for path in ROOT.glob(pattern))


@frozen
class Installation:
    """A virtual environment in ``folder``."""

    folder: Path

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment away from the checkout, with no Python path but its own."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(
            [self.folder / "bin" / program, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def python(self, code: str) -> str:
        """Run Python code and return what it prints; its failure is the test's."""
        result = self.run("python", "-I", "-W", "error", "-c", code)
        assert result.returncode == 0, result.stderr
        return result.stdout


def install(folder: Path, distributions: list[Path]) -> Installation:
    """Make an environment of ``distributions`` and what they require, and of nothing else."""
    venv.create(folder, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, *map(str, distributions)], cwd=folder, check=True)
    return Installation(folder)


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all sdists, and of the wheels made from them."""
    if built := os.environ.get("KPROXY_DIST"):
        return Path(built)
    folder = tmp_path_factory.mktemp("dist")
    for project in PROJECTS:
        subprocess.run(
            [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, project], check=True, capture_output=True
        )
    return folder


@pytest.fixture(scope="session")
def core_alone(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The core's wheel, with no mode beside it."""
    return install(tmp_path_factory.mktemp("core-alone"), list(dist.glob("kproxy_core-*.whl")))


@pytest.fixture(scope="session")
def complete(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """All wheels."""
    return install(tmp_path_factory.mktemp("complete"), sorted(dist.glob("*.whl")))
