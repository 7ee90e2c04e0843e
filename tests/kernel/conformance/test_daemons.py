"""The conformance of the whole daemon: killed, restarted, cut off from its API server, with each mode inside it.

What a daemon adds to a mode; the rest is asked of the mode itself. ``HYPOTHESIS_PROFILE=deep`` asks the daemon for everything.
"""

import os

import pytest

from kproxy_core.testing.conformance.corpus import corpus
from kproxy_core.testing.conformance.plugin import DaemonConformance

pytestmark = pytest.mark.kernel

CHOSEN = (
    "affinity",
    "api-cut",
    "api-cut-restart",
    "connections-outlive-endpoints",
    "flushed",
    "loopback-served",
    "matrix-ready",
    "node-ports-everywhere",
    "node-ports-follow-addresses",
    "nothing-lost-meanwhile",
    "restart-backend",
    "restart-daemon",
    "udp-endpoint-gone",
    "udp-good-flows-stay",
    "udp-service-deleted",
)
ONLY = () if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else CHOSEN


class TestNftables(DaemonConformance):
    mode = "nftables"
    only = ONLY


class TestIptables(DaemonConformance):
    mode = "iptables"
    only = ONLY


def test_the_chosen_scenarios_are_there() -> None:
    assert set(CHOSEN) <= {scenario.name for scenario in corpus()}
