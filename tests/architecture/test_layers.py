"""The layers of pyproject.toml hold, and every distribution is under them."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages() -> list[str]:
    """The import package of each distribution of this repository."""
    return sorted(path.parent.name for pattern in ("*/src/*", "plugins/*/src/*") for path in ROOT.glob(f"{pattern}/__init__.py"))


def test_import_linter_finds_no_broken_contract() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([program, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_distribution_is_under_the_linter() -> None:
    assert sorted(CONFIGURATION["tool"]["importlinter"]["root_packages"]) == packages()


def test_every_mode_is_under_each_contract_for_modes() -> None:
    modes = [package for package in packages() if package != "kproxy_core"]
    contracts = {contract["id"]: contract for contract in CONFIGURATION["tool"]["importlinter"]["contracts"]}
    assert contracts["core-names-no-mode"]["forbidden_modules"] == modes
    assert contracts["modes-see-the-contract"]["source_modules"] == modes
    assert contracts["modes-stand-alone"]["modules"] == modes
    assert contracts["modes-pure"]["source_modules"] == modes
