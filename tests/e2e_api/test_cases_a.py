"""Cases of API clients that went wrong in the field, by their number in the corpus, over a real connection to the fake."""

import gc
import json
import threading
from pathlib import Path

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.engine.changes import ChangeTracker
from kproxy_core.model.changes import Deleted, Replaced, Upserted
from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.kubernetes import ApiAccess
from kproxy_core.testing.fake_api import ENDPOINT_SLICES, SERVICES, FakeApi, Request

from .objects import endpoint_slice, service
from .servers import FakeServer, access_to
from .watching import HASTY, PATIENCE, Watching, watching


def versions_asked(api: FakeApi, plural: str) -> list[str]:
    """The versions from which a kind was asked for, in order."""
    return [each.query.get("resourceVersion", "") for each in api.log.all(resource=plural)]


def wait_watching(api: FakeApi, kinds: int = 4) -> None:
    """Wait until the source's watches are being answered."""
    assert api.log.wait_for(lambda: len(api.streams()) == kinds, PATIENCE)


def test_a1_410_within_a_200_stream_leads_to_a_new_list(api: FakeApi, access: ApiAccess) -> None:
    api.apply(service("web", 80))
    with watching(access) as watched:
        watched.wait_listed()
        wait_watching(api)
        assert api.expire_watches(SERVICES) == 1
        watched.delivered.wait(lambda: len(watched.delivered.lists(Kind.SERVICE)) == 2)
        api.apply(service("web", 81))
        watched.wait_port("web", 81)
        assert watched.source.liveness()[Kind.SERVICE].relists == 1
    assert versions_asked(api, "services") == ["0", "0"]


@pytest.mark.parametrize("as_http", [False, True], ids=["event", "http"])
def test_a2_an_expired_version_is_not_asked_for_again(api: FakeApi, access: ApiAccess, as_http: bool) -> None:
    api.faults.expired_as_http = as_http
    with watching(access) as watched:
        watched.wait_listed()
        wait_watching(api)
        api.stop()
        api.apply(service("web", 80))
        api.compact()
        api.start()
        watched.wait_port("web", 80)
    asked = [version for version in versions_asked(api, "services") if version != "0"]
    assert len(asked) == 1  # the version before, once, answered with 410


def test_a3_a_half_open_connection_is_noticed_and_left(api: FakeApi, access: ApiAccess) -> None:
    api.apply(service("web", 80))
    with watching(access, HASTY) as watched:
        watched.wait_listed()
        api.faults.silence()
        watched.delivered.wait(lambda: "says nothing" in watched.source.liveness()[Kind.SERVICE].problem)
        assert watched.delivered.service("web") is not None
        api.apply(service("web", 81))
        api.faults.restore()
        watched.wait_port("web", 81)


def test_a4_bookmarks_move_the_version_and_nothing_else(tmp_path: Path) -> None:
    with FakeApi(bookmark_interval=0.05) as api, watching(access_to(FakeServer(api), tmp_path)) as watched:
        watched.wait_listed()
        wait_watching(api)
        version = api.store.advance(1000)
        watched.delivered.wait(lambda: watched.source.liveness()[Kind.SERVICE].version == str(version))
        api.end_watches(SERVICES)
        assert api.log.wait_for(lambda: versions_asked(api, "services") == ["0", str(version)], PATIENCE)
        assert len(watched.delivered.changes) == 4


@pytest.mark.parametrize("part", [b"", json.dumps({"type": "MODIFIED", "object": {"metadata": {"name": "ö" * 40}}}).encode()])
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a7_a_stream_that_breaks_off_is_resumed_quietly(api: FakeApi, access: ApiAccess, part: bytes, reset: bool) -> None:
    with watching(access) as watched:
        watched.wait_listed()
        for port in range(80, 90):
            wait_watching(api)
            api.break_watches(part=part, reset=reset)
            api.apply(service("web", port))
            watched.wait_port("web", port)
        assert len(watched.delivered.lists(Kind.SERVICE)) == 1
        assert watched.source.liveness()[Kind.SERVICE].relists == 0


def test_a8_stop_is_not_for_ever(api: FakeApi, access: ApiAccess) -> None:
    with watching(access) as watched:
        watched.wait_listed()
        delivered = watched.delivered
        for port in range(80, 85):
            watched.source.stop()
            assert watched.source.liveness() == {}
            before = len(delivered.changes)
            api.apply(service("web", port))
            assert len(delivered.changes) == before
            watched.source.start(delivered)
            watched.wait_port("web", port)


def test_a9_starting_and_stopping_leaves_no_thread_and_no_connection(api: FakeApi, access: ApiAccess) -> None:
    with watching(access) as watched:
        for _ in range(20):
            watched.source.stop()
            watched.source.start(watched.delivered)
    assert api.log.wait_for(lambda: api.open_connections == 0, PATIENCE)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("kproxy-")] == []


def test_a10_no_model_of_the_client_is_ever_made(api: FakeApi, access: ApiAccess) -> None:
    api.apply_all([service(f"s{index}", clusterIP="10.0.0.1") for index in range(200)])
    with watching(access) as watched:
        watched.wait_listed()
        modules = {str(type(each).__module__) for each in gc.get_objects()}
        assert not [module for module in modules if module.startswith("kubernetes.client.models")]


def test_a12_an_outdated_index_is_not_retried_for_ever(api: FakeApi, access: ApiAccess) -> None:
    """Every watch is refused as too old: each version is tried at most once, and the waits keep the rate low."""

    def too_old(request: Request) -> bool:
        return request.verb == "watch" and "sendInitialEvents" not in request.query

    from kproxy_core.testing.fake_api.answers import too_old as refusal

    with watching(access) as watched:
        watched.wait_listed()
        wait_watching(api)
        api.faults.refuse_with(refusal(1, 2), too_old, times=float("inf"))
        for _ in range(5):
            api.store.advance()
            api.end_watches(SERVICES)
            wait_watching(api)
        api.faults.restore()
    asked = [version for version in versions_asked(api, "services") if version != "0"]
    assert len(asked) == len(set(asked))


