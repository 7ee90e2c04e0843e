"""The wheels alone are enough: on their own, together, and for the demo."""

import json
from importlib.metadata import version

import pytest

from .conftest import Installation

pytestmark = pytest.mark.index

MODES = ["iptables", "nftables"]

IMPORT_ALL = """
import importlib, pkgutil, re
from importlib.metadata import requires
extra = {{re.match("[a-z]+", wanted)[0] for wanted in requires("kproxy-core") if "testing" in wanted.partition(";")[2]}}
package = importlib.import_module({package!r})
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if not (".testing" in module.name and error.name.split(".")[0] in extra):
            raise
    print(module.name)
"""


def test_the_core_works_without_any_mode(core_alone: Installation) -> None:
    result = core_alone.run("kproxy", "--version")
    assert result.returncode == 0, result.stderr
    assert version("kproxy-core") in result.stdout


def test_without_a_mode_the_command_says_what_to_install(core_alone: Installation) -> None:
    result = core_alone.run("kproxy", "modes")
    assert "pip install kproxy-nftables" in result.stdout + result.stderr


def test_the_core_declares_all_that_it_imports(core_alone: Installation) -> None:
    imported = core_alone.python(IMPORT_ALL.format(package="kproxy_core")).split()
    assert {"kproxy_core.engine", "kproxy_core.testing.lab"} <= set(imported)


@pytest.mark.parametrize("mode", MODES)
def test_the_mode_declares_all_that_it_imports(complete: Installation, mode: str) -> None:
    imported = complete.python(IMPORT_ALL.format(package=f"kproxy_{mode}")).split()
    assert f"kproxy_{mode}.plugin" in imported


def test_modes_are_found_by_their_entry_points(complete: Installation) -> None:
    code = "from kproxy_core.plugin.registry import installed_modes; print(*installed_modes())"
    assert complete.python(code).split() == MODES
    result = complete.run("kproxy", "modes")
    assert result.returncode == 0, result.stderr
    assert all(mode in result.stdout for mode in MODES)


def test_nothing_installed_contradicts_what_is_declared(complete: Installation) -> None:
    code = """
from importlib.metadata import distribution, distributions
print(*sorted(d.metadata["Name"] for d in distributions() if d.metadata["Name"].startswith("kproxy")))
"""
    assert complete.python(code).split() == ["kproxy-core", *(f"kproxy-{mode}" for mode in MODES)]


@pytest.mark.kernel
@pytest.mark.slow
def test_the_demo_runs_from_the_wheels(complete: Installation) -> None:
    result = complete.run("kproxy", "demo", "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads(result.stdout)
