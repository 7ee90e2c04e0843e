"""The watch machine, by transcripts: refusals, servers that cannot do everything, and kinds that may be absent."""

import pytest

from kproxy_core.model.changes import Replaced
from kproxy_core.model.diagnostics import Severity
from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.kubernetes.events import Refusal, refusal
from kproxy_core.sources.kubernetes.machine import Mode, WatchMachine
from kproxy_core.sources.kubernetes.pace import Pace
from kproxy_core.sources.kubernetes.resources import SERVICE_CIDRS, SERVICES, own_node

from .transcripts import (
    bookmark,
    expired,
    line,
    list_body,
    listed,
    machine,
    names,
    plain_list_next,
    query,
    recording,
    service,
)

LABELS = "!service.kubernetes.io/service-proxy-name"


def test_an_older_server_gets_a_plain_list_at_once_and_is_not_asked_to_stream_again() -> None:
    made = plain_list_next()
    request = made.next_request()
    assert (request.mode, request.delay) == (Mode.LIST, 0)
    made.receive_list(list_body(9))
    made.ended(0.0)
    made.next_request()
    made.receive(expired())
    made.ended(9.0)
    assert made.next_request().mode is Mode.LIST


def test_an_etcd_that_is_too_old_for_streaming_lists_is_met_by_a_plain_list() -> None:
    made = machine()
    made.next_request()
    made.receive(line("ERROR", {"kind": "Status", "code": 500, "message": "the required storage feature is disabled"}))
    made.ended(0.1)
    assert made.next_request().mode is Mode.LIST
    made.receive_list(list_body(9))
    made.ended(0.0)
    assert made.next_request().mode is Mode.WATCH


def test_streaming_lists_can_be_done_without() -> None:
    made = WatchMachine(SERVICES, Pace(), lambda: 0.5, streaming=False)
    assert made.next_request().mode is Mode.LIST


def test_a_server_that_takes_no_notice_of_send_initial_events_is_found_out_by_its_first_bookmark() -> None:
    made = machine()
    made.next_request()
    assert made.receive(line("ADDED", service("a", 1)) + bookmark(5)) == []
    assert made.over
    made.ended(60.0)
    assert made.next_request().mode is Mode.LIST


def test_a_field_that_cannot_be_selected_is_left_out() -> None:
    made = machine()
    for _ in range(2):
        made.next_request()
        made.refused(Refusal(code=400, message="field label not supported: spec.clusterIP"))
        made.ended(0.0)
    request = dict(made.next_request().query)
    assert "fieldSelector" not in request
    assert request["labelSelector"] == LABELS


def test_other_nodes_are_never_asked_for() -> None:
    made = machine(own_node("here"))
    for _ in range(4):
        assert query(made)["fieldSelector"] == "metadata.name=here"
        made.refused(Refusal(code=400))
        made.ended(0.0)


def test_retry_after_is_honoured_within_bounds() -> None:
    made = listed(100)
    made.ended(9.0)
    made.next_request()
    made.refused(Refusal(code=429, retry_after=7))
    made.ended(0.0)
    request = made.next_request()
    assert 7 <= request.delay < 7.8
    assert dict(request.query)["resourceVersion"] == "100"
    made.refused(Refusal(code=503, retry_after=86400))
    assert made.next_request().delay <= 330


def test_failures_wait_ever_longer_up_to_a_bound_and_a_steady_watch_forgets_them() -> None:
    made = listed(100)
    waits = []
    for _ in range(12):
        made.ended(0.0, "refused")
        waits.append(made.next_request().delay)
    assert waits[:4] == [0.25, 0.5, 1.0, 2.0]
    assert waits[-1] == 30
    made.accepted()
    assert made.problem == ""
    made.ended(6.0)
    assert made.next_request().delay == 0
    made.ended(0.0, "refused")
    assert made.next_request().delay == 0.25


def test_a_server_that_ends_watches_at_once_is_not_asked_a_thousand_times_a_second() -> None:
    made = listed(100)
    waits = []
    for _ in range(10):
        made.accepted()
        made.ended(0.001)
        waits.append(made.next_request().delay)
    assert min(waits) >= 0.125
    assert waits[-1] >= 15


def test_an_error_event_other_than_410_goes_on_from_the_same_version() -> None:
    made = listed(100)
    made.receive(line("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcdserver: no leader"}))
    assert made.over
    made.ended(1.0)
    assert query(made)["resourceVersion"] == "100"
    assert "no leader" in made.problem


def test_where_only_listing_is_allowed_lists_are_made_at_intervals() -> None:
    made = machine()
    for _ in range(2):
        made.next_request()
        made.refused(Refusal(code=403, reason="Forbidden", message="cannot watch"))  # streaming list, later watch
        made.ended(0.0)
        request = made.next_request()
        assert request.mode is Mode.LIST
        (change,) = made.receive_list(list_body(9, service("a", 1)))
        assert isinstance(change, Replaced)
        made.ended(0.0)


@pytest.mark.parametrize("code", [403, 404])
def test_service_cidrs_may_be_absent_or_forbidden_and_are_looked_for_later(code: int) -> None:
    made = machine(SERVICE_CIDRS)
    made.next_request()
    assert made.refused(Refusal(code=code)) == []
    made.ended(0.0)
    assert made.next_request().mode is Mode.LIST
    (change,) = made.refused(Refusal(code=code))
    assert change == Replaced(kind=Kind.SERVICE_CIDR, objects=(), diagnostics=change.diagnostics)
    assert [each.severity for each in change.diagnostics] == [Severity.NOTE]
    made.ended(0.0)
    assert made.next_request().delay == 300
    assert made.refused(Refusal(code=code)) == []
    made.ended(0.0)
    made.next_request()
    (found,) = made.receive_list(recording("servicecidrs-list"))
    assert names([found]) == ["kubernetes"]


def test_service_cidrs_that_become_forbidden_stay_as_they_were() -> None:
    made = machine(SERVICE_CIDRS)
    made.next_request()
    made.receive(bookmark(5, end=True))
    made.ended(0.0)
    for _ in range(3):
        made.next_request()
        assert made.refused(Refusal(code=403)) == []
        made.ended(0.0)


def test_services_that_are_forbidden_are_a_problem() -> None:
    made = machine(SERVICES)
    for _ in range(2):
        made.next_request()
        assert made.refused(refusal(recording("error-403-anonymous"), 403)) == []
        made.ended(0.0)
    assert not made.listed
    assert "403 Forbidden" in made.problem
