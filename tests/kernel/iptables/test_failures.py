"""What the programs or the kernel refuse: whose fault it is, what is kept of it, and that the rest goes on."""

import fcntl
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kproxy_core.kernel.failed_texts import failed_texts as kept
from kproxy_core.kernel.iptables import IptablesPrograms, Restored, Variant
from kproxy_core.model.addresses import Family
from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.names import ServicePortKey
from kproxy_core.model.state import NodeContext, ServicePort
from kproxy_core.program.program import Fragment
from kproxy_core.testing.conformance.world import World
from kproxy_iptables.backend import IptablesBackend
from kproxy_iptables.dataplane import steps
from kproxy_iptables.objects import Key, Value

pytestmark = pytest.mark.kernel

Run = Callable[..., str]
IptablesWorld = World[IptablesBackend]

UNREADABLE = "-m set --match-set NO-SUCH-SET src -j RETURN"
"""The program refuses it and says in which line."""
REFUSED = "-m owner --uid-owner 7 -j RETURN"
"""The kernel refuses it in a chain that incoming packets pass: legacy tables as a whole, nf_tables by rule."""


class Spoiling:
    """Spoils the rendering of chosen Services by a rule that is refused."""

    def __init__(self, backend: IptablesBackend, rule: str, names: set[str]) -> None:
        self._compile = backend.compile
        self.rule = rule
        self.names = names

    def __call__(
        self, port: ServicePort, node: NodeContext, previous: Fragment[Key, Value] | None, fresh_id: int
    ) -> Fragment[Key, Value]:
        fragment = self._compile(port, node, previous, fresh_id)
        if port.name.name not in self.names:
            return fragment
        own = {
            key: (self.rule, *value) if isinstance(value, tuple) and key[0].endswith(" chain") else value
            for key, value in fragment.own.items()
        }
        return evolve(fragment, own=own)


@contextmanager
def spoiled(world: IptablesWorld, monkeypatch: pytest.MonkeyPatch, rule: str, *names: str) -> Iterator[Spoiling]:
    """Have some Services spoiled inside."""
    with monkeypatch.context() as patch:
        spoiling = Spoiling(world.node.backend, rule, set(names))
        patch.setattr(world.node.backend, "compile", spoiling)
        yield spoiling


def cluster(world: IptablesWorld, count: int) -> tuple[WatchedObject, ...]:
    services = [world.cluster.service(f"s{number}", 20 + number) for number in range(count)]
    return (*services, *(piece for each in services for piece in world.cluster.endpoints(each.name.name, "a1 b1")))


def refused(world: IptablesWorld) -> set[ServicePortKey]:
    return set(world.node.reports[-1].failed)


def test_a_refused_line_names_its_service_and_the_rest_is_applied(
    world: IptablesWorld, monkeypatch: pytest.MonkeyPatch, failed_texts: Path
) -> None:
    applied = 0
    with spoiled(world, monkeypatch, UNREADABLE, "s3"):
        report = world.node.set(*cluster(world, 8))
        assert report is not None
        assert {port.name.name for port in report.failed} == {"s3"}
        assert all("NO-SUCH-SET" in reason for reason in report.failed.values())
        world.see(
            *(world.ask("a2 node", world.cluster.cluster(20 + number)).answered("a1 b1") for number in range(8) if number != 3)
        )
        applied = len(kept(failed_texts))
    assert applied
    newest = kept(failed_texts)[0]
    assert newest.mode == "iptables"
    assert "NO-SUCH-SET" in newest.reason
    assert UNREADABLE in newest.path.read_text()
    world.node.set(*cluster(world, 8))
    world.see(world.ask("a2 node", world.cluster.cluster(23)).answered("a1 b1"))
    assert not world.node.difference()


