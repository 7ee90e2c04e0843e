"""The watch machine, by transcripts: what it asks, and what it makes of the answers."""

import json

import pytest

from kproxy_core.model.changes import Deleted, Upserted
from kproxy_core.model.names import ObjectName
from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.kubernetes.events import Refusal, refusal
from kproxy_core.sources.kubernetes.machine import MOST_STALE_LISTS, Mode
from kproxy_core.sources.kubernetes.pace import Pace
from kproxy_core.sources.kubernetes.resources import ENDPOINT_SLICES, SERVICE_CIDRS, own_node

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
    service_of,
    services_of,
    slice_of,
)

LABELS = "!service.kubernetes.io/service-proxy-name"


# ------------------------------------------------------------------- requests


def test_the_first_request_is_a_streaming_list_from_the_servers_cache() -> None:
    request = machine().next_request()
    assert request.mode is Mode.STREAMING_LIST
    assert request.delay == 0
    assert dict(request.query) == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "resourceVersion": "0",
        "timeoutSeconds": "600",
        "labelSelector": LABELS,
        "fieldSelector": "spec.clusterIP!=None",
    }


def test_each_kind_is_selected_by_the_server() -> None:
    assert query(machine(ENDPOINT_SLICES))["labelSelector"] == "!service.kubernetes.io/headless"
    assert query(machine(own_node("here")))["fieldSelector"] == "metadata.name=here"
    assert "labelSelector" not in query(machine(SERVICE_CIDRS))


def test_a_watch_goes_on_from_the_last_version_with_bookmarks_and_a_time_limit() -> None:
    made = listed(100)
    made.ended(400.0)
    request = made.next_request()
    assert request.mode is Mode.WATCH
    assert request.delay == 0
    asked = dict(request.query)
    assert asked["resourceVersion"] == "100"
    assert asked["allowWatchBookmarks"] == "true"
    assert "sendInitialEvents" not in asked
    assert 300 <= int(asked["timeoutSeconds"]) <= 600
    assert request.silence == 130


# ---------------------------------------------------------- recorded answers


def test_the_recorded_streaming_list_is_one_replacement_and_then_changes() -> None:
    made = machine()
    made.next_request()
    made.accepted()
    first, *changes = made.receive(recording("services-watch-streaming-list"))
    assert list(services_of(first)) == ["dns", "edge", "ext", "kubernetes", "quiet", "web"]
    assert [type(change).__name__ for change in changes] == ["Upserted", "Upserted", "Deleted", "Upserted", "Deleted"]
    assert names(changes) == ["default/web", *["default/late"] * 4]
    assert made.position == "218"
    assert not made.over


def test_the_recorded_list_is_followed_by_a_watch_from_its_version() -> None:
    made = plain_list_next()
    asked = query(made)
    assert asked["resourceVersion"] == "0"
    assert "watch" not in asked
    (change,) = made.receive_list(recording("services-list-rv0"))
    assert list(services_of(change)) == ["dns", "edge", "ext", "quiet", "web"]
    made.ended(0.0)
    assert query(made)["resourceVersion"] == "68"


def test_recorded_chunks_become_one_list() -> None:
    made = plain_list_next()
    made.next_request()
    assert made.receive_list(recording("services-list-chunk-1")) == []
    made.ended(0.0)
    asked = query(made)
    assert asked["continue"].startswith("eyJ2IjoibWV0YS5rOHMuaW8vdjEi")
    assert "resourceVersion" not in asked
    last = json.loads(recording("services-list-chunk-2"))
    del last["metadata"]["continue"]
    (change,) = made.receive_list(json.dumps(last).encode())
    assert names([change]) == ["default/dns", "default/edge", "default/ext", "default/quiet"]
    assert made.position == "68"


