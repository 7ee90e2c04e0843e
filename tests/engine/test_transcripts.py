"""What the engine does, event by event, under a fake clock and on the in-memory kernel."""

from collections.abc import Sequence
from itertools import pairwise

from attrs import evolve

from kproxy_core.config.settings import Settings
from kproxy_core.engine import events as e
from kproxy_core.plugin.backend import ApplyResult, Drift
from kproxy_core.testing.memory_backend import MemoryBackend, MemoryDataplane, MemoryKernel, Operation
from kproxy_core.testing.playbook import SETTINGS, Playbook
from kproxy_core.testing.sketch import NODE, listed, node, port_key, put, service, slice_of

WEB = service("shop/web", "10.96.0.10")
WEB_ENDPOINTS = slice_of("shop/web", "10.244.1.1", "10.244.1.2")
HERE = node("192.0.2.1")


def started(kernel: MemoryKernel | None = None, settings: Settings = SETTINGS) -> Playbook[MemoryBackend]:
    """A playbook after a first good sync of one Service with two endpoints: nine objects in the kernel."""
    play = Playbook(MemoryBackend(kernel or MemoryKernel()), settings)
    play >> listed(HERE, WEB, WEB_ENDPOINTS) << ("read", "apply 9", "sync 9", "clean")
    play.advance(10).transcript.clear()
    return play


def endpoints(count: int) -> list[str]:
    return [f"10.244.1.{number + 1}" for number in range(count)]


def fronts(play: Playbook[MemoryBackend]) -> set[str]:
    return {str(key[3]) for key in play.backend.kernel.ours if key[0] == "frontend"}


# -- the first sync


def test_nothing_is_read_or_written_before_services_and_slices_are_listed() -> None:
    play = Playbook(MemoryBackend())
    nodes, services, slices = listed(HERE, WEB, WEB_ENDPOINTS)
    play >> [nodes] << ()
    play >> [services] << ()
    play.advance(3600) << ()
    play >> [slices] << ("read", "apply 9", "sync 9", "clean")


def test_nothing_is_written_before_the_addresses_of_the_node_are_known() -> None:
    play = Playbook(MemoryBackend(), addresses=None)
    play >> listed(HERE, WEB, WEB_ENDPOINTS) << ()
    play >> e.AddressesSeen(()) << ("read", "apply 9", "sync 9", "clean")


def test_d30_a_restart_finds_everything_as_it_should_be_and_writes_nothing() -> None:
    kernel = MemoryKernel()
    started(kernel).close()
    before = dict(kernel.ours)
    play = Playbook(MemoryBackend(kernel))
    play >> listed(HERE, WEB, WEB_ENDPOINTS) << ("read", "sync 0", "clean")
    assert kernel.ours == before


def test_a_restart_applies_only_what_has_changed_meanwhile() -> None:
    kernel = MemoryKernel()
    started(kernel).close()
    play = Playbook(MemoryBackend(kernel))
    # One slot, the frontend and the pick among three; then, when nobody needs it any more, away with the pick among two.
    play >> listed(HERE, WEB, slice_of("shop/web", *endpoints(3))) << ("read", "apply 3", "apply 1", "sync 4", "clean")


def test_a_restart_removes_what_vanished_meanwhile() -> None:
    kernel = MemoryKernel()
    started(kernel).close()
    play = Playbook(MemoryBackend(kernel))
    play >> listed(HERE) << ("read", "apply 4", "apply 2", "sync 6", "clean")
    assert {key[0] for key in kernel.ours} == {"node"}


def test_after_a_restart_newcomers_get_ids_that_nobody_has() -> None:
    kernel = MemoryKernel()
    started(kernel).close()
    newcomers = [service(f"shop/n{number}", f"10.96.1.{number}") for number in range(20)]
    play = Playbook(MemoryBackend(kernel)) >> listed(HERE, *newcomers, WEB, WEB_ENDPOINTS)
    assert play.reports[-1].ok
    assert {key[1] for key in kernel.ours if key[0] == "service"} == set(range(1, 22))
    assert kernel.ours["service", 1] == port_key("shop/web")


def test_a_kernel_that_cannot_be_read_is_asked_again_with_backoff() -> None:
    kernel = MemoryKernel(unreadable="netlink: no buffer space")
    play = Playbook(MemoryBackend(kernel))
    failed = "sync failed: the kernel cannot be read: netlink: no buffer space"
    play >> listed(HERE, WEB, WEB_ENDPOINTS) << ("read", failed)
    play.advance(0.75) << ("read", failed) * 3
    play.advance(100)
    assert len(play.transcript) < 40
    kernel.unreadable = ""
    play.transcript.clear()
    play.advance(10) << ("read", "apply 9", "sync 9", "clean")


