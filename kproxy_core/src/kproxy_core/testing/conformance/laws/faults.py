"""Whatever goes wrong between a mode and its kernel, and whenever: the next syncs bring about what was wanted."""

import contextlib
from collections.abc import Sequence

import pytest

from kproxy_core.model.addresses import Family
from kproxy_core.model.changes import WatchedObject
from kproxy_core.plugin.backend import Capability, SyncReport
from kproxy_core.testing.conformance.laws.change import Change, held, one_family, whole_change
from kproxy_core.testing.conformance.laws.disturbance import (
    AtRandom,
    Break,
    Death,
    LostAnswer,
    Mishap,
    Once,
    Refusal,
    disturbed,
)
from kproxy_core.testing.conformance.mode_tests import ModeTests
from kproxy_core.testing.conformance.world import TCP
from kproxy_core.testing.faults import Crash

LOOKS = 8
"""After so many faults packets are sent; the kernel's contents are compared after each."""
LONG = 100.0
"""Seconds of the engine's clock after which nothing that was refused is left alone any more."""


class FaultLaws(ModeTests):
    """Faults at each operation: refused, carried out in part, carried out without an answer, the process dead in the midst."""

    def test_a_fault_at_each_operation_of_a_change(self) -> None:
        """After each number of operations in turn the next one is refused, by turns for now and for good."""
        change = whole_change(self.world)
        wanted = self.meaning_of(change.after)
        size = self.size_of(change)
        assert size > 1
        for position in range(size):
            self.try_mishap(change, Break(after=position, retryable=position % 2 == 0), wanted)
            if position % LOOKS == 0:
                change.look_after()
                assert good(self.world.node.check()).operations == 0

    @pytest.mark.parametrize("mishap", [Refusal(), Refusal(retryable=True), LostAnswer()], ids=str)
    def test_a_change_that_is_refused_or_not_answered(self, mishap: Mishap) -> None:
        """Nothing of it is carried out, or all of it and nobody is told."""
        change = whole_change(self.world)
        wanted = self.meaning_of(change.after)
        self.try_mishap(change, mishap, wanted)
        change.look_after()

    def test_death_at_each_operation_of_a_change(self) -> None:
        """After each number of operations in turn the process is gone; established connections go on, where the mode says so."""
        change = whole_change(self.world)
        wanted = self.meaning_of(change.after)
        size = self.size_of(change)
        survives = Capability.SURVIVES_CRASH in self.world.node.backend.capabilities
        self.world.node.set(*change.before)
        address = self.world.cluster.cluster(201).ipv4
        with held(self.world, address) if survives else contextlib.nullcontext(lambda: True) as all_alive:
            for position in range(size + 1):
                self.world.node.set(*change.before)
                with pytest.raises(Crash), disturbed(self.world.node, Once(Death(after=position))):
                    self.world.node.set(*change.after)
                good(self.world.node.restart(cluster=change.after))
                self.assert_settled(wanted)
                if position % LOOKS == 0:
                    change.look_after()
                    assert all_alive(), f"connections were lost by a death after {position} operations"
            assert all_alive()

    def test_death_at_each_operation_of_a_first_start(self) -> None:
        """The same where nothing was there before."""
        node, cluster = self.world.node, self.world.cluster
        objects = (
            *one_family(
                Family.IPV6,
                cluster.service("web", 201, "t=80@31201", external=201, affinity_timeout=60),
                *cluster.endpoints("web", "a1 b1", "t=8080"),
            ),
        )
        wanted = self.meaning_of(objects)
        size = self.size_of_start(objects)
        for position in range(size + 1):
            self.start_untold()
            with contextlib.suppress(Crash), disturbed(node, Once(Death(after=position))):
                node.set(*objects)
            good(node.restart(cluster=objects))
            self.assert_settled(wanted)
            if position % LOOKS == 0:
                self.world.see(self.world.ask("a2 outside", cluster.external(201).ipv6, protocols=TCP).answered("a1 b1"))

    @pytest.mark.parametrize("seed", range(4))
    def test_faults_at_a_tenth_of_all_operations(self, seed: int) -> None:
        """Through a history of single changes and whole lists."""
        change, node = whole_change(self.world), self.world.node
        wanted = self.meaning_of(change.after)
        node.set(*change.before)
        there = {(type(each), each.name): each for each in change.before}
        coming = {(type(each), each.name): each for each in change.after}
        disturbance = AtRandom(0.1, seed)
        with disturbed(node, disturbance):
            for _ in range(3):
                for key, each in coming.items():
                    node.play >> [] if there.get(key) == each else node.put(each)
                node.remove(*(each for key, each in there.items() if key not in coming))
                node.set(*change.before)
            node.set(*change.after)
            assert disturbance.struck
        node.play.settle(LONG)
        self.assert_settled(wanted)
        change.look_after()

    def test_a_kernel_that_cannot_be_read_for_a_while(self) -> None:
        """What is wanted meanwhile comes about once it can."""
        change, node = whole_change(self.world), self.world.node
        wanted = self.meaning_of(change.after)
        node.set(*change.before)
        with disturbed(node, lambda _: None) as planted:
            planted.unreadable = 3
            node.check()
            node.set(*change.after)
            node.play.settle(LONG)
            assert not planted.unreadable
        self.assert_settled(wanted)
        change.look_after()

    # -- how

    def meaning_of(self, objects: Sequence[WatchedObject]) -> object:
        """What the kernel means when it holds a cluster."""
        node = self.world.node
        good(node.set(*objects))
        good(node.check())
        return node.backend.canonical(node.dataplane.read())

    def size_of(self, change: Change) -> int:
        """How many operations the largest plan has by which a change is made."""
        self.world.node.set(*change.before)
        with disturbed(self.world.node, lambda _: None) as planted:
            good(self.world.node.set(*change.after))
        return planted.largest_plan

    def size_of_start(self, objects: Sequence[WatchedObject]) -> int:
        """The same for a first start."""
        self.start_untold()
        with disturbed(self.world.node, lambda _: None) as planted:
            good(self.world.node.set(*objects))
        return planted.largest_plan

    def start_untold(self) -> None:
        """Start where nothing of the mode is in the kernel."""
        self.world.node.dataplane.cleanup()
        self.world.node.restart_untold()

    def try_mishap(self, change: Change, mishap: Mishap, wanted: object) -> None:
        """Make a change with one mishap."""
        node = self.world.node
        node.set(*change.before)
        once = Once(mishap)
        with disturbed(node, once):
            node.set(*change.after)
        assert once.struck
        self.assert_settled(wanted)

    def assert_settled(self, wanted: object) -> None:
        """Everything wanted is in the kernel now, and after the next check nothing else."""
        node = self.world.node
        good(node.play.engine.last_report)
        good(node.check())
        assert node.backend.canonical(node.dataplane.read()) == wanted


def good(report: SyncReport | None) -> SyncReport:
    """The report of a sync that did all it had to."""
    assert report is not None
    assert report.ok, report
    return report