def test_the_recorded_watch_of_slices_ends_where_its_bookmarks_say() -> None:
    made = machine(ENDPOINT_SLICES)
    made.next_request()
    made.receive(bookmark(221, end=True))
    changes = made.receive(recording("endpointslices-watch"))
    assert [type(change).__name__ for change in changes] == ["Upserted", "Upserted", "Deleted"]
    draining, gone, _ = changes
    assert [each.terminating for each in slice_of(draining).endpoints] == [False, True]
    assert len(slice_of(gone).endpoints) == 1
    assert made.position == "224"


def test_the_recorded_node_and_service_cidrs_are_read() -> None:
    for resource, name, body in ((own_node("node"), "node", "node-list-own"), (SERVICE_CIDRS, "kubernetes", "servicecidrs-list")):
        made = machine(resource)
        made.next_request()
        made.refused(Refusal(code=422))
        made.next_request()
        (change,) = made.receive_list(recording(body))
        assert names([change]) == [name]
        assert not change.diagnostics


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("error-401", 401, "Unauthorized"),
        ("error-403-anonymous", 403, 'User "system:anonymous" cannot list'),
        ("error-404", 404, "not found"),
        ("error-future-rv", 504, "Too large resource version"),
        ("services-list-bad-continue", 400, "invalid continue token"),
    ],
)
def test_recorded_refusals_are_told_in_the_servers_words(name: str, status: int, words: str) -> None:
    made = machine()
    made.next_request()
    made.refused(refusal(recording(name), status))
    made.next_request()
    made.refused(refusal(recording(name), status))
    assert str(status) in made.problem
    assert words in made.problem


# -------------------------------------------------------------------- events


def test_bookmarks_move_the_version_and_are_no_objects() -> None:
    made = listed(100)
    assert made.receive(bookmark(150)) == []
    assert made.position == "150"


def test_replays_and_older_versions_are_no_changes() -> None:
    made = listed(100, service("web", 90))
    (change,) = made.receive(line("MODIFIED", service("web", 101)))
    assert isinstance(change, Upserted)
    assert made.receive(line("DELETED", service("web", 102))) != []
    replayed = line("ADDED", service("web", 90)) + line("MODIFIED", service("web", 101)) + line("DELETED", service("web", 102))
    assert made.receive(replayed) == []
    assert made.position == "102"


def test_an_object_that_leaves_the_selection_is_deleted() -> None:
    made = listed(100, service("web", 90))
    assert made.receive(line("DELETED", service("web", 101))) == [Deleted(kind=Kind.SERVICE, name=ObjectName("default", "web"))]


def test_what_is_of_no_use_to_the_proxy_is_deleted_with_the_reason() -> None:
    made = machine(ENDPOINT_SLICES)
    made.next_request()
    made.receive(bookmark(1, end=True))
    orphan = {
        "metadata": {"name": "x", "namespace": "a", "resourceVersion": "2"},
        "addressType": "IPv4",
        "endpoints": [],
        "ports": [],
    }
    (change,) = made.receive(line("ADDED", orphan))
    assert isinstance(change, Deleted)
    assert "no Service is named" in change.diagnostics[0].message


def test_changes_during_a_streaming_list_are_part_of_it() -> None:
    made = machine()
    made.next_request()
    stream = (
        line("ADDED", service("a", 1))
        + line("ADDED", service("b", 2))
        + line("MODIFIED", service("a", 11))
        + line("DELETED", service("b", 12))
    )
    assert made.receive(stream) == []
    assert not made.listed
    (change,) = made.receive(bookmark(12, end=True))
    assert names([change]) == ["default/a"]
    assert made.listed


def test_a_list_is_delivered_only_when_it_is_complete() -> None:
    made = machine()
    made.next_request()
    assert made.receive(line("ADDED", service("a", 1))) == []
    made.ended(1.0, "the connection failed")
    assert not made.listed
    assert made.next_request().mode is Mode.LIST
    (change,) = made.receive_list(list_body(9, service("b", 2)))
    assert names([change]) == ["default/b"]


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_torn_list_is_no_short_list(cut: int) -> None:
    made = plain_list_next()
    made.next_request()
    assert made.receive_list(list_body(9, service("a", 1), service("b", 2))[:-cut]) == []
    assert not made.listed
    assert made.problem
    assert made.next_request().delay > 0


