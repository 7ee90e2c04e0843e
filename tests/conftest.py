"""What all tests share: no time limits, and a word above the summary when checks before the tests failed."""

import os

import pytest
from hypothesis import settings

# How long an example takes says something about the machine, not about the code. On CI examples are the same in every run.
settings.register_profile("kproxy", settings.get_profile("ci" if os.environ.get("CI") else "default"), deadline=None)
settings.load_profile("kproxy")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what ``run-tests`` found before it started pytest: its exit status will be that of a failure."""
    if os.environ.get("KPROXY_CHECKS_FAILED"):
        terminalreporter.section("a check before the tests failed: see lint, types and docs above", red=True, bold=True)
