"""Every command explains itself, quickly."""

import json
import os
import pty
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from kproxy_core.cli.main import COMMANDS

from .conftest import COMMAND, ROOT, kproxy

pytestmark = pytest.mark.e2e


def test_the_commands_are_listed_with_examples() -> None:
    done = kproxy("--help")
    assert done.status == 0
    assert all(f"\n  {name} " in done.out for name in COMMANDS)
    assert "Examples:" in done.out
    assert done.err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_with_examples(name: str) -> None:
    done = kproxy(name, "--help")
    assert done.status == 0
    assert done.out.startswith("Usage: kproxy ")
    assert f"\n  kproxy {name}" in done.out.partition("Examples:")[2]
    assert kproxy(name, "-h").out == done.out


def test_the_version() -> None:
    assert kproxy("--version").out == f"kproxy {version('kproxy-core')}\n"


def test_without_a_command_the_commands_are_listed() -> None:
    done = kproxy()
    assert done.status == 2
    assert "Commands:" in done.out + done.err


def test_the_installed_script_is_the_same_command() -> None:
    script = Path(sys.executable).with_name("kproxy")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == kproxy("--version").out


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_the_test_command_says_what_it_does_and_does_nothing(option: str) -> None:
    done = subprocess.run([ROOT / "run-tests", option], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"})
    assert done.stdout.startswith("Usage: ./run-tests [PYTEST-ARGUMENT...]\n")
    assert "nox >" not in done.stdout + done.stderr


def test_help_imports_nothing_but_what_it_needs() -> None:
    code = """
import sys
from kproxy_core.cli.main import main
try:
    main(["--help"])
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {
        "attr",
        "attrs",
        "pluggy",
        "msgspec",
        "yaml",
        "rich",
        "pyroute2",
        "kubernetes",
        "prometheus_client",
        "json",
        "logging",
    }
    assert heavy & set(done.stderr.split()) == set()
    assert "click" in done.stderr.split()


def _at_a_terminal(*arguments: str, **environment: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    base = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen([*COMMAND, *arguments], stdout=theirs, stderr=theirs, env={**base, "TERM": "xterm", **environment})
    os.close(theirs)
    written = b""
    try:
        while data := os.read(ours, 1 << 16):
            written += data
    except OSError:  # what Linux tells when the other end is closed
        pass
    os.close(ours)
    process.wait()
    return written.decode()


def test_colour_is_for_terminals_that_want_it() -> None:
    assert "\x1b[" in _at_a_terminal("modes")
    assert "\x1b[" not in _at_a_terminal("modes", NO_COLOR="1")
    assert "\x1b[" not in _at_a_terminal("modes", TERM="dumb")
    assert "\x1b[" not in kproxy("modes").out


def test_json_is_never_coloured() -> None:
    assert json.loads(_at_a_terminal("modes", "--json"))["modes"]
