"""How much hypothesis tries: little by default, so that a run stays short, and much when asked for.

``HYPOTHESIS_PROFILE=deep`` tries a few hundred times as many examples, each run others; ``KPROXY_EXAMPLES=n`` sets the number.
The default is the same examples each time, so that a change that did not cause a failure does not meet it.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

# Examples are clusters and take a while to draw; on a busy machine none of that says anything about the code.
settings.register_profile(
    "fast",
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "deep",
    parent=settings.get_profile("fast"),
    max_examples=int(os.environ.get("KPROXY_EXAMPLES", "20000")),
    derandomize=False,
    print_blob=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say above the last line what ``run-tests`` found before it started pytest: its exit status will be that of a failure."""
    if os.environ.get("KPROXY_CHECKS_FAILED"):
        terminalreporter.section("a check before the tests failed: see lint, types and docs above", red=True, bold=True)
