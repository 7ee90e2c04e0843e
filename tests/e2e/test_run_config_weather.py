"""``kproxy run --config`` while the API server is killed, silent, forgetful or gets new credentials: the kernel never suffers."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy_core.testing.fake_api import ENDPOINT_SLICES, SERVICES, Authority, User, replace_file
from kproxy_core.testing.lab import Refused, can_build, hold

from .conftest import TAKEN_OVER, Running, wait_until
from .on_a_node import METRICS, OnANode, node_under_test, slices, start_again, steadily

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]

A_WHILE = 1.5
"""Seconds for which nothing must change: long enough for several attempts to reach the API server."""


@pytest.fixture
def there(tmp_path: Path, background: Callable[..., Running]) -> Iterator[OnANode]:
    if not can_build():
        pytest.skip("no privilege to make network namespaces (run as root or in a user namespace)")
    with node_under_test(tmp_path, background, bookmark_interval=0.2) as made:
        yield made


def watches(there: OnANode) -> dict[str, str]:
    """What is amiss with each watch."""
    return {name: each["problem"] for name, each in there.health()[1]["watches"].items()}


def assert_untouched(there: OnANode, act: Callable[[], None], until: Callable[[], object]) -> None:
    """Nobody writes to nf_tables while something happens, and for a while after it is known."""
    before, generation = there.ruleset(), there.generation()
    act()
    wait_until(until, "it is noticed")
    assert steadily(lambda: there.generation() == generation, A_WHILE)
    assert there.ruleset() == before
    assert there.health()[0] == 200


def make_changes_unseen(there: OnANode) -> tuple[str, str]:
    """One Service gets another endpoint, one goes, one comes; return the addresses of the gone and the new one."""
    lab = there.lab
    there.api.apply_all(slices("web", lab.pods["b1"]))
    gone = there.api.delete(SERVICES, "going", "default")
    assert gone is not None
    for family in ("ipv4", "ipv6"):
        there.api.delete(ENDPOINT_SLICES, f"going-{family}", "default")
    new = there.serve("new", lab.pods["a2"])
    return gone.object["spec"]["clusterIP"], new[0]


def assert_caught_up(there: OnANode, web: str, gone: str, new: str) -> None:
    lab = there.lab
    there.wait_for(lab.outside, web, {"b1"})
    there.wait_for(lab.outside, new, {"a2"})
    wait_until(lambda: not there.is_answered(lab.outside, gone), "the Service that was deleted unseen is gone")
    assert there.status()["failed"] == []


def test_killed_and_back_with_changes_made_meanwhile(there: OnANode) -> None:
    lab = there.lab
    web, _ = there.serve("web", lab.pods["a1"]), there.serve("going", lab.pods["a1"])
    daemon = there.run()
    there.wait_for(lab.outside, web[0], {"a1"})
    with hold(lab.outside, web[0], 80) as held:
        assert_untouched(there, there.api.stop, lambda: all(watches(there).values()))
        gone, new = make_changes_unseen(there)
        start_again(there)
        assert_caught_up(there, web[0], gone, new)
        # The established connection goes on with the endpoint that it has.
        assert held.alive()
    wait_until(lambda: not any(watches(there).values()), "all watches are well")
    assert "Traceback" not in daemon.log


def test_killed_and_back_with_its_history_forgotten(there: OnANode) -> None:
    lab = there.lab
    web, _ = there.serve("web", lab.pods["a1"]), there.serve("going", lab.pods["a1"])
    there.run()
    assert_untouched(there, there.api.stop, lambda: all(watches(there).values()))
    gone, new = make_changes_unseen(there)
    there.api.compact()
    start_again(there)
    assert_caught_up(there, web[0], gone, new)
    assert b'kproxy_watch_relists_total{resource="Service"} 1.0' in there.get("/metrics", METRICS)[1]


def test_forgotten_history_within_a_stream(there: OnANode) -> None:
    lab = there.lab
    web = there.serve("web", lab.pods["a1"])
    there.run()

    def relists() -> int:
        return there.get("/metrics", METRICS)[1].count(b'kproxy_watch_relists_total{resource="Service"} 1.0')

    def expire() -> None:
        assert there.api.expire_watches() == 4

    assert_untouched(there, expire, relists)
    there.api.apply_all(slices("web", lab.pods["b1"]))
    there.wait_for(lab.outside, web[0], {"b1"})


def test_half_open_connections(there: OnANode) -> None:
    lab = there.lab
    web = there.serve("web", lab.pods["a1"])
    there.run()

    def silent() -> bool:
        metrics = there.get("/metrics", METRICS)[1].decode().splitlines()
        ages = [float(line.rpartition(" ")[2]) for line in metrics if line.startswith("kproxy_watch_silence_seconds{")]
        return len(ages) == 4 and min(ages) > 2

    assert_untouched(there, there.api.faults.silence, silent)
    # What happened meanwhile is sent when the server speaks again.
    there.api.apply_all(slices("web", lab.pods["b1"]))
    assert there.who(lab.outside, web[0]) == {"a1"}
    there.api.faults.restore()
    there.wait_for(lab.outside, web[0], {"b1"})


def test_cut_connections_cost_nothing(there: OnANode) -> None:
    lab = there.lab
    web = there.serve("web", lab.pods["a1"])
    there.run()
    before, generation = there.ruleset(), there.generation()
    for reset in (False, True, False):
        there.api.break_watches(reset=reset)
        there.api.end_watches()
        there.api.break_connections()
    wait_until(lambda: len(there.api.streams()) == 4, "all watch again")
    assert there.generation() == generation
    assert there.ruleset() == before
    there.api.apply_all(slices("web", lab.pods["b1"]))
    there.wait_for(lab.outside, web[0], {"b1"})


def test_rotated_tokens_and_certificates(there: OnANode, tmp_path: Path) -> None:
    lab = there.lab
    token = tmp_path / "token"
    token.write_text("secret\n")
    there.kubeconfig(User(token_file=token))
    web = there.serve("web", lab.pods["a1"])
    there.run()

    def rotate_token() -> None:
        there.api.rotate_token("next")
        there.api.break_connections()

    assert_untouched(there, rotate_token, lambda: any("401" in problem for problem in watches(there).values()))
    replace_file(token, b"next\n")
    there.api.apply_all(slices("web", lab.pods["b1"]))
    there.wait_for(lab.outside, web[0], {"b1"})

    def rotate_certificate() -> None:
        there.api.rotate_server_certificate(Authority("the next authority"))
        there.api.break_connections()

    assert_untouched(there, rotate_certificate, lambda: any("certificate" in problem for problem in watches(there).values()))
    there.kubeconfig(User(token_file=token))
    there.api.apply_all(slices("web", lab.pods["a2"]))
    there.wait_for(lab.outside, web[0], {"a2"})


def test_restarted_while_the_api_server_is_away(there: OnANode) -> None:
    lab = there.lab
    web, _ = there.serve("web", lab.pods["a1"]), there.serve("going", lab.pods["a1"])
    first = there.run()
    there.wait_for(lab.outside, web[0], {"a1"})
    there.api.stop()
    first.send(signal.SIGKILL)
    first.wait()
    before = there.ruleset()
    second = there.start()
    second.says("watching /api/v1/services: ")
    assert steadily(lambda: there.ruleset() == before, A_WHILE)
    assert "first sync" not in second.log
    assert there.health()[0] == 200
    assert there.who(lab.outside, web[0]) == {"a1"}
    gone, new = make_changes_unseen(there)
    start_again(there)
    second.says("first sync: ")
    assert_caught_up(there, web[0], gone, new)


def test_restarted_without_a_change_nothing_is_written(there: OnANode) -> None:
    there.serve("web", there.lab.pods["a1"])
    first = there.run()
    before = there.ruleset()  # with the tables held
    assert first.stop() == 0
    again = there.run()
    assert TAKEN_OVER.search(again.log)
    assert there.ruleset() == before


def test_a_refused_list_that_becomes_empty_is_believed(there: OnANode) -> None:
    lab = there.lab
    web = there.serve("web", lab.pods["a1"])
    there.run()
    there.api.faults.refuse(503, times=3, retry_after=1)
    there.api.end_watches()
    for family in ("ipv4", "ipv6"):
        there.api.delete(ENDPOINT_SLICES, f"web-{family}", "default")
    wait_until(lambda: isinstance(there.ask(lab.outside, web[0])[0], Refused), "nobody is left")
