"""The kit's scenarios: all cells of the matrix, the oracle's consent, no test that chance decides."""

import re

import pytest

from kproxy_core.model.addresses import Family
from kproxy_core.sources.mixed import decode_document
from kproxy_core.testing.conformance.corpus import FOLDER, corpus
from kproxy_core.testing.conformance.crosscheck import disagreements
from kproxy_core.testing.conformance.judgement import sources
from kproxy_core.testing.conformance.matrix import EXCLUSIONS, Cell, cells, cells_of, excluded, state_of, unshown
from kproxy_core.testing.conformance.notation import fill
from kproxy_core.testing.conformance.places import Places
from kproxy_core.testing.conformance.reader import read
from kproxy_core.testing.conformance.scenario import Apply, Ask, Packets, Scenario, flat
from kproxy_core.testing.conformance.writer import write

UNLIKELY = 1e-6

each = pytest.mark.parametrize("scenario", corpus(), ids=lambda scenario: scenario.name)


@each
def test_the_oracle_agrees(scenario: Scenario) -> None:
    assert disagreements(scenario) == []


def test_the_oracle_would_not_agree_with_just_anything() -> None:
    text = (FOLDER / "matrix-ready.yaml").read_text()
    for right, wrong in (
        ("expect: a1 kept}", "expect: a1 b1 kept}"),
        ("expect: a1 b1 masqueraded}", "expect: a1 b1 kept}"),
        ("expect: a1 b1}", "expect: dropped}"),
        ("endpoints: a1 b1}", "endpoints: a1}"),
    ):
        assert right in text
        assert disagreements(read(text.replace(right, wrong))), wrong


@each
def test_what_is_written_is_read_as_the_same(scenario: Scenario) -> None:
    assert read(write(scenario)) == scenario


def test_every_cell_of_the_matrix_is_shown_or_left_out_for_a_reason() -> None:
    assert unshown(corpus()) == []


def test_no_cell_is_left_out_that_is_shown() -> None:
    shown = {cell for scenario in corpus() for cell in cells_of(scenario)}
    assert [str(cell) for cell in shown if excluded(cell)] == []
    assert {reason for cell in cells() if (reason := excluded(cell))} == set(EXCLUSIONS)


def test_a_missing_scenario_is_missed() -> None:
    missing = unshown(scenario for scenario in corpus() if scenario.name != "matrix-draining")
    assert missing
    assert {cell.state for cell in missing} == {"draining"}


def test_cells_come_from_what_is_applied_and_sent() -> None:
    scenario = read("""
name: one
why: because
steps:
  - apply: [{service: web, number: 3, at: cluster external, endpoints: b1, externalTrafficPolicy: Local}]
  - packets: [{from: abr2, to: external 3, protocols: udp, families: ipv6, expect: b1}]
""")
    (cell,) = cells_of(scenario)
    ask = next(step for step in scenario.steps if isinstance(step, Packets)).asks[0]
    assert cell == Cell("external", "bridged pod", "Cluster", "Local", "elsewhere", ask.families[0], ask.protocols[0])


@pytest.mark.parametrize(
    ("hosts", "state"),
    [
        ("a1 b1", "ready"),
        ("b1/zone=x a1/nil", "ready"),
        ("b1 b2 a1/unready", "elsewhere"),
        ("b1 a1/terminating", "draining"),
        ("a1/terminating b2/terminating", "terminating"),
        ("a1/unready b1/gone", "unready"),
        ("", "none"),
        ("a1", ""),
        ("a1/terminating", ""),
    ],
)
def test_states(hosts: str, state: str) -> None:
    assert state_of(hosts, Places()) == state


@each
def test_chance_does_not_decide(scenario: Scenario) -> None:
    """Where every server must have answered, so many packets are sent that none is missed by bad luck."""
    asks = [ask for step in flat(scenario.steps) if isinstance(step, Packets) for ask in step.asks if ask.every]
    assert [ask.line for ask in asks if _bad_luck(ask) > UNLIKELY] == []


def _bad_luck(ask: Ask) -> float:
    servers = len(ask.expect.servers)
    drawn = len(ask.origins) * len(ask.to) * ask.times * len(sources(ask.source, Family.IPV4, Places()))
    return float(len(ask.families) * len(ask.protocols) * servers * (1 - 1 / servers) ** drawn)


@each
def test_why_says_where_it_is_from(scenario: Scenario) -> None:
    assert re.search(r"\bSources?: ", scenario.why)
    assert "\n" not in scenario.why.strip()


@each
def test_objects_are_well_formed(scenario: Scenario) -> None:
    """Diagnostics are for what a scenario is about: nothing is misspelt."""
    notes = [note for step in flat(scenario.steps) if isinstance(step, Apply) for note in step.notes]
    decoded = [one for obj in fill(notes, Places()) for one in decode_document(obj)]
    told = [str(diagnostic) for one in decoded for diagnostic in one.diagnostics]
    assert [text for text in told if "did you mean" in text or "unknown" in text] == []
    assert all(one.meta for one in decoded)