def test_the_time_without_a_byte_is_short_until_the_list_is_complete() -> None:
    made = machine()
    assert made.next_request().silence == 30
    made.receive(bookmark(5, end=True))
    assert made.silence == 130


# ------------------------------------------------------------- expired versions


def test_a_1_410_within_a_stream_means_a_new_list() -> None:
    made = listed(100, service("web", 90))
    assert made.receive(expired()) == []
    assert made.over
    made.ended(50.0)
    request = made.next_request()
    assert request.mode is Mode.STREAMING_LIST
    assert dict(request.query)["resourceVersion"] == "0"
    assert 0 < request.delay <= 1


def test_a_2_the_expired_version_is_never_asked_for_again() -> None:
    made = listed(100)
    asked = []
    for _ in range(20):
        made.ended(0.0)
        asked.append(query(made)["resourceVersion"])
        made.refused(Refusal(code=410, reason="Expired"))
    assert asked == ["100", *["0"] * 19]


def test_a_13_nodes_list_anew_at_different_times_and_ever_more_slowly() -> None:
    delays = []
    for chance in (0.0, 0.25, 1.0):
        made = machine(chance=chance, pace=Pace(first=0.0))
        made.next_request()
        made.receive(bookmark(5, end=True) + expired())
        delays.append(made.next_request().delay)
    assert delays == [0.0, 0.25, 1.0]
    made = listed(100)
    waits = []
    for _ in range(12):
        made.refused(Refusal(code=410))
        made.ended(0.0)
        waits.append(made.next_request().delay)
    assert waits == sorted(waits)
    assert waits[-1] == 30


def test_410_while_reading_a_list_in_chunks_begins_the_list_again() -> None:
    made = plain_list_next()
    made.next_request()
    made.receive_list(list_body(9, service("a", 1), continued="token"))
    made.ended(0.0)
    assert query(made)["continue"] == "token"
    made.refused(Refusal(code=410, reason="Expired"))
    made.ended(0.0)
    assert query(made)["resourceVersion"] == "0"
    (change,) = made.receive_list(list_body(20, service("b", 2)))
    assert names([change]) == ["default/b"]


def test_a_version_that_is_too_large_is_tried_once_more_and_then_doubted() -> None:
    made = listed(100)
    asked = []
    for _ in range(3):
        made.ended(0.0)
        asked.append(query(made)["resourceVersion"])
        made.refused(refusal(recording("error-future-rv"), 504))
    assert asked == ["100", "100", "0"]


def test_a_server_that_is_behind_does_not_take_the_node_back_in_time() -> None:
    made = listed(100, service("new", 100))
    made.receive(expired())
    for _ in range(MOST_STALE_LISTS):
        made.ended(0.0)
        made.next_request()
        assert made.receive(line("ADDED", service("old", 50)) + bookmark(60, end=True)) == []
        assert made.over
        assert "older than 100" in made.problem
    made.ended(0.0)
    made.next_request()
    (change,) = made.receive(line("ADDED", service("old", 50)) + bookmark(60, end=True))
    assert names([change]) == ["default/old"]  # so the cluster itself was restored from a backup
    assert made.position == "60"


# ------------------------------------------------------------- broken streams


def test_a_7_a_stream_that_breaks_off_is_resumed_at_its_last_version() -> None:
    made = listed(100)
    made.receive(line("MODIFIED", service("web", 101)) + line("MODIFIED", service("web", 102))[:40])
    made.ended(60.0, "the connection failed: IncompleteRead")
    assert query(made)["resourceVersion"] == "101"
    (change,) = made.receive(line("MODIFIED", service("web", 102)))
    assert isinstance(change, Upserted)


