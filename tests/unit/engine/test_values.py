"""Small values of the engine: quarantine, cleaning, health, accounts, compiling."""

import math

from kproxy_core.config.settings import Settings
from kproxy_core.engine.adopt import UNATTRIBUTED
from kproxy_core.engine.cleaning import Cleaning
from kproxy_core.engine.compile import compile_ports
from kproxy_core.engine.health import Health
from kproxy_core.engine.quarantine import FIRST_RETRY, Quarantine
from kproxy_core.engine.report import Account
from kproxy_core.model.addresses import Family, parse_address
from kproxy_core.model.flows import FrontendKey
from kproxy_core.model.names import Protocol
from kproxy_core.model.state import NodeContext, NodeState
from kproxy_core.program.program import Fragment
from kproxy_core.runtime.assembly import program_for
from kproxy_core.testing.memory_backend import MemoryBackend
from kproxy_core.testing.sketch import listed, port_key, service

A, B = port_key("n/a"), port_key("n/b")
STATE = NodeState(node=NodeContext())
GONE = FrontendKey(Family.IPV4, parse_address("10.96.0.1"), 53, Protocol.UDP)


def test_a_refused_port_is_due_later_each_time_and_keeps_when_it_came() -> None:
    once = Quarantine().refused(A, "no", 10.0)
    assert once.next_retry == 10.0 + FIRST_RETRY
    assert once.due(10.0) == frozenset()
    assert once.due(11.0) == {A}
    twice = once.refused(A, "still no", 11.0)
    assert twice.next_retry == 11.0 + 2 * FIRST_RETRY
    assert twice.refusals[A].since == 10.0
    assert twice.reasons == {A: "still no"}
    assert once.reasons == {A: "no"}


def test_what_belongs_to_nobody_is_not_due_as_long_as_a_service_port_is_refused() -> None:
    """It would not be tried then, so the engine would be woken for it again and again, and at once."""
    both = Quarantine().refused(UNATTRIBUTED, "busy", 0.0).refused(A, "no", 0.0).refused(A, "no", 5.0)
    assert both.due(5.0) == frozenset()
    assert both.next_retry == 5.0 + 2 * FIRST_RETRY
    alone = both.released([A])
    assert alone.next_retry == FIRST_RETRY
    assert alone.due(5.0) == {UNATTRIBUTED}


def test_a_released_port_starts_anew() -> None:
    again = Quarantine().refused(A, "no", 0.0).refused(A, "no", 1.0).released([A, B]).refused(A, "no", 5.0)
    assert again.next_retry == 5.0 + FIRST_RETRY
    assert Quarantine().next_retry is None


def test_a_wish_for_cleaning_is_due_at_once_and_one_is_under_way_at_a_time() -> None:
    assert Cleaning().due_at == math.inf
    wish = Cleaning().wished(STATE, [GONE])
    assert wish.due_at == -math.inf
    under_way = wish.started()
    assert under_way.due_at == math.inf
    assert under_way.wished(STATE, []).due_at == math.inf
    assert under_way.wished(STATE, []).ended("", 7.0).due_at == -math.inf
    assert under_way.ended("", 7.0).due_at == math.inf


def test_a_failed_cleaning_is_wished_again_with_what_came_meanwhile() -> None:
    other = GONE._replace(port=54)
    failed = Cleaning().wished(STATE, [GONE]).started().ended("no", 7.0)
    assert failed.state is STATE
    assert failed.gone == {GONE}
    assert failed.due_at > 7.0
    later = NodeState(node=NodeContext(name="later"))
    both = Cleaning().wished(STATE, [GONE]).started().wished(later, [other]).ended("no", 7.0)
    assert both.state is later
    assert both.gone == {GONE, other}


def test_health_counts_from_the_first_update_that_waits() -> None:
    health = Health().changed(10.0).changed(20.0)
    assert health.pending_since == dict.fromkeys(Family, 10.0)
    assert Health().healthy(1e9, 30.0)
    assert health.healthy(70.0, 30.0)
    assert not health.healthy(70.1, 30.0)
    assert health.resolved({Family.IPV6}).pending_since == {Family.IPV6: 10.0}
    assert health.synced(30.0) == Health(last_sync=dict.fromkeys(Family, 30.0))


def test_an_account_adds_up_phases() -> None:
    account = Account(started=1.0)
    account.spent("diff", 0.25)
    account.spent("diff", 0.5)
    report = account.report(2.0, {A: "no"})
    assert report.durations == {"diff": 0.75}
    assert not report.ok
    assert account.report(2.0, {}).ok
    assert not account.report(2.0, {}, error="broken").ok


def test_ids_are_taken_from_before_and_new_ones_count_up() -> None:
    state, _ = program_for(MemoryBackend(), listed(service("n/a", "10.96.0.1"), service("n/b", "10.96.0.2")), Settings(), ())
    compiled = compile_ports(MemoryBackend(), state, [A, B], {A: Fragment(id=7)}, 100)
    fragments = {port: fragment.id for port, fragment in compiled.updates.items() if fragment is not None}
    assert fragments == {A: 7, B: 100}
    assert compiled.next_id == 101


def test_a_port_that_is_not_in_the_state_is_to_be_removed() -> None:
    assert compile_ports(MemoryBackend(), STATE, [A], {A: Fragment(id=7)}, 1).updates == {A: None}