def test_each_culprit_takes_one_attempt(world: IptablesWorld, monkeypatch: pytest.MonkeyPatch, failed_texts: Path) -> None:
    """The line says whose it is: nothing is searched by halves. Each protocol and family is a Service port of its own."""
    attempts: list[Family] = []
    original = IptablesPrograms.restore

    def counted(programs: IptablesPrograms, family: Family, text: Iterable[str], **options: Any) -> Restored:
        attempts.append(family)
        return original(programs, family, text, **options)

    monkeypatch.setattr(IptablesPrograms, "restore", counted)
    with spoiled(world, monkeypatch, UNREADABLE, "s5", "s6"):
        world.node.set(*cluster(world, 30))
        assert {port.name.name for port in refused(world)} == {"s5", "s6"}
        # Six Service ports in each family are refused, and again at two retries; the others take a text for each family.
        assert len(attempts) <= 3 * 2 * 6 + 2
    assert len(kept(failed_texts)) <= 5


def test_what_only_the_kernel_refuses_is_found_too(world: IptablesWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    with spoiled(world, monkeypatch, REFUSED, "s2"):
        world.node.set(*cluster(world, 6))
        assert {port.name.name for port in refused(world)} == {"s2"}
        world.see(*(world.ask("a2 outside", world.cluster.cluster(20 + number)).answered("a1 b1") for number in (0, 1, 3, 4, 5)))


def test_earlier_rules_of_a_refused_service_stay(world: IptablesWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.node.set(*cluster(world, 3))
    with spoiled(world, monkeypatch, UNREADABLE, "s1"):
        world.node.put(*world.cluster.endpoints("s1", "b2"))
        assert {port.name.name for port in refused(world)} == {"s1"}
        world.see(world.ask("a2 outside", world.cluster.cluster(21), times=3).answered("a1 b1"))
        world.node.put(*world.cluster.endpoints("s2", "b2"))
        world.see(world.ask("a2 outside", world.cluster.cluster(22), times=3).answered("b2"))


def test_d23_d48_a_lock_that_is_held_is_waited_for_reported_and_tried_again(
    world: IptablesWorld, variant: Variant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if variant is Variant.NFT:
        pytest.skip("nf_tables has no lock")
    lock = tmp_path / "lock"
    monkeypatch.setenv("XTABLES_LOCKFILE", str(lock))
    monkeypatch.setattr(steps, "LOCK_PATIENCE", 1)
    descriptor = os.open(lock, os.O_CREAT | os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        world.node.put(*cluster(world, 1))
        assert "end whatever holds the lock of the tables" in world.node.reports[-1].error
    finally:
        os.close(descriptor)
    assert world.node.check() is not None
    world.see(world.ask("a2", world.cluster.cluster(20)).answered("a1 b1"))


def test_a_lock_that_may_not_be_opened_is_held_by_nobody(
    world: IptablesWorld, variant: Variant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As for root of a user namespace: what helps is said."""
    if variant is Variant.NFT:
        pytest.skip("nf_tables has no lock")
    with monkeypatch.context() as patch:
        patch.setenv("XTABLES_LOCKFILE", str(tmp_path / "no folder" / "lock"))
        world.node.put(*cluster(world, 1))
        told = world.node.reports[-1].error
        assert "can't open lock file" in told
        assert "XTABLES_LOCKFILE" in told
        assert "whatever holds the lock" not in told
    assert world.node.check() is not None
    world.see(world.ask("a2", world.cluster.cluster(20)).answered("a1 b1"))


def test_a_lock_that_is_held_for_a_moment_delays_only(
    world: IptablesWorld, variant: Variant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if variant is Variant.NFT:
        pytest.skip("nf_tables has no lock")
    lock = tmp_path / "lock"
    monkeypatch.setenv("XTABLES_LOCKFILE", str(lock))
    descriptor = os.open(lock, os.O_CREAT | os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    timer = threading.Timer(0.5, os.close, [descriptor])
    timer.start()
    report = world.node.put(*cluster(world, 1))
    timer.join()
    assert report is not None
    assert report.ok