def test_garbage_is_left_and_asked_for_again_once_before_a_new_list() -> None:
    made = listed(100)
    asked = []
    for _ in range(3):
        assert made.receive(b"<html>busy</html>\n" + line("MODIFIED", service("web", 101))) == []
        assert made.over
        made.ended(1.0)
        asked.append(query(made)["resourceVersion"])
    assert asked == ["100", "0", "0"]


def test_garbage_now_and_then_never_costs_the_version() -> None:
    made = listed(100)
    for version in range(101, 110):
        made.receive(line("MODIFIED", service("web", version)) + b"garbage\n")
        made.ended(1.0)
        assert query(made)["resourceVersion"] == str(version)


def test_an_unknown_type_of_event_means_a_new_list() -> None:
    made = listed(100)
    assert made.receive(line("RENAMED", service("web", 101)) + line("MODIFIED", service("web", 102))) == []
    made.ended(1.0)
    assert query(made)["resourceVersion"] == "0"
    assert "RENAMED" in made.problem


def test_silence_after_the_answer_has_begun_is_tried_once_more_and_then_doubted() -> None:
    made = listed(100)
    made.ended(200.0)
    asked = []
    for _ in range(3):
        asked.append(query(made)["resourceVersion"])
        made.accepted()
        made.ended(130.0, "says nothing", silent=True)
    assert asked == ["100", "100", "0"]


def test_a_refused_connection_never_costs_the_version() -> None:
    made = listed(100)
    for _ in range(50):
        made.ended(0.0, "the connection failed: refused")
        assert query(made)["resourceVersion"] == "100"


def test_a_malformed_object_leaves_the_last_good_one_in_force_until_it_is_repaired() -> None:
    made = listed(100, service("web", 90))
    broken = service("web", 101)
    broken["spec"] = "gone"
    (kept,) = made.receive(line("MODIFIED", broken))
    assert service_of(kept).ports[0].port == 80
    assert any("last good one stays" in each.message for each in kept.diagnostics)
    assert made.position == "101"
    (repaired,) = made.receive(line("MODIFIED", service("web", 102, clusterIP="10.96.0.10", clusterIPs=["10.96.0.10"])))
    assert repaired.diagnostics == ()
    assert [str(each) for each in service_of(repaired).cluster_ips] == ["10.96.0.10"]


def test_what_was_deleted_does_not_come_back_with_a_malformed_namesake() -> None:
    made = listed(100, service("web", 90))
    made.receive(line("DELETED", service("web", 101)))
    broken = service("web", 102, clusterIP="10.96.0.10", clusterIPs=["10.96.0.10"], sessionAffinity=7)
    (change,) = made.receive(line("ADDED", broken))
    assert [str(each) for each in service_of(change).cluster_ips] == ["10.96.0.10"]


def test_a_malformed_object_in_a_list_is_kept_as_it_was_and_costs_no_other() -> None:
    made = listed(100, service("web", 90), service("dns", 91))
    made.receive(expired())
    made.ended(9.0)
    made.next_request()
    broken = service("web", 120)
    broken["spec"]["ports"] = 80
    (change,) = made.receive(line("ADDED", broken) + line("ADDED", service("dns", 91)) + bookmark(130, end=True))
    assert {name: len(each.ports) for name, each in services_of(change).items()} == {"web": 1, "dns": 1}
    assert {each.subject for each in change.diagnostics} == {"Service default/web"}


def test_a_malformed_object_never_seen_before_is_served_as_far_as_it_can_be() -> None:
    made = listed(100)
    broken = service("web", 101, sessionAffinity=7)
    (change,) = made.receive(line("ADDED", broken))
    assert service_of(change).ports[0].port == 80
    assert change.diagnostics


def test_an_object_without_a_name_is_garbage() -> None:
    made = listed(100)
    assert made.receive(line("ADDED", {"metadata": {"resourceVersion": "101"}, "spec": {}})) == []
    assert made.over
    assert made.position == "100"
