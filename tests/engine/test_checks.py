"""How often the kernel is compared with what is wanted when nothing seems to have happened (O17, D25)."""

import pytest

from kproxy_core.plugin.backend import Capability
from kproxy_core.testing.memory_backend import MemoryBackend, MemoryKernel
from kproxy_core.testing.playbook import SETTINGS, Playbook
from kproxy_core.testing.sketch import listed, node, service, slice_of

OBJECTS = (node("192.0.2.1"), service("shop/web", "10.96.0.10"), slice_of("shop/web", "10.244.1.1", "10.244.1.2"))


class CertainBackend(MemoryBackend):
    """A mode whose kernel part tells of every change by others."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        return super().capabilities | {Capability.DRIFT_CERTAIN}


def test_o17_what_may_miss_a_change_is_checked_each_sync_period() -> None:
    play = Playbook(MemoryBackend(MemoryKernel()), SETTINGS)
    play >> listed(*OBJECTS) << ("read", "apply 9", "sync 9", "clean")
    for _ in range(3):
        play.advance(SETTINGS.sync_period) << ("read", "sync 0")


def test_d25_what_cannot_miss_a_change_is_checked_hourly_all_the_same() -> None:
    play = Playbook(CertainBackend(MemoryKernel()), SETTINGS)
    play >> listed(*OBJECTS) << ("read", "apply 9", "sync 9", "clean")
    play.advance(3599 - SETTINGS.sync_period) << ()
    play.advance(1 + SETTINGS.sync_period) << ("read", "sync 0")


@pytest.mark.parametrize("backend", [MemoryBackend, CertainBackend])
def test_a_change_that_is_told_of_is_repaired_at_once(backend: type[MemoryBackend]) -> None:
    kernel = MemoryKernel()
    play = Playbook(backend(kernel), SETTINGS)
    play >> listed(*OBJECTS) << ("read", "apply 9", "sync 9", "clean")
    play.advance(10) << ()
    before = dict(kernel.ours)
    kernel.meddle(dict.clear, "nft (pid 4242)")
    play.drift() << ("read", "apply 9", "sync 9")
    assert kernel.ours == before
