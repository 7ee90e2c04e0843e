"""The daemon's loop, in a thread of this process, on the in-memory kernel and with real descriptors, threads and time."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import pytest
from attrs import define, evolve

from kproxy_core.config.settings import Settings
from kproxy_core.kernel import writer_lock
from kproxy_core.model.addresses import parse_address
from kproxy_core.model.changes import Change
from kproxy_core.model.snapshot import NEEDED_BEFORE_FIRST_SYNC
from kproxy_core.plugin.backend import ApplyResult, SyncReport
from kproxy_core.plugin.errors import UnsupportedError
from kproxy_core.plugin.hookspecs import hookimpl
from kproxy_core.plugin.registry import new_plugin_manager
from kproxy_core.runtime.control import Control
from kproxy_core.runtime.daemon import run_daemon
from kproxy_core.runtime.options import DaemonOptions
from kproxy_core.runtime.sources import Inbox
from kproxy_core.testing.faults import FailKeys, no_faults
from kproxy_core.testing.memory_backend import MemoryBackend, MemoryDataplane, MemoryKernel, MemoryProgram, Operation
from kproxy_core.testing.playbook import Playbook
from kproxy_core.testing.sketch import NODE, listed, node, put, service, slice_of

PATIENCE = 20.0
"""Seconds after which a condition is held not to come true; usually it takes milliseconds."""

HERE = node("192.0.2.1")
WEB = service("shop/web", "10.96.0.10")
START = listed(HERE, WEB, slice_of("shop/web", "10.244.1.1"))


def wait_until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.005)


class Fed:
    """A source that a test feeds; it fails as long as ``broken``."""

    kinds = NEEDED_BEFORE_FIRST_SYNC

    def __init__(self, changes: Iterable[Change] = (), name: str = "the test") -> None:
        self.name = name
        self.inbox = Inbox()
        self.inbox.put(changes)
        self.broken = False
        self.closed = False
        self.polls = 0

    def fileno(self) -> int:
        return self.inbox.fileno()

    def poll(self) -> tuple[Change, ...]:
        self.polls += 1
        if self.broken:
            raise OSError("the disk is gone")
        return self.inbox.take()

    def close(self) -> None:
        self.closed = True
        self.inbox.close()


@define
class Running:
    """A daemon in a thread."""

    kernel: MemoryKernel
    source: Fed
    control: Control
    thread: threading.Thread
    status: list[int]
    seen: "Observer"

    def wait_for_sync(self) -> None:
        """Wait until the first sync has ended."""
        wait_until(lambda: any(line.startswith("sync") for line in self.seen.seen), "the first sync has ended")

    def stop(self) -> int:
        self.control.stop()
        return self.join()

    def join(self) -> int:
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return self.status[0]

    def endpoints(self) -> set[str]:
        return {str(value[0]) for key, value in list(self.kernel.ours.items()) if key[0] == "slot" and isinstance(value, tuple)}


def options_for(backend: MemoryBackend, source: Fed, **more: Any) -> DaemonOptions:
    settings = Settings(node_name=NODE)
    address = (parse_address("192.0.2.1"),)
    options = DaemonOptions(settings=settings, backend=backend, sources=(source,), addresses=address, lock_name=None)
    return evolve(options, clean_conntrack=False, **more)


@contextlib.contextmanager
def running(backend: MemoryBackend, changes: Sequence[Change] = START, **more: Any) -> Iterator[Running]:
    source, control, status, observer = Fed(changes), Control(), list[int](), Observer()
    sources = (source, *more.pop("more_sources", ()))
    options = evolve(options_for(backend, source, **more), sources=sources)
    options.plugins.register(observer)
    thread = threading.Thread(target=lambda: status.append(run_daemon(options, control)))
    daemon = Running(backend.kernel, source, control, thread, status, observer)
    thread.start()
    try:
        yield daemon
    finally:
        daemon.control.stop()
        thread.join(PATIENCE)


def test_it_programs_what_the_source_tells_and_stops_with_status_0() -> None:
    with running(MemoryBackend()) as daemon:
        wait_until(lambda: daemon.endpoints() == {"10.244.1.1"}, "the first endpoint is there")
        daemon.source.inbox.put(put(slice_of("shop/web", "10.244.1.2")))
        wait_until(lambda: daemon.endpoints() == {"10.244.1.2"}, "the change is there")
        assert daemon.stop() == 0
        assert daemon.endpoints() == {"10.244.1.2"}
        assert daemon.source.closed


def test_what_an_unused_mode_has_left_is_removed_once_the_rules_are_there() -> None:
    old, new = MemoryKernel(), MemoryKernel(fault=FailKeys(lambda key: key[0] == "frontend", retryable=True))
    (Playbook(MemoryBackend(old)) >> START).close()
    assert old.ours
    with running(MemoryBackend(new), unused=(MemoryBackend(old),)) as daemon:
        daemon.wait_for_sync()
        assert old.ours
        new.fault = no_faults
        wait_until(lambda: not old.tables, "it is removed")
        assert daemon.endpoints() == {"10.244.1.1"}


def test_several_sources_are_served_together_and_none_before_all_have_listed() -> None:
    more = Fed(name="more")
    with running(MemoryBackend(), more_sources=(more,)) as daemon:
        wait_until(lambda: daemon.source.polls and more.polls, "both were polled")
        assert daemon.kernel.operations == 0
        more.inbox.put(listed(service("shop/more", "10.96.0.11"), slice_of("shop/more", "10.244.2.1")))
        wait_until(lambda: daemon.endpoints() == {"10.244.1.1", "10.244.2.1"}, "both are served")
        more.inbox.put(put(slice_of("shop/more", "10.244.2.2")))
        daemon.source.inbox.put(put(slice_of("shop/web", "10.244.1.2")))
        wait_until(lambda: daemon.endpoints() == {"10.244.1.2", "10.244.2.2"}, "both changes are there")
    assert more.closed


def test_a_source_of_an_extension_that_never_lists_holds_nobody_up_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kproxy_core.runtime.daemon.PATIENCE", 0.5)
    broken = Fed(name="broken")
    broken.broken = True
    with running(MemoryBackend(), more_sources=(broken,)) as daemon:
        wait_until(lambda: daemon.endpoints() == {"10.244.1.1"}, "the other source is served")
        broken.broken = False
        broken.inbox.put(listed(service("shop/more", "10.96.0.11"), slice_of("shop/more", "10.244.2.1")))
        wait_until(lambda: daemon.endpoints() == {"10.244.1.1", "10.244.2.1"}, "it may still come later")
    messages = [record.getMessage() for record in caplog.records]
    assert "not everything was listed within 0.5 seconds, and extensions are waited for no longer: broken" in messages


def test_a_failing_source_is_logged_once_and_polled_again(caplog: pytest.LogCaptureFixture) -> None:
    with running(MemoryBackend()) as daemon:
        daemon.wait_for_sync()
        daemon.source.broken = True
        daemon.source.inbox.put(put(slice_of("shop/web", "10.244.1.2")))
        polls = daemon.source.polls
        wait_until(lambda: daemon.source.polls >= polls + 2, "it was polled twice in vain")
        daemon.source.broken = False
        wait_until(lambda: daemon.endpoints() == {"10.244.1.2"}, "the change is there")
        assert daemon.source.polls < polls + 10
    assert [record.getMessage() for record in caplog.records].count("the test failed, and will be tried again") == 1


def test_d26_a_foreign_change_is_repaired() -> None:
    with running(MemoryBackend()) as daemon:
        daemon.wait_for_sync()
        before = dict(daemon.kernel.ours)
        daemon.kernel.meddle(dict.clear)
        wait_until(lambda: daemon.kernel.ours == before, "it is repaired")


class Surprising(MemoryDataplane):
    """A dataplane that breaks its contract: once while applying, once while reading."""

    surprises: ClassVar[list[str]] = []
    opened: ClassVar[int] = 0

    def __init__(self, kernel: MemoryKernel) -> None:
        super().__init__(kernel)
        Surprising.opened += 1

    def apply(self, plan: Sequence[Operation]) -> ApplyResult:
        if "apply" in self.surprises:
            self.surprises.remove("apply")
            raise RuntimeError("surprise")
        return super().apply(plan)

    def read(self) -> MemoryProgram:
        if "read" in self.surprises:
            self.surprises.remove("read")
            raise RuntimeError("surprise")
        return super().read()


class SurprisingBackend(MemoryBackend):
    def open(self) -> MemoryDataplane:
        return Surprising(self.kernel)


def test_a_dataplane_that_breaks_its_contract_is_opened_anew(caplog: pytest.LogCaptureFixture) -> None:
    Surprising.surprises, Surprising.opened = ["apply", "read"], 0
    with running(SurprisingBackend()) as daemon:
        daemon.wait_for_sync()
        daemon.source.inbox.put(put(slice_of("shop/web", "10.244.1.2")))
        wait_until(lambda: daemon.endpoints() == {"10.244.1.2"}, "the change is there")
        assert Surprising.opened >= 2
        daemon.kernel.meddle(dict.clear)
        wait_until(lambda: daemon.endpoints() == {"10.244.1.2"}, "drift is seen through the new one")
    assert sum("broke its contract" in record.getMessage() for record in caplog.records) == 2


class Unsupported(MemoryBackend):
    def open(self) -> MemoryDataplane:
        raise UnsupportedError("nf_tables is missing; modprobe nf_tables")


def test_a_mode_that_cannot_be_opened_ends_the_daemon_with_status_1_and_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    assert run_daemon(options_for(Unsupported(), source := Fed())) == 1
    assert "nf_tables is missing; modprobe nf_tables" in caplog.text
    assert source.closed


class Observer:
    """Sees everything, after a colleague who fails."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @hookimpl
    def kproxy_state_resolved(self) -> None:
        self.seen.append("state")

    @hookimpl
    def kproxy_sync_finished(self, report: SyncReport) -> None:
        self.seen.append(f"sync {report.operations}")

    @hookimpl
    def kproxy_shutdown(self) -> None:
        self.seen.append("shutdown")


