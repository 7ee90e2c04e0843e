"""A server that is busy, slow, old, restrictive, dead, back again: what is known stays, and what changed comes."""

from pathlib import Path

import pytest

from kproxy_core.model.diagnostics import Severity
from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.kubernetes import ApiAccess
from kproxy_core.testing.fake_api import SERVICES, FakeApi

from .objects import endpoint_slice, service
from .servers import FakeServer, access_to
from .watching import HASTY, PATIENCE, watching


@pytest.mark.parametrize("code", [429, 500, 503, 504])
def test_a_busy_server_is_asked_again_later(api: FakeApi, access: ApiAccess, code: int) -> None:
    api.apply(service("web", 80))
    api.faults.refuse(code, times=12)
    with watching(access) as watched:
        watched.wait_listed()
        assert watched.delivered.service("web") is not None
    assert len([each for each in api.log.all() if each.status == code]) == 12


def test_retry_after_is_waited_for(api: FakeApi, access: ApiAccess) -> None:
    api.faults.refuse(429, times=1, retry_after=1, resource="services")
    with watching(access) as watched:
        watched.wait_listed()
    first, second, *_ = api.log.all(resource="services")
    assert (first.status, second.status) == (429, 200)
    assert second.at - first.at >= 1


def test_refusals_of_watches_keep_the_version(api: FakeApi, access: ApiAccess) -> None:
    with watching(access) as watched:
        watched.wait_listed()
        api.faults.refuse(503, times=20, verb="watch", resource="services")
        api.end_watches(SERVICES)
        api.apply(service("web", 80))
        watched.wait_port("web", 80)
        assert len(watched.delivered.lists(Kind.SERVICE)) == 1
    assert "list" not in {each.verb for each in api.log.all()}


def test_an_older_server_is_listed_and_watched(api: FakeApi, access: ApiAccess) -> None:
    api.faults.streaming_lists = False
    api.apply(service("web", 80))
    with watching(access) as watched:
        watched.wait_listed()
        api.apply(service("web", 81))
        watched.wait_port("web", 81)
    verbs = [(each.verb, each.status) for each in api.log.all(resource="services")]
    assert verbs == [("watch", 422), ("list", 200), ("watch", 200)]


def test_a_server_that_ignores_streaming_lists_is_found_out(tmp_path: Path) -> None:
    with FakeApi(bookmark_interval=0.1) as api:
        api.apply(service("web", 80))
        api.faults.ignores_streaming_lists = True
        with watching(access_to(FakeServer(api), tmp_path)) as watched:
            watched.wait_listed()
            assert watched.delivered.service("web") is not None
        assert api.log.count("list", "services") == 1


def test_a_slow_server_is_waited_for(api: FakeApi, access: ApiAccess) -> None:
    api.apply_all([service(f"s{index}", clusterIP="10.0.0.1") for index in range(600)])
    api.faults.delay = 0.05
    with watching(access) as watched:
        watched.wait_listed()
        assert len(watched.delivered.objects[Kind.SERVICE]) == 600


def test_a_server_that_is_killed_and_comes_back_changes_nothing_meanwhile(api: FakeApi, access: ApiAccess) -> None:
    api.apply(service("web", 80))
    api.apply(endpoint_slice("web", "10.244.0.1"))
    with watching(access) as watched:
        watched.wait_listed()
        seen = len(watched.delivered.changes)
        api.stop()
        watched.delivered.wait(lambda: all("failed" in each.problem for each in watched.source.liveness().values()))
        assert len(watched.delivered.changes) == seen
        api.apply(endpoint_slice("web", "10.244.0.2"))
        api.start()
        watched.delivered.wait(lambda: watched.delivered.addresses("web") == {"10.244.0.2"})
        assert len(watched.delivered.changes) == seen + 1
        watched.delivered.wait(lambda: not any(each.problem for each in watched.source.liveness().values()))


