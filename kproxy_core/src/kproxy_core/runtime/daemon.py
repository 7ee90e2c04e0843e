"""The daemon: waits to be the only writer, then keeps the kernel as the sources want it until it is told to stop."""

import contextlib
import functools
import gc
import logging
import math
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from kproxy_core.engine import events as e
from kproxy_core.engine.changes import ChangeTracker
from kproxy_core.engine.machine import Engine
from kproxy_core.kernel import writer_lock
from kproxy_core.kernel.writer_lock import LockedError, WriterLock
from kproxy_core.model.snapshot import NEEDED_BEFORE_FIRST_SYNC
from kproxy_core.plugin.backend import AnyBackend
from kproxy_core.plugin.errors import ConfigError, UnsupportedError
from kproxy_core.plugin.source import Source
from kproxy_core.runtime.addresses import AddressFeed, FixedAddresses, KernelAddresses
from kproxy_core.runtime.announcements import Announcements
from kproxy_core.runtime.companions import clean_up_after
from kproxy_core.runtime.conntrack import ConntrackCleaner
from kproxy_core.runtime.control import Control
from kproxy_core.runtime.feeds import Feed, Feeds
from kproxy_core.runtime.kernel_access import KernelAccess
from kproxy_core.runtime.logs import LOGGER
from kproxy_core.runtime.merging import Merger
from kproxy_core.runtime.observers import Observers
from kproxy_core.runtime.options import DaemonOptions
from kproxy_core.runtime.status import status_of
from kproxy_core.runtime.surface import RETRY_PERIOD, Surface

log = logging.getLogger(LOGGER)

POLL_PERIOD = 1.0
"""Seconds between two looks for drift, and at sources without a descriptor."""
PATIENCE = 30.0
"""Seconds for which the sources of extensions are waited for before they are done without."""
LOCK_PATIENCE = 0.5
"""Seconds for which a daemon that waits for the writer lock does not notice a signal."""


def run_daemon(options: DaemonOptions, control: Control | None = None) -> int:
    """Run until SIGTERM, SIGINT or ``control.stop()``; return the exit status: 0 then, 1 after an error that nothing can mend.

    Blocks. Waits first until no other daemon programs this network namespace. Whatever the end, the kernel keeps the rules, and
    the sources are closed. In the main thread it handles SIGTERM, SIGINT and SIGHUP (check the kernel now) while it runs.
    """
    # A full recomputation makes a hundred thousand values that all stay: the default thresholds would visit them again and again.
    gc.set_threshold(50_000, 20, 100)
    control = control or Control()
    with contextlib.ExitStack() as stack:
        stack.callback(control.close)
        for source in options.sources:
            stack.callback(_close, source)
        stack.enter_context(control.signals())
        try:
            return _run(options, control, stack)
        except (ConfigError, UnsupportedError) as error:
            log.critical("%s", error)
        except Exception:
            log.critical("the daemon ends after an unexpected error; the kernel keeps its rules", exc_info=True)
    return 1


def _run(options: DaemonOptions, control: Control, stack: contextlib.ExitStack) -> int:
    lock = None
    if options.lock_name is not None:
        lock = _become_the_writer(options.lock_name, control)
        if lock is None:
            return 0
        stack.callback(lock.close)
    kernel = KernelAccess(options.backend)
    stack.callback(kernel.close)
    addresses = KernelAddresses() if options.addresses is None else FixedAddresses(options.addresses)
    stack.callback(addresses.close)
    daemon = Daemon(options, control, kernel, addresses, lock)
    stack.callback(daemon.close)
    log.info("programming mode %s, process %d", options.backend.name, os.getpid())
    daemon.run()
    log.info("stopped; the kernel keeps its rules (kproxy cleanup removes them)")
    return 0


def _close(source: Source) -> None:
    try:
        source.close()
    except Exception:
        log.exception("%s cannot be closed", source.name)


def _become_the_writer(name: str, control: Control) -> WriterLock | None:
    """Wait for the lock; None if the daemon is stopped before it has it."""
    told = False
    while not control.stopping:
        try:
            return WriterLock(name=name)
        except LockedError as error:
            if not told:
                log.warning("%s; waiting until it ends", error)
                told = True
        writer_lock.wait_until_free(timeout=LOCK_PATIENCE, name=name)
    return None