class Failing:
    @hookimpl
    def kproxy_state_resolved(self) -> None:
        raise ValueError("oops")

    @hookimpl
    def kproxy_sync_finished(self) -> None:
        raise ValueError("oops")

    @hookimpl
    def kproxy_shutdown(self) -> None:
        raise ValueError("oops")


def test_observers_are_told_and_failing_ones_harm_nobody() -> None:
    plugins = new_plugin_manager()
    # pluggy calls the last registered first; the observer comes in between, or last.
    plugins.register(Failing())
    with running(MemoryBackend(), plugins=plugins) as daemon:
        daemon.wait_for_sync()
        plugins.register(Failing())
        daemon.source.inbox.put(put(slice_of("shop/web", "10.244.1.2")))
        wait_until(lambda: daemon.endpoints() == {"10.244.1.2"}, "the change is there")
        assert daemon.stop() == 0
    assert daemon.seen.seen == ["state", "sync 8", "state", "sync 1", "shutdown"]


def test_diagnostics_are_logged_once_when_they_come_and_once_when_they_go(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kproxy")
    with running(MemoryBackend(), [*listed(HERE, WEB, slice_of("shop/web", "127.0.0.1"))]) as daemon:
        wait_until(lambda: "127.0.0.1" in caplog.text, "the bad endpoint is reported")
        daemon.source.inbox.put(put(slice_of("shop/web", "127.0.0.1", "10.244.1.1")))
        wait_until(daemon.endpoints, "the good endpoint is there")
        daemon.source.inbox.put(put(slice_of("shop/web", "10.244.1.1")))
        wait_until(lambda: "settled: EndpointSlice" in caplog.text, "it is reported as settled")
    about = [record.getMessage() for record in caplog.records if "127.0.0.1" in record.getMessage()]
    assert len(about) == 2


def test_refused_services_and_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kproxy")
    kernel = MemoryKernel(fault=FailKeys(lambda key: key[0] == "frontend"))
    with running(MemoryBackend(kernel, atomic=True)) as daemon:
        wait_until(lambda: "shop/web/TCP (IPv4) is not programmed: no such luck" in caplog.text, "it is reported")
        kernel.fault = no_faults
        daemon.source.inbox.put(put(slice_of("shop/web", "10.244.1.2")))
        wait_until(lambda: "is no longer refused" in caplog.text, "it is reported as good")


# -- the writer lock


@pytest.fixture
def lock_name(request: pytest.FixtureRequest) -> str:
    return f"kproxy-test-{threading.get_native_id()}-{request.node.name}"[:90]


def test_the_holder_of_the_lock_tells_its_status_and_stops_when_asked(lock_name: str) -> None:
    with running(MemoryBackend(), lock_name=lock_name) as daemon:
        daemon.wait_for_sync()
        status = writer_lock.ask({"ask": "status"}, name=lock_name)
        assert (status["mode"], status["ports"], status["failed"], status["drift_count"]) == ("memory", 1, [], 0)
        assert status["last_sync"]["ok"]
        assert "error" in writer_lock.ask({"ask": "the moon"}, name=lock_name)
        assert writer_lock.ask({"ask": "stop"}, name=lock_name) == {"stopping": True}
        assert daemon.join() == 0


def test_a_second_daemon_waits_and_takes_over_without_a_write(lock_name: str, caplog: pytest.LogCaptureFixture) -> None:
    kernel = MemoryKernel()
    with running(MemoryBackend(kernel), lock_name=lock_name) as first:
        first.wait_for_sync()
        operations = kernel.operations
        with running(MemoryBackend(kernel), lock_name=lock_name) as second:
            wait_until(lambda: "waiting until it ends" in caplog.text, "the second waits")
            reads = kernel.reads
            assert not second.source.polls
            assert first.stop() == 0
            second.wait_for_sync()
            assert kernel.reads == reads + 1
            second.source.inbox.put(put(slice_of("shop/web", "10.244.1.2")))
            wait_until(lambda: second.endpoints() == {"10.244.1.2"}, "the change is there")
            # One slot changed: the take-over itself was read only.
            assert kernel.operations == operations + 1


def test_a_daemon_that_waits_for_the_lock_can_be_stopped(lock_name: str, caplog: pytest.LogCaptureFixture) -> None:
    with running(MemoryBackend(), lock_name=lock_name) as first:
        first.wait_for_sync()
        with running(MemoryBackend(), lock_name=lock_name) as second:
            wait_until(lambda: "waiting until it ends" in caplog.text, "the second waits")
            assert second.stop() == 0
            assert not second.endpoints()


def test_a_fault_of_the_engine_ends_the_daemon_with_status_1_and_is_not_taken_for_a_sources(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("kproxy_core.engine.changes.ChangeTracker.resolve", fail)
    with running(MemoryBackend()) as daemon:
        assert daemon.join() == 1
    assert "the daemon ends after an unexpected error; the kernel keeps its rules" in caplog.text
    assert "the test failed" not in caplog.text