def test_silence_while_a_list_is_being_sent_delivers_no_part_of_it(api: FakeApi, access: ApiAccess) -> None:
    api.apply_all([service(f"s{index}", clusterIP="10.0.0.1") for index in range(600)])
    api.faults.silence()
    with watching(access, HASTY) as watched:
        watched.delivered.wait(lambda: all("says nothing" in each.problem for each in watched.source.liveness().values()))
        assert watched.delivered.changes == []
        api.faults.restore()
        watched.wait_listed()
        assert len(watched.delivered.objects[Kind.SERVICE]) == 600


def test_stopping_does_not_wait_for_a_silent_server(api: FakeApi, access: ApiAccess) -> None:
    with watching(access) as watched:
        watched.wait_listed()
        api.faults.silence()
        watched.source.stop()  # the watches would be silent for two minutes more
        assert watched.source.liveness() == {}
        watched.source.start(watched.delivered)
        watched.source.stop()  # now it hangs in the handshake


@pytest.mark.parametrize("how", ["absent", "forbidden"])
def test_service_cidrs_need_not_be_there(api: FakeApi, access: ApiAccess, how: str) -> None:
    if how == "absent":
        api.access.absent.add("servicecidrs")
    else:
        api.access.forbidden.add(("*", "servicecidrs"))
    with watching(access) as watched:
        watched.wait_listed()
        (told,) = watched.delivered.lists(Kind.SERVICE_CIDR)[0].diagnostics
        assert told.severity is Severity.NOTE
        api.access.absent.clear()
        api.access.forbidden.clear()
        watched.delivered.wait(lambda: watched.delivered.objects[Kind.SERVICE_CIDR])


def test_services_that_are_forbidden_are_told_until_they_are_allowed(api: FakeApi, access: ApiAccess) -> None:
    api.access.forbidden.add(("*", "services"))
    with watching(access) as watched:
        watched.delivered.wait(lambda: "cannot list" in watched.source.liveness()[Kind.SERVICE].problem)
        assert Kind.SERVICE not in watched.delivered.objects
        api.access.forbidden.clear()
        watched.wait_listed()
        watched.delivered.wait(lambda: not watched.source.liveness()[Kind.SERVICE].problem)


def test_where_watching_is_forbidden_changes_come_by_lists(api: FakeApi, access: ApiAccess) -> None:
    api.access.forbidden.add(("watch", "services"))
    with watching(access) as watched:
        watched.wait_listed()
        api.apply(service("web", 80))
        watched.wait_port("web", 80)


def test_the_time_of_the_last_sign_of_life_is_told(tmp_path: Path) -> None:
    with FakeApi(bookmark_interval=0.1) as api, watching(access_to(FakeServer(api), tmp_path)) as watched:
        watched.wait_listed()
        assert all(each.silence is not None and each.listed for each in watched.source.liveness().values())
        api.faults.silence()

        def silent() -> bool:
            return all((each.silence or 0) > 0.5 for each in watched.source.liveness().values())

        watched.delivered.wait(silent)
        api.faults.restore()
        watched.delivered.wait(lambda: not silent())


def test_a_backup_that_was_restored_is_taken_over(api: FakeApi, access: ApiAccess) -> None:
    api.apply(service("old", 80))
    version = api.store.version
    api.store.advance(50)
    api.apply(service("new", 80))
    with watching(access, HASTY) as watched:
        watched.wait_listed()
        api.stop()
        api.store.rewind(version, lambda stored: stored.version <= version)
        api.start()
        watched.delivered.wait(lambda: watched.delivered.service("new") is None)
        assert watched.delivered.service("old") is not None
        api.apply(service("newer", 80))
        watched.wait_port("newer", 80)


def test_requests_are_few_when_all_is_well(api: FakeApi, access: ApiAccess) -> None:
    with watching(access) as watched:
        watched.wait_listed()
        for port in range(80, 100):
            api.apply(service("web", port))
        watched.wait_port("web", 99)
        assert {kind: each.requests for kind, each in watched.source.liveness().items()} == dict.fromkeys(watched.source.kinds, 1)
        assert api.accepted_connections == 4
    assert {each.agent for each in api.log.all()} == {"kproxy/test"}
    assert api.log.wait_for(lambda: api.open_connections == 0, PATIENCE)
