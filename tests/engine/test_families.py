"""What the engine does when the kernel refuses an IP family as a whole: the other goes on, and it is told by family."""

from collections.abc import Mapping

import pytest
from attrs import field, frozen

from kproxy_core.engine import events as e
from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.names import Protocol
from kproxy_core.model.state import NodeContext, ServicePort
from kproxy_core.plugin.backend import Drift, Failure
from kproxy_core.program.program import Fragment, Program
from kproxy_core.runtime.announcements import Announcements
from kproxy_core.testing.memory_backend import Key, MemoryBackend, MemoryDataplane, MemoryKernel, Value
from kproxy_core.testing.playbook import Playbook
from kproxy_core.testing.sketch import listed, node, put, service, slice_of

WEB = service("shop/web", "10.96.0.10", "fd00:96::10", protocol=Protocol.UDP)
SLICES = (
    slice_of("shop/web", "10.244.1.1", "10.244.1.2", protocol=Protocol.UDP),
    slice_of("shop/web", "fd00:244::1", protocol=Protocol.UDP),
)
REFUSED = {Family.IPV6: "the kernel does not like it"}


class PickyDataplane(MemoryDataplane):
    """One whose kernel may refuse families."""

    def __init__(self, kernel: MemoryKernel, refused: Mapping[Family, str]) -> None:
        super().__init__(kernel)
        self._refused = refused
        self._unserved: Mapping[Family, str] = {}

    def read(self) -> Program[Key, Value]:
        """Read, and learn what is refused."""
        self._unserved = dict(self._refused)
        return super().read()

    @property
    def unserved(self) -> Mapping[Family, str]:
        """As it was read."""
        return self._unserved


@frozen(kw_only=True)
class PickyBackend(MemoryBackend):
    """Renders nothing of what is not served."""

    refused: dict[Family, str] = field(factory=dict)

    def open(self) -> PickyDataplane:
        """Open it."""
        return PickyDataplane(self.kernel, self.refused)

    def compile(
        self, port: ServicePort, node: NodeContext, previous: Fragment[Key, Value] | None, fresh_id: int
    ) -> Fragment[Key, Value]:
        """Render it, or nothing."""
        return Fragment() if port.family in self.refused else super().compile(port, node, previous, fresh_id)


def started(refused: Mapping[Family, str] = REFUSED) -> Playbook[PickyBackend]:
    """A playbook after the first sync."""
    play = Playbook(PickyBackend(kernel=MemoryKernel(), refused=dict(refused)))
    return play >> listed(node("192.0.2.1"), WEB, *SLICES)


def families(play: Playbook[PickyBackend]) -> set[Family]:
    """Of the frontends in the kernel."""
    return {key[3].family for key in play.backend.kernel.ours if key[0] == "frontend" and isinstance(key[3], Address)}


def test_the_other_family_is_programmed_and_the_report_says_why_not_all_is() -> None:
    play = started()
    (report,) = play.reports
    assert (report.ok, report.error, report.failed, report.unserved) == (False, "", {}, REFUSED)
    assert families(play) == {Family.IPV4}
    play.transcript.clear()
    play.advance(1)
    play >> put(slice_of("shop/web", "10.244.1.2", protocol=Protocol.UDP))
    assert [line for line in play.transcript if line.startswith(("read", "sync failed"))] == [], "no haste, no despair"
    assert play.reports[-1].unserved == REFUSED


def test_what_is_not_served_waits_and_its_flows_are_left_alone() -> None:
    play = started()
    health = play.engine.health
    assert health.last_sync.keys() == {Family.IPV4}
    assert health.pending_since.keys() == {Family.IPV6}
    assert {port.family for wish in play.cleanings for port in wish.state.ports} == {Family.IPV4}
    since = health.pending_since[Family.IPV6]
    play.advance(5)
    play >> put(slice_of("shop/web", "10.244.1.2", protocol=Protocol.UDP))
    play.settle(5)
    assert play.engine.health.pending_since == {Family.IPV6: since}
    assert play.engine.health.last_sync[Family.IPV4] > since


def test_nothing_waits_for_a_family_that_nobody_wants() -> None:
    play = Playbook(PickyBackend(kernel=MemoryKernel(), refused=REFUSED))
    play >> listed(node("192.0.2.1"), service("shop/web", "10.96.0.10"), slice_of("shop/web", "10.244.1.1"))
    assert not play.engine.health.pending_since


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_family_that_comes_or_goes_is_rendered_anew_and_is_nobodys_drift(comes_back: bool) -> None:
    play = started(REFUSED if comes_back else {})
    play.advance(10)
    play.backend.refused.clear()
    play.backend.refused.update({} if comes_back else REFUSED)
    play >> e.DriftNoticed(Drift())
    play.settle(5)
    assert families(play) == (set(Family) if comes_back else {Family.IPV4})
    assert play.engine.drift_count == 0
    assert play.reports[-1].ok == comes_back
    assert bool(play.engine.health.pending_since) != comes_back


def test_a_read_in_the_midst_of_a_sync_may_tell_it_too() -> None:
    """A plan is refused for good, the kernel is read before the rest is tried, and only then it is a matter of families."""
    play = started({})
    play.advance(10)
    kernel, refused = play.backend.kernel, play.backend.refused

    def fault(_number: int, _key: Key) -> Failure | None:
        if refused:
            return None
        refused.update(REFUSED)
        return Failure(message="no", retryable=False)

    kernel.fault = fault
    play.transcript.clear()
    play >> put(slice_of("shop/web", "10.244.1.1", "10.244.1.3", protocol=Protocol.UDP))
    assert play.transcript.count("read") == 1
    assert play.transcript.index("read") < play.transcript.index("apply 5"), "what there was of the family is removed"
    assert families(play) == {Family.IPV4}
    assert play.reports[-1].unserved == REFUSED
    assert not play.engine.quarantine.refusals


def test_each_is_told_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    announcements = Announcements()
    play = started()
    play >> e.CheckRequested()
    play.backend.refused.clear()
    play >> e.CheckRequested()
    play.settle(5)
    with caplog.at_level("INFO"):
        for report in play.reports:
            announcements.sync(report)
    told = [record.getMessage() for record in caplog.records if "served" in record.getMessage()]
    assert told == ["IPv6 is not served, and will be tried again: the kernel does not like it", "IPv6 is served again"]