# -- changes


def test_the_first_change_goes_out_at_once() -> None:
    play = started()
    play >> put(slice_of("shop/web", *endpoints(3))) << ("apply 4", "sync 4")


def test_one_more_endpoint_is_the_same_number_of_operations_whatever_there_is() -> None:
    many = [service(f"shop/s{n}", f"10.97.{n // 250}.{n % 250}") for n in range(500)]
    slices = [slice_of(f"shop/s{n}", *endpoints(10)) for n in range(500)]
    play = Playbook(MemoryBackend()) >> listed(HERE, WEB, WEB_ENDPOINTS, *many, *slices)
    play.advance(10)
    play.transcript.clear()
    play >> put(slice_of("shop/web", *endpoints(3))) << ("apply 4", "sync 4")


def test_a15_an_update_that_changes_nothing_of_concern_does_not_wake_the_engine() -> None:
    play = started()
    play >> put(WEB, WEB_ENDPOINTS, HERE) << ()
    assert play.engine.deadline > play.now + 1


def test_a_change_that_leads_to_the_same_rules_writes_nothing() -> None:
    play = started()
    play >> put(service("shop/headless")) << ()
    play.advance(1) << ()


def test_bursts_are_coalesced_and_all_of_it_arrives() -> None:
    play = started()
    began = play.now
    for number in range(3, 43):
        play >> put(slice_of("shop/web", *endpoints(number)))
        play.advance(0.01)
    play.settle()
    commits = [line for line in play.transcript if line.startswith("apply")]
    assert 2 <= len(commits) <= 6
    assert play.reports[1].started == began
    assert len(fronts(play)) == 1
    assert ("slot", 1, "cluster", 41) in play.backend.kernel.ours


def test_under_a_long_storm_commits_thin_out_to_one_a_second_and_recover() -> None:
    play = started()
    for number in range(1000):
        play >> put(slice_of("shop/web", f"10.244.{number // 250}.{number % 250}"))
        play.advance(0.02)
    starts = [report.started for report in play.reports[1:]]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert all(0.0999 <= gap <= 1.03 for gap in gaps)
    assert gaps[-1] > 0.9
    play.advance(65)
    play.transcript.clear()
    play >> put(slice_of("shop/web", *endpoints(5)))
    assert play.transcript[0].startswith("apply")
    play >> put(slice_of("shop/web", *endpoints(6)))
    start = play.now
    play.settle()
    assert 0.0999 <= play.reports[-1].started - start <= 0.1001


def test_min_sync_period_is_a_lower_bound() -> None:
    play = started(settings=Settings(node_name=NODE, min_sync_period=5.0))
    play >> put(slice_of("shop/web", *endpoints(3))) << ("apply 4", "sync 4")
    play.advance(1) >> put(slice_of("shop/web", *endpoints(4))) << ()
    play.advance(3.9) << ()
    play.advance(0.2) << ("apply 4", "sync 4")


def test_the_trigger_times_of_what_became_effective_are_in_the_report() -> None:
    play = started()
    play >> put(slice_of("shop/web", *endpoints(3), at=77.0))
    assert play.reports[-1].trigger_times == (77.0,)
    play.advance(1) >> put(slice_of("shop/web", *endpoints(4), at=78.0))
    assert play.reports[-1].trigger_times == (78.0,)


def test_a_change_of_the_nodes_address_renders_the_scaffold_anew() -> None:
    play = started()
    play >> put(node("192.0.2.7")) << ("apply 1", "sync 1")
    assert str(play.backend.kernel.ours["node", "node port addresses"]) == "(Address(192.0.2.7),)"


# -- checks and drift


def test_within_the_sync_period_the_kernel_is_compared_and_normally_nothing_found() -> None:
    play = started()
    play.advance(30) << ("read", "sync 0")
    play.advance(30) << ("read", "sync 0")
    assert play.reports[-1].full
    assert play.engine.drift_count == 0


def test_a_request_to_check_is_followed_at_once() -> None:
    play = started()
    play >> e.CheckRequested() << ("read", "sync 0")
    play.advance(1) << ()


def test_d26_a_foreign_flush_is_repaired_at_once_and_the_culprit_named() -> None:
    play = started()
    kernel = play.backend.kernel
    before = dict(kernel.ours)
    kernel.meddle(dict.clear, "nft (pid 4242)")
    play.drift() << ("read", "apply 9", "sync 9")
    assert kernel.ours == before
    assert play.engine.drift_count == 1
    assert (play.reports[-1].drifted, play.reports[-1].culprit) == (9, "nft (pid 4242)")