def test_a13_lists_are_answered_from_the_servers_cache(api: FakeApi, access: ApiAccess) -> None:
    api.faults.streaming_lists = False
    with watching(access) as watched:
        watched.wait_listed()
        wait_watching(api)
        api.expire_watches()
        watched.delivered.wait(lambda: all(len(watched.delivered.lists(kind)) == 2 for kind in watched.source.kinds))
    lists = api.log.all("list")
    assert len(lists) == 8
    assert {each.query["resourceVersion"] for each in lists} == {"0"}


def test_a15_updates_without_relevant_content_cost_no_work(api: FakeApi, access: ApiAccess) -> None:
    api.apply(service("web", 80))
    api.apply(endpoint_slice("web", "10.244.0.1"))
    tracker = ChangeTracker(Settings())
    with watching(access) as watched:
        watched.wait_listed()
        tracker.apply(watched.delivered.take())
        tracker.resolve()
        seen = len(watched.delivered.take())
        for beat in range(10):
            renewed = service("web", 80)
            renewed["metadata"]["annotations"] = {"control-plane.alpha.kubernetes.io/leader": str(beat)}
            api.apply(renewed)
        watched.delivered.wait(lambda: len(watched.delivered.take()) == seen + 10)
        tracker.apply(watched.delivered.take()[seen:])
        assert not tracker.resolve().dirty


def test_a16_nothing_is_in_sync_before_its_list_is_complete(api: FakeApi, access: ApiAccess) -> None:
    api.apply(service("web", 80))
    api.apply(endpoint_slice("web", "10.244.0.1"))
    api.faults.refuse(503, times=float("inf"), resource="endpointslices")
    with watching(access) as watched:
        watched.delivered.wait(lambda: set(watched.delivered.objects) >= watched.source.kinds - {Kind.ENDPOINT_SLICE})
        assert api.log.wait_for(lambda: api.log.count(resource="endpointslices") >= 3, PATIENCE)
        assert Kind.ENDPOINT_SLICE not in watched.delivered.objects
        assert not watched.source.liveness()[Kind.ENDPOINT_SLICE].listed
        api.faults.restore()
        watched.wait_listed()
    first = [change for change in watched.delivered.changes if isinstance(change, Replaced)]
    assert len(first) == 4
    assert not [change for change in watched.delivered.changes if isinstance(change, Upserted | Deleted)]


def _one_port(watched: Watching, name: str) -> int:
    found = watched.delivered.service(name)
    assert found is not None
    return found.ports[0].port


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_characters_and_lines_split_over_chunks_are_put_together(api: FakeApi, access: ApiAccess, size: int) -> None:
    with watching(access) as watched:
        watched.wait_listed()
        wait_watching(api)
        api.faults.chunk_size = size
        marked = endpoint_slice("web", "10.244.0.1")
        marked["metadata"]["annotations"] = {"note": "größer als früher: 漢字 🐍"}
        api.apply(service("web", 80))
        api.apply(marked)
        watched.wait_port("web", 80)
        watched.delivered.wait(lambda: watched.delivered.addresses("web") == {"10.244.0.1"})
        assert watched.source.liveness()[Kind.SERVICE].requests == 1


def test_replayed_events_change_nothing(api: FakeApi, access: ApiAccess) -> None:
    with watching(access) as watched:
        watched.wait_listed()
        wait_watching(api)
        api.apply(service("gone", 80))
        api.delete(SERVICES, "gone", "default")
        api.apply(service("web", 81))
        watched.wait_port("web", 81)
        before = len(watched.delivered.changes)
        assert api.replay(3, SERVICES) == 1
        api.apply(service("web", 82))
        watched.wait_port("web", 82)
        assert len(watched.delivered.changes) == before + 1
        assert watched.delivered.service("gone") is None


@pytest.mark.parametrize(
    "garbage", [b"not json\n", b'{"type":"MODIFIED","object":{"metadata":\n', b"\xff\xfe\n", b'{"type":"NEW","object":{}}\n']
)
def test_garbage_in_a_stream_is_survived(api: FakeApi, access: ApiAccess, garbage: bytes) -> None:
    api.apply(service("web", 80))
    with watching(access) as watched:
        watched.wait_listed()
        wait_watching(api)
        api.send_raw(garbage, SERVICES)
        api.apply(service("web", 81))
        watched.wait_port("web", 81)
        assert _one_port(watched, "web") == 81


def test_a_decode_failure_leaves_no_hole(api: FakeApi, access: ApiAccess) -> None:
    api.apply(endpoint_slice("web", "10.244.0.1"))
    with watching(access) as watched:
        watched.wait_listed()
        wait_watching(api)
        broken = endpoint_slice("web")
        broken["endpoints"] = [{"addresses": "10.244.0.2"}]
        api.apply(broken)
        watched.delivered.wait(lambda: any(isinstance(change, Upserted) for change in watched.delivered.changes))
        (kept,) = [change for change in watched.delivered.changes if isinstance(change, Upserted)]
        assert kept.diagnostics
        assert watched.delivered.addresses("web") == {"10.244.0.1"}
        api.end_watches(ENDPOINT_SLICES)  # the version of the malformed object was taken: it does not come again
        api.apply(endpoint_slice("web", "10.244.0.3"))
        watched.delivered.wait(lambda: watched.delivered.addresses("web") == {"10.244.0.3"})
        assert len(watched.delivered.lists(Kind.ENDPOINT_SLICE)) == 1
