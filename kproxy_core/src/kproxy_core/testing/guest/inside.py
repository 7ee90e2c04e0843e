"""A pytest plugin for a pytest that runs in a guest: every report goes out as a line of JSON, for the one that waits outside.

The lines have standard output for themselves; what pytest and the tests print there goes to standard error.
"""

import json
import os

import pytest

_lines = os.dup(1)
os.dup2(2, 1)


def _say(**line: object) -> None:
    text = f"{json.dumps(line)}\n".encode()
    while text:
        text = text[os.write(_lines, text) :]


class Reports:
    """Tells of every report and of every item that is done."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell of one phase of an item."""
        _say(report=self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Tell that nothing more comes about an item."""
        _say(done=nodeid)


def pytest_configure(config: pytest.Config) -> None:
    """Begin."""
    config.pluginmanager.register(Reports(config), "reports-to-the-outside")