class Daemon:
    """The loop: tells the engine what has happened and performs what it asks for, in one thread."""

    def __init__(
        self,
        options: DaemonOptions,
        control: Control,
        kernel: KernelAccess,
        addresses: AddressFeed,
        lock: WriterLock | None,
    ) -> None:
        self._options = options
        self._control = control
        self._kernel = kernel
        backend, settings = options.backend, options.settings
        needed = NEEDED_BEFORE_FIRST_SYNC.union(*(source.kinds for source in options.sources))
        tracker = ChangeTracker(settings, backend.node_ports_everywhere, needed)
        self._engine = Engine(backend, tracker, settings, clock=time.perf_counter)
        self._observers = Observers(options.plugins)
        self._announcements = Announcements()
        self._surface = None if options.surface is None else Surface(options.surface, self._engine, options.sources)
        self._cleaner: ConntrackCleaner | None = None
        self._unused: Iterable[AnyBackend] | None = options.unused
        self._merger = Merger(options.sources) if len(options.sources) > 1 else None
        self._patient_until = time.monotonic() + PATIENCE
        self._effects: deque[e.Effect] = deque()
        self._is_done = False
        feeds = [
            Feed(name="control", descriptor=control.fileno, poll=control.take),
            Feed(name="the address watch", descriptor=addresses.fileno, poll=lambda: _poll_addresses(addresses)),
            Feed(name="the watch for drift", descriptor=kernel.fileno, poll=self._poll_drift, every=POLL_PERIOD),
            *(self._feed_of(source) for source in options.sources),
        ]
        if self._surface is not None:
            feeds.append(Feed(name="the listeners", descriptor=lambda: -1, poll=self._poll_surface, every_unwatched=RETRY_PERIOD))
        if self._merger is not None:
            feeds.append(
                Feed(name="the wait for sources", descriptor=lambda: -1, poll=self._poll_patience, every_unwatched=POLL_PERIOD)
            )
        if lock is not None:
            feeds.append(Feed(name="the writer lock", descriptor=lock.fileno, poll=lambda: self._poll_lock(lock)))
        self._feeds = Feeds(feeds)

    def run(self) -> None:
        """Loop until stopped."""
        while not self._is_done:
            now = time.monotonic()
            deadline = -math.inf if self._effects else self._engine.deadline
            ready = self._feeds.wait(now, deadline)
            # One effect a round: a long series of plans must not keep signals and sources waiting.
            if self._effects:
                self._perform(self._effects.popleft())
            now = time.monotonic()
            for event in self._feeds.poll(ready, now):
                self._tell(event)
            if not self._effects and self._engine.deadline <= now:
                self._tell(e.TimePassed())

    def close(self) -> None:
        """Say good-bye."""
        self._observers.shutdown()
        if self._surface is not None:
            self._surface.close()
        if self._cleaner is not None:
            self._cleaner.close()
        self._feeds.close()

    # -- events

    def _feed_of(self, source: Source) -> Feed:
        poll = functools.partial(self._poll_source, source)
        return Feed(name=source.name, descriptor=source.fileno, poll=poll, every_unwatched=POLL_PERIOD)

    def _poll_source(self, source: Source) -> Iterable[e.Event]:
        changes = source.poll()
        if self._merger is not None:
            changes = self._merger.merge(source, changes)
        return (e.ChangesArrived(changes),) if changes else ()

    def _poll_patience(self) -> Iterable[e.Event]:
        """Wait no longer for extensions' sources than is good for the others."""
        if self._merger is None or time.monotonic() < self._patient_until:
            return ()
        self._patient_until = math.inf
        late = self._merger.awaited
        changes = self._merger.do_without()
        if late:
            log.error(
                "not everything was listed within %g seconds, and extensions are waited for no longer: %s",
                PATIENCE,
                ", ".join(late),
            )
        return (e.ChangesArrived(changes),) if changes else ()

    def _poll_drift(self) -> Iterable[e.Event]:
        drift = self._kernel.drift()
        return () if drift is None else (e.DriftNoticed(drift),)

    def _poll_lock(self, lock: WriterLock) -> Iterable[e.Event]:
        lock.handle(self._answer)
        return ()

    def _poll_surface(self) -> Iterable[e.Event]:
        if self._surface is not None:
            self._surface.listen()
        return ()

    def _tell(self, event: e.Event) -> None:
        self._effects.extend(self._engine.step(event, time.monotonic()))
        if self._surface is not None:
            self._surface.told(event)

    def _answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        match request.get("ask"):
            case "status":
                return status_of(self._engine, self._options.backend.name, self._options.settings.sync_period, time.monotonic())
            case "check":
                self._control.check()
                return {"checking": True}
            case "stop":
                self._control.stop()
                return {"stopping": True}
            case other:
                return {"error": f"{other!r} cannot be asked; ask for status, check or stop"}

    # -- effects

    def _perform(self, effect: e.Effect) -> None:
        match effect:
            case e.ReadKernel():
                self._tell(self._kernel.read())
            case e.ApplyPlan(plan):
                self._tell(self._kernel.apply(plan))
            case e.CleanConntrack():
                self._clean(effect)
            case e.AnnounceState(state):
                self._announcements.state(state)
                self._observers.state_resolved(state)
                if self._surface is not None:
                    self._surface.state_resolved(state)
            case e.AnnounceSync(report):
                self._announcements.sync(report)
                self._observers.sync_finished(report)
                if self._surface is not None:
                    self._surface.sync_finished(report)
                if self._unused is not None and report.ok:
                    unused, self._unused = self._unused, None
                    clean_up_after(unused)
            case e.ReportRefused():
                self._announcements.refused(effect)
            case e.ReportAccepted():
                self._announcements.accepted(effect)
            case e.Exit():
                self._is_done = True
            case _:
                assert_never(effect)

    def _clean(self, effect: e.CleanConntrack) -> None:
        if not self._options.clean_conntrack:
            self._tell(e.ConntrackCleaned())
            return
        if self._cleaner is None:
            count = self._surface.metrics.reconciled if self._surface is not None else None
            self._cleaner = ConntrackCleaner(self._options.backend.valid_replies, self._cleaned, count)
        self._cleaner.clean(effect)

    def _cleaned(self, error: str) -> None:
        """Called in the cleaner's thread."""
        if error:
            log.warning("stale UDP flows could not be deleted, and will be tried again: %s", error)
        self._control.post(e.ConntrackCleaned(error))


def _poll_addresses(addresses: AddressFeed) -> Iterable[e.Event]:
    found = addresses.poll()
    return () if found is None else (e.AddressesSeen(found),)