def test_d25_drift_that_nobody_told_of_is_found_by_the_next_check() -> None:
    play = started()
    frontend = next(key for key in play.backend.kernel.ours if key[0] == "frontend")
    del play.backend.kernel.ours[frontend]
    play.advance(30) << ("read", "apply 1", "sync 1")
    assert frontend in play.backend.kernel.ours
    assert (play.reports[-1].drifted, play.engine.drift_count) == (1, 1)


def test_objects_that_somebody_added_to_ours_are_removed() -> None:
    play = started()
    play.backend.kernel.meddle(lambda objects: objects.update({("slot", 99, "cluster", 0): "stray", ("pick", 77): "stray"}))
    play.drift() << ("read", "apply 2", "sync 2")
    assert play.reports[-1].drifted == 2


def test_drift_and_a_change_are_one_sync() -> None:
    play = started()
    play.backend.kernel.meddle(dict.clear)
    play.hold() >> e.DriftNoticed(Drift()) >> put(slice_of("shop/web", *endpoints(3))) << ("read",)
    play.release() << ("apply 10", "sync 10")


def test_two_who_fight_over_the_rules_do_not_keep_the_processor_busy() -> None:
    play = started()
    for _ in range(1000):
        play.backend.kernel.meddle(dict.clear)
        play.drift().advance(0.01)
    assert 10 <= len(play.reports) <= 40


class Draining(MemoryDataplane):
    """A dataplane with something left to do in seven seconds, once."""

    def __init__(self, kernel: MemoryKernel, wakes: list[float]) -> None:
        super().__init__(kernel)
        self.wakes = wakes

    def apply(self, plan: Sequence[Operation]) -> ApplyResult:
        return evolve(super().apply(plan), wake_at=self.wakes.pop() if self.wakes else None)


class DrainingBackend(MemoryBackend):
    def open(self) -> MemoryDataplane:
        return Draining(self.kernel, [1007.0])


def test_the_kernel_is_looked_at_when_deferred_work_is_due() -> None:
    play = Playbook(DrainingBackend()) >> listed(HERE, WEB, WEB_ENDPOINTS) << ("read", "apply 9", "sync 9", "clean")
    play.advance(6.9) << ()
    play.advance(0.2) << ("read", "sync 0")
    play.advance(20) << ()


def test_deferred_work_is_not_forgotten_over_an_earlier_look() -> None:
    play = Playbook(DrainingBackend()) >> listed(HERE, WEB, WEB_ENDPOINTS) << ("read", "apply 9", "sync 9", "clean")
    play.advance(3) >> e.CheckRequested() << ("read", "sync 0")
    play.advance(4.1) << ("read", "sync 0")


def test_a_sync_period_of_nothing_does_not_make_a_busy_loop() -> None:
    play = started(settings=Settings(node_name=NODE, sync_period=0.0))
    assert len(play.reports) <= 12


# -- the end


def test_after_stop_nothing_more_is_done_and_the_kernel_keeps_its_rules() -> None:
    play = started()
    before = dict(play.backend.kernel.ours)
    play >> e.StopRequested() << ("exit",)
    play >> put(slice_of("shop/web", *endpoints(3))) << ()
    play.advance(3600) << ()
    assert play.backend.kernel.ours == before


# -- health


def test_o12_healthy_is_that_no_update_has_waited_for_more_than_two_sync_periods() -> None:
    play = started()
    play.hold() >> put(slice_of("shop/web", *endpoints(3))) << ("apply 4",)
    assert play.engine.health.healthy(play.now + 60, 30)
    assert not play.engine.health.healthy(play.now + 61, 30)
    play.release() << ("sync 4",)
    assert play.engine.health.healthy(play.now + 3600, 30)


def test_what_waits_is_known_by_family() -> None:
    play = started()
    play.hold() >> put(slice_of("shop/web", *endpoints(3)))
    assert [family.label for family in play.engine.health.pending_since] == ["IPv4"]


def test_an_update_that_arrives_during_a_sync_is_not_forgotten_by_health() -> None:
    play = started()
    play.hold() >> put(slice_of("shop/web", *endpoints(3)))
    play.advance(7) >> put(slice_of("shop/web", *endpoints(4)))
    arrived = play.now
    play.release()
    assert set(play.engine.health.pending_since.values()) == {arrived}
