"""A run of the kit outside of pytest: a lab, a subject in it, scenario after scenario."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kproxy_core.plugin.errors import UnsupportedError
from kproxy_core.testing.conformance.modes import installed_backend
from kproxy_core.testing.conformance.reader import CAPABILITIES, NODE_PORTS_EVERYWHERE
from kproxy_core.testing.conformance.runner import Report, run
from kproxy_core.testing.conformance.scenario import Scenario
from kproxy_core.testing.conformance.subject import InProcess, Subject
from kproxy_core.testing.conformance.world import serve_everywhere
from kproxy_core.testing.lab import Lab

LIKE_NFTABLES = ("nftables",)
"""Modes of kube-proxy whose NodePorts answer on primary addresses alone, and never on loopback."""


@contextmanager
def lab_for_scenarios() -> Iterator[Lab]:
    """A lab in which every host serves."""
    with Lab() as lab:
        serve_everywhere(lab)
        yield lab


@contextmanager
def installed_mode(mode: str) -> Iterator[Subject]:
    """An installed mode, driven in this process. Raises ``UnsupportedError`` with what the node lacks for it."""
    with lab_for_scenarios() as lab:
        subject = InProcess(lab, mode, installed_backend)
        with lab.node.enter():
            lacking = [finding for finding in subject.node.backend.probe().findings if finding.fatal and not finding.ok]
        if lacking:
            subject.close()
            raise UnsupportedError("; ".join(f"{finding.name}: {finding.message} ({finding.remedy})" for finding in lacking))
        try:
            yield subject
        finally:
            subject.close()


@contextmanager
def another_proxy(command: str, mode: str, lacks: Iterable[str] = ()) -> Iterator[Subject]:
    """A proxy started by a command. ``lacks`` are capabilities that it has not. Raises ``ValueError`` for a useless command."""
    from kproxy_core.testing.conformance.command import Command

    gone = set(lacks) | ({NODE_PORTS_EVERYWHERE, "LOCALHOST_NODE_PORTS"} if mode in LIKE_NFTABLES else set())
    with lab_for_scenarios() as lab, tempfile.TemporaryDirectory(prefix="kproxy-selftest-") as folder:
        subject = Command(lab, command, mode, frozenset(CAPABILITIES) - gone, Path(folder))
        try:
            yield subject
        finally:
            subject.close()


def run_all(scenarios: Iterable[Scenario], subject: Subject, tell: Callable[[Report], object]) -> list[Report]:
    """Run scenarios one after the other; ``tell`` is called with each report."""
    reports = []
    for scenario in scenarios:
        report = run(scenario, subject)
        tell(report)
        reports.append(report)
    return reports
