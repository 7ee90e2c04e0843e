"""What the log says of a state and of a sync: each thing once, notes for those who debug only, one of a thing in the singular."""

import logging

import pytest
from attrs import evolve

from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.state import NodeContext, NodeState
from kproxy_core.plugin.backend import SyncReport
from kproxy_core.runtime.announcements import Announcements


def state(*told: Diagnostic) -> NodeState:
    return NodeState(node=NodeContext(name="here"), diagnostics=told)


def diagnostic(severity: Severity) -> Diagnostic:
    return Diagnostic(severity=severity, subject="Service default/web", message=severity.name, place="web.yaml:3")


def test_each_thing_is_told_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    announcements = Announcements()
    everything = state(*map(diagnostic, Severity))
    for told in (everything, everything, evolve(everything, diagnostics=tuple(map(diagnostic, Severity))), state()):
        announcements.state(told)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "web.yaml:3: Service default/web: NOTE"),
        ("WARNING", "web.yaml:3: Service default/web: WARNING"),
        ("ERROR", "web.yaml:3: Service default/web: ERROR"),
        ("DEBUG", "settled: web.yaml:3: Service default/web: NOTE"),
        ("INFO", "settled: web.yaml:3: Service default/web: WARNING"),
        ("INFO", "settled: web.yaml:3: Service default/web: ERROR"),
    ]
    assert {record.__dict__["place"] for record in caplog.records} == {"web.yaml:3"}


@pytest.mark.parametrize(
    ("operations", "ports", "told"),
    [
        (1, 1, "first sync: 1 operation for 1 Service port in"),
        (24, 2, "first sync: 24 operations for 2 Service ports in"),
        (0, 0, "first sync: 0 operations for 0 Service ports in"),
    ],
)
def test_one_is_singular(caplog: pytest.LogCaptureFixture, operations: int, ports: int, told: str) -> None:
    caplog.set_level(logging.INFO)
    Announcements().sync(SyncReport(started=0.0, finished=0.0, full=False, operations=operations, changed_ports=ports))
    assert caplog.records[0].getMessage().startswith(told)
