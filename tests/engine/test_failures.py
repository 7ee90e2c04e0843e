"""What the engine does when the kernel refuses, fails for a while, or the mode itself is at fault."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from kproxy_core.engine.work import REFUSALS_AT_MOST
from kproxy_core.model.objects import EndpointSlice, Service
from kproxy_core.model.state import NodeContext, ServicePort
from kproxy_core.plugin.backend import Failure
from kproxy_core.program.delta import Delta
from kproxy_core.testing.faults import FailKeys, FailNth, no_faults
from kproxy_core.testing.memory_backend import Key, MemoryBackend, MemoryFragment, MemoryKernel, MemoryProgram, Operation, Value
from kproxy_core.testing.playbook import Playbook
from kproxy_core.testing.sketch import gone, listed, node, port_key, put, service, slice_of

HERE = node("192.0.2.1")
ATOMIC = pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "not-atomic"])
TOLD = pytest.mark.parametrize("told", [True, False], ids=["told", "untold"])


def cluster(count: int) -> list[Service | EndpointSlice]:
    """Services ``shop/s0`` and so on at 10.97.0.0 and so on, each with one endpoint."""
    services = [service(f"shop/s{n}", f"10.97.{n // 250}.{n % 250}") for n in range(count)]
    return [*services, *(slice_of(f"shop/s{n}", f"10.244.{n // 250}.{n % 250}") for n in range(count))]


def refusing(*addresses: str, told: bool = True) -> FailKeys:
    """A kernel that refuses to touch the frontends at these addresses."""
    return FailKeys(lambda key: key[0] == "frontend" and str(key[3]) in addresses, told=told, message="not to my taste")


def refusing_new(kernel: MemoryKernel, *addresses: str) -> Callable[[int, Key], Failure | None]:
    """A kernel that refuses to add these frontends, but lets go of them."""

    def fault(_number: int, key: Key) -> Failure | None:
        wanted = key[0] == "frontend" and str(key[3]) in addresses and key not in kernel.ours
        return Failure(message="not to my taste", keys=(key,)) if wanted else None

    return fault


def frontends(kernel: MemoryKernel) -> set[str]:
    return {str(key[3]) for key in kernel.ours if key[0] == "frontend"}


def endpoints_of(kernel: MemoryKernel, text: str) -> set[str]:
    """The endpoint addresses that the kernel has for a Service."""
    ids = {key[1] for key, value in kernel.ours.items() if key[0] == "service" and value == port_key(text)}
    slots = [value for key, value in kernel.ours.items() if key[0] == "slot" and key[1] in ids]
    return {str(slot[0]) for slot in slots if isinstance(slot, tuple)}


def is_consistent(kernel: MemoryKernel, program: MemoryProgram) -> bool:
    """Whether the engine believes just what is true."""
    flat = dict(program.common)
    for fragment in program.fragments.values():
        flat.update(fragment.own)
    return flat == kernel.ours


# -- the culprit is found, the others are served


@ATOMIC
@TOLD
@pytest.mark.parametrize("count", [1, 2, 10, 300])
def test_one_refused_service_is_found_and_the_rest_applied(atomic: bool, told: bool, count: int) -> None:
    culprit = count // 3
    kernel = MemoryKernel(fault=refusing(f"10.97.{culprit // 250}.{culprit % 250}", told=told))
    play = Playbook(MemoryBackend(kernel, atomic)) >> listed(HERE, *cluster(count))
    assert play.reports[-1].error == ""
    assert set(play.reports[-1].failed) == {port_key(f"shop/s{culprit}")}
    assert "not to my taste" in play.reports[-1].failed[port_key(f"shop/s{culprit}")]
    assert len(frontends(kernel)) == count - 1
    assert is_consistent(kernel, play.engine.program)
    assert play.transcript.count(f"refused {port_key(f'shop/s{culprit}')}") == 1


@pytest.mark.parametrize("count", [10, 100, 1000])
def test_the_culprit_is_found_in_few_transactions_when_the_kernel_does_not_tell(count: int) -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE)
    kernel.fault = refusing("10.97.0.7", told=False)
    kernel.history.clear()
    play.advance(1) >> put(*cluster(count))
    assert len(frontends(kernel)) == count - 1
    assert len(kernel.history) <= 1 + 2 * math.ceil(math.log2(count))


def test_two_transactions_suffice_when_the_kernel_tells_the_culprit() -> None:
    kernel = MemoryKernel(fault=refusing("10.97.0.7"))
    Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE, *cluster(100))
    assert len(kernel.history) == 2


@ATOMIC
@TOLD
def test_several_culprits_are_all_found(atomic: bool, told: bool) -> None:
    kernel = MemoryKernel(fault=refusing("10.97.0.3", "10.97.0.4", "10.97.0.77", told=told))
    play = Playbook(MemoryBackend(kernel, atomic)) >> listed(HERE, *cluster(100))
    assert set(play.reports[-1].failed) == {port_key("shop/s3"), port_key("shop/s4"), port_key("shop/s77")}
    assert len(frontends(kernel)) == 97
    assert is_consistent(kernel, play.engine.program)


@ATOMIC
def test_the_earlier_rules_of_a_refused_service_stay(atomic: bool) -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel, atomic)) >> listed(HERE, *cluster(10))
    kernel.fault = refusing("10.97.0.3", told=False)
    before = {key: value for key, value in kernel.ours.items() if key[0] == "frontend" and str(key[3]) == "10.97.0.3"}
    play.advance(1) >> put(*(slice_of(f"shop/s{n}", "10.244.9.1", "10.244.9.2") for n in range(10)))
    assert set(play.reports[-1].failed) == {port_key("shop/s3")}
    assert {key: value for key, value in kernel.ours.items() if key[0] == "frontend" and str(key[3]) == "10.97.0.3"} == before
    assert endpoints_of(kernel, "shop/s4") == {"10.244.9.1", "10.244.9.2"}
    if atomic:
        assert endpoints_of(kernel, "shop/s3") == {"10.244.0.3"}


@ATOMIC
def test_the_earlier_rules_of_a_refused_service_outlive_a_foreign_flush(atomic: bool) -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel, atomic)) >> listed(HERE, *cluster(5))
    kernel.fault = FailKeys(lambda key: key[0] == "slot" and key[3] == 1)
    play.advance(1) >> put(slice_of("shop/s3", "10.244.0.3", "10.244.9.2"))
    play.advance(20)
    assert set(play.reports[-1].failed) == {port_key("shop/s3")}
    before = dict(kernel.ours)
    kernel.meddle(dict.clear)
    play.transcript.clear()
    play.drift()
    assert kernel.ours == before
    assert set(play.reports[-1].failed) == {port_key("shop/s3")}
    assert f"accepted {port_key('shop/s3')}" not in play.transcript


@ATOMIC
def test_the_earlier_rules_of_a_refused_service_outlive_a_restart(atomic: bool) -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel, atomic)) >> listed(HERE, *cluster(3))
    play.close()
    kernel.fault = refusing("10.97.0.1", told=False)
    others = [service("shop/s0", "10.97.0.0"), service("shop/s2", "10.97.0.2")]
    # Nobody else picks among one any more, yet that object stays: the kernel does not tell who needs it.
    changed = [slice_of(f"shop/s{n}", "10.244.9.1", "10.244.9.2", "10.244.9.3") for n in (0, 2)]
    changed.append(slice_of("shop/s1", "10.244.9.1", "10.244.9.2"))
    play = Playbook(MemoryBackend(kernel, atomic)) >> listed(HERE, *others, service("shop/s1", "10.97.0.1"), *changed)
    assert set(play.reports[-1].failed) == {port_key("shop/s1")}
    assert ("pick", 1) in kernel.ours
    play.advance(100)
    assert ("pick", 1) in kernel.ours
    kernel.meddle(lambda objects: objects.update({("pick", 77): "stray"}))
    play.drift().advance(5)
    # Nor can it be told from what somebody else may have put there.
    assert ("pick", 1) in kernel.ours
    assert ("pick", 77) in kernel.ours
    kernel.fault = no_faults
    play.advance(400)
    assert play.reports[-1].ok
    assert ("pick", 1) not in kernel.ours
    assert ("pick", 77) not in kernel.ours
    assert endpoints_of(kernel, "shop/s1") == {"10.244.9.1", "10.244.9.2"}
    assert is_consistent(kernel, play.engine.program)


# -- quarantine


def test_a_refused_service_is_tried_again_ever_more_rarely() -> None:
    kernel = MemoryKernel(fault=refusing("10.97.0.1"))
    play = Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE, *cluster(3))
    play.transcript.clear()
    play.advance(3600)
    assert 15 <= play.transcript.count("apply 4") <= 25
    assert not [line for line in play.transcript if line.startswith("refused")]


def test_a_refused_service_is_tried_again_at_once_when_it_changes() -> None:
    kernel = MemoryKernel(fault=refusing("10.97.0.1"))
    play = Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE, *cluster(3))
    play.advance(200)
    play.transcript.clear()
    play >> put(service("shop/s1", "10.97.9.9"))
    play << ("apply 4", f"accepted {port_key('shop/s1')}", "sync 4")
    assert "10.97.9.9" in frontends(kernel)
    play.advance(3600)
    assert not [line for line in play.transcript if line.startswith("apply")]


def test_a_refused_service_that_is_deleted_is_forgotten() -> None:
    kernel = MemoryKernel(fault=refusing("10.97.0.1"))
    play = Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE, *cluster(3))
    play.advance(200)
    play.transcript.clear()
    play >> gone(service("shop/s1"))
    play << (f"accepted {port_key('shop/s1')}", "sync 0")
    assert play.reports[-1].ok


def test_others_do_not_wait_for_a_refused_service_that_keeps_changing() -> None:
    kernel = MemoryKernel(fault=refusing("10.97.0.1", told=False))
    play = Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE, *cluster(50))
    play.advance(200)
    kernel.history.clear()
    play >> put(slice_of("shop/s1", "10.244.9.1"), slice_of("shop/s2", "10.244.9.2"))
    # The healthy one in the first transaction, then the suspect alone.
    assert len(kernel.history) == 2
    assert endpoints_of(kernel, "shop/s2") == {"10.244.9.2"}


def test_an_heir_gets_the_address_of_a_refused_service() -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE, *cluster(3))
    kernel.fault = refusing_new(kernel, "10.97.9.9")
    # s1 wants to move and cannot, so the kernel keeps it where it was...
    play.advance(1) >> put(service("shop/s1", "10.97.9.9"))
    assert frontends(kernel) == {"10.97.0.0", "10.97.0.1", "10.97.0.2"}
    # ... until s2 is to have that address.
    play.advance(1) >> put(service("shop/s2", "10.97.0.1"))
    play.advance(0.5)
    assert frontends(kernel) == {"10.97.0.0", "10.97.0.1"}
    front = next(value for key, value in kernel.ours.items() if str(key[3:4]) == "(Address(10.97.0.1),)")
    assert getattr(front, "service", None) == play.engine.program.fragments[port_key("shop/s2")].id
    assert set(play.reports[-1].failed) == {port_key("shop/s1")}
    assert is_consistent(kernel, play.engine.program)


def test_an_address_changes_hands_without_a_gap_even_while_a_culprit_is_looked_for() -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel)) >> listed(HERE, *cluster(64))
    play.advance(1)
    seen: list[bool] = []
    picky = refusing_new(kernel, "10.97.8.8")

    def fault(number: int, key: Key) -> Failure | None:
        seen.append("10.97.0.7" in frontends(kernel))
        failure = picky(number, key)
        return evolve(failure, keys=()) if failure is not None else None

    kernel.fault = fault
    moved = [service(f"shop/s{n}", f"10.97.1.{n}") for n in range(20, 60)]
    play >> put(service("shop/s50", "10.97.0.7"), service("shop/s7", "10.97.1.7"), service("shop/s9", "10.97.8.8"), *moved[:5])
    assert set(play.reports[-1].failed) == {port_key("shop/s9")}
    assert seen
    assert all(seen)


def test_when_too_much_is_refused_a_sync_ends_and_the_rest_is_tried_later() -> None:
    kernel = MemoryKernel(fault=FailKeys(lambda key: key[0] == "frontend", told=False))
    play = Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE, *cluster(1000))
    assert play.reports[-1].error.startswith("too much was refused")
    assert len(kernel.history) <= REFUSALS_AT_MOST + 2
    kernel.fault = no_faults
    play.advance(600)
    assert play.reports[-1].ok
    assert len(frontends(kernel)) == 1000


def test_a_refused_scaffold_is_an_error_for_the_whole_and_nobodys_fault() -> None:
    kernel = MemoryKernel(fault=FailKeys(lambda key: key[0] == "node", told=False))
    play = Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE, *cluster(10))
    assert play.reports[-1].error == "what all Services need was refused: no such luck"
    assert play.reports[-1].failed == {}
    assert not kernel.ours
    play.advance(60)
    assert len(kernel.history) < 40
    kernel.fault = no_faults
    play.advance(10)
    assert play.reports[-1].ok
    assert len(frontends(kernel)) == 10


# -- passing failures, and what arrives meanwhile


@ATOMIC
def test_a_passing_failure_is_tried_again_soon_with_all_of_the_work(atomic: bool) -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel, atomic)) >> listed(HERE, *cluster(5))
    play.advance(1)
    kernel.fault = FailNth(2, start=kernel.operations, retryable=True)
    play.transcript.clear()
    play >> put(slice_of("shop/s1", "10.244.9.1", "10.244.9.2"))
    assert play.transcript == ["apply 4", "sync failed: operation 2 was to fail"]
    play.advance(0.15)
    assert play.reports[-1].ok
    assert endpoints_of(kernel, "shop/s1") == {"10.244.9.1", "10.244.9.2"}
    assert is_consistent(kernel, play.engine.program)


def test_passing_failures_that_last_are_tried_with_backoff() -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE, *cluster(5))
    kernel.fault = FailKeys(lambda key: True, retryable=True)
    play.advance(1) >> put(slice_of("shop/s1", "10.244.9.1"))
    kernel.history.clear()
    play.advance(60)
    assert 10 <= len(kernel.history) <= 40
    # It goes on being tried at least every ten seconds, however long the failure lasts.
    play.advance(3600)
    kernel.fault = no_faults
    play.advance(10)
    assert play.reports[-1].ok
    assert endpoints_of(kernel, "shop/s1") == {"10.244.9.1"}


def test_a_failure_that_is_called_passing_and_is_not_does_not_hold_up_the_others() -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE, *cluster(5))
    kernel.fault = FailKeys(lambda key: key[0] == "frontend" and str(key[3]) == "10.97.0.1", retryable=True)
    play.advance(1) >> put(*(slice_of(f"shop/s{n}", "10.244.9.1", "10.244.9.2") for n in range(5)))
    play.advance(10)
    assert set(play.reports[-1].failed) == {port_key("shop/s1")}
    assert endpoints_of(kernel, "shop/s2") == {"10.244.9.1", "10.244.9.2"}


def test_d19_what_arrives_while_the_kernel_is_being_written_is_not_lost() -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE, *cluster(5))
    play.advance(1).hold() >> put(slice_of("shop/s1", "10.244.9.1"))
    play >> put(slice_of("shop/s1", "10.244.9.2"), slice_of("shop/s2", "10.244.9.3"))
    play.release().advance(1)
    assert endpoints_of(kernel, "shop/s1") == {"10.244.9.2"}
    assert endpoints_of(kernel, "shop/s2") == {"10.244.9.3"}


@ATOMIC
@pytest.mark.parametrize("retryable", [True, False])
def test_d19_what_arrives_while_a_write_fails_is_not_lost(atomic: bool, retryable: bool) -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel, atomic)) >> listed(HERE, *cluster(5))
    play.advance(1).hold() >> put(slice_of("shop/s1", "10.244.9.1"), slice_of("shop/s3", "10.244.9.4"))
    play >> put(slice_of("shop/s1", "10.244.9.2"), slice_of("shop/s2", "10.244.9.3"))
    kernel.fault = FailNth(1, start=kernel.operations, retryable=retryable)
    play.release().advance(10)
    assert endpoints_of(kernel, "shop/s1") == {"10.244.9.2"}
    assert endpoints_of(kernel, "shop/s2") == {"10.244.9.3"}
    assert endpoints_of(kernel, "shop/s3") == {"10.244.9.4"}
    assert play.reports[-1].ok


def test_the_trigger_times_of_a_failed_sync_are_in_the_report_of_the_one_that_succeeds() -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE, *cluster(5))
    kernel.fault = FailKeys(lambda key: True, retryable=True)
    play.advance(1) >> put(slice_of("shop/s1", "10.244.9.1", at=55.0))
    assert not play.reports[-1].trigger_times
    kernel.fault = no_faults
    play.advance(10)
    assert play.reports[-1].trigger_times == (55.0,)


def test_what_was_applied_before_a_passing_failure_is_known() -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE, *cluster(5))
    kernel.fault = refusing("10.97.0.1")
    play.advance(1) >> put(slice_of("shop/s1", "10.244.9.1", "10.244.9.2"))
    assert set(play.reports[-1].failed) == {port_key("shop/s1")}
    kernel.fault = evolve(refusing("10.97.0.1"), retryable=True)
    play.advance(0.5) >> put(slice_of("shop/s1", "10.244.9.1", "10.244.9.9"), slice_of("shop/s2", "10.244.9.2", "10.244.9.3"))
    assert play.reports[-1].error
    assert endpoints_of(kernel, "shop/s2") == {"10.244.9.2", "10.244.9.3"}
    assert is_consistent(kernel, play.engine.program)


def test_a_change_of_the_node_is_not_forgotten_when_the_kernel_fails_for_a_moment() -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel, atomic=True)) >> listed(HERE, *cluster(5))
    kernel.fault = FailKeys(lambda key: key[0] == "node", retryable=True)
    play.advance(1) >> put(node("192.0.2.7"))
    assert play.reports[-1].error
    kernel.fault = no_faults
    play.advance(1)
    assert str(kernel.ours["node", "node port addresses"]) == "(Address(192.0.2.7),)"


def test_damage_done_by_others_while_a_sync_fails_is_repaired_by_that_sync() -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel)) >> listed(HERE, *cluster(5))
    refuse = refusing("10.97.0.1")

    def fault(number: int, key: Key) -> Failure | None:
        failure = refuse(number, key)
        if failure is not None:
            kernel.ours.pop(next((other for other in kernel.ours if str(other[3:4]) == "(Address(10.97.0.2),)"), ()), None)
        return failure

    kernel.fault = fault
    play.advance(1) >> put(slice_of("shop/s1", "10.244.9.1", "10.244.9.2"))
    assert frontends(kernel) == {f"10.97.0.{number}" for number in range(5)}
    assert set(play.reports[-1].failed) == {port_key("shop/s1")}
    assert is_consistent(kernel, play.engine.program)


# -- the mode's own faults


class Clumsy(MemoryBackend):
    """A mode that fails on Services named ``broken``."""

    where = "compile"

    def compile(self, port: ServicePort, node: NodeContext, previous: MemoryFragment | None, fresh_id: int) -> MemoryFragment:
        if self.where == "compile" and port.name.name == "broken":
            raise ZeroDivisionError("oops")
        fragment = super().compile(port, node, previous, fresh_id)
        return evolve(fragment, id=77) if self.where == "id" and port.name.name == "broken" else fragment

    def plan(self, before: MemoryProgram, delta: Delta[Key, Value]) -> list[Operation]:
        if self.where == "plan" and any("10.96.6.6" in map(str, key) for key in delta.added):
            raise ZeroDivisionError("oops")
        return list(super().plan(before, delta))

    def scaffold(self, node: NodeContext) -> Any:
        if self.where == "scaffold":
            raise ZeroDivisionError("oops")
        return super().scaffold(node)


@pytest.mark.parametrize("where", ["compile", "plan", "id"])
def test_a_mode_that_fails_on_one_service_serves_the_others(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clumsy, "where", where)
    play = Playbook(Clumsy()) >> listed(HERE, *cluster(20), service("shop/broken", "10.96.6.6"))
    assert set(play.reports[-1].failed) == {port_key("shop/broken")}
    assert len(frontends(play.backend.kernel)) == 20
    play.advance(10) >> put(slice_of("shop/s1", "10.244.9.1"))
    assert endpoints_of(play.backend.kernel, "shop/s1") == {"10.244.9.1"}


def test_a_mode_that_cannot_render_its_scaffold_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clumsy, "where", "scaffold")
    play = Playbook(Clumsy()) >> listed(HERE, *cluster(5))
    assert "cannot render what all Services need" in play.reports[-1].error
    assert play.backend.kernel.ours == {}
    monkeypatch.setattr(Clumsy, "where", "nowhere")
    play.advance(10)
    assert play.reports[-1].ok
    assert len(frontends(play.backend.kernel)) == 5
