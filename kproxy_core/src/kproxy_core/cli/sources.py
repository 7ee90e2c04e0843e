"""Follows manifests for the daemon."""

import logging
import os
import select
import threading
from collections.abc import Callable

from kproxy_core.cli.options import MANIFESTS
from kproxy_core.model.changes import Change, Replaced
from kproxy_core.model.diagnostics import Diagnostic
from kproxy_core.model.snapshot import Kind
from kproxy_core.runtime.logs import LOGGER
from kproxy_core.runtime.sources import Inbox
from kproxy_core.sources.manifests import ManifestSource

log = logging.getLogger(LOGGER)

LOOK_PERIOD = 1.0
"""Seconds between two looks at files that inotify does not tell of: those on network file systems, and behind symbolic links."""


class FollowedManifests:
    """Manifests that a thread of its own looks after: it reads what has changed and puts it into an inbox for the daemon's loop.

    Reads everything once at first; raises :class:`~kproxy_core.plugin.errors.ConfigError` when there is nothing to read. While
    a file has never been readable it delivers nothing, and says so: the kernel may hold the Services of that very file, from
    before a restart, and would lose them. ``nothing_to_lose`` tells that it holds none, so that the others can be served.
    """

    def __init__(self, path: str, nothing_to_lose: Callable[[], bool] = lambda: False) -> None:
        self._source = ManifestSource(path)
        self.name = f"{MANIFESTS}{path}"
        self.kinds = self._source.delivers
        self._withheld: dict[Kind, Replaced] = {}
        self._unread: tuple[Diagnostic, ...] = ()
        changes = self._source.load()
        self._may_be_partial = not self._source.complete and nothing_to_lose()
        self._inbox = Inbox()
        self._deliver(changes)
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._follower = threading.Thread(target=self._follow, name="manifests", daemon=True)
        self._follower.start()

    def fileno(self) -> int:
        """Readable when ``poll`` has something."""
        return self._inbox.fileno()

    def poll(self) -> tuple[Change, ...]:
        """Return what is new."""
        return self._inbox.take()

    def close(self) -> None:
        """Stop following."""
        os.eventfd_write(self._stop, 1)
        self._follower.join()
        os.close(self._stop)
        self._source.close()
        self._inbox.close()

    def _follow(self) -> None:
        failed = False
        while not self._wait(failed):
            try:
                changes = self._source.poll()
                failed = False
            except Exception:
                if not failed:
                    log.exception("%s cannot be followed, and will be tried again; what was read stays in force", self.name)
                failed = True
                continue
            self._deliver(changes)

    def _deliver(self, changes: tuple[Replaced, ...]) -> None:
        """Put lists into the inbox, the last of each kind, once they are complete."""
        self._withheld.update((change.kind, change) for change in changes)
        unread = self._source.unread if not self._source.complete else ()
        for told in unread:
            if told not in self._unread:
                held = "the others are served" if self._may_be_partial else "the kernel keeps what it has"
                log.error("%s; until every manifest has been read, %s", told, held)
        if self._unread and self._source.complete:
            log.info("%s: every manifest has been read", self.name)
        self._unread = unread
        if (self._source.complete or self._may_be_partial) and self._withheld:
            self._inbox.put(self._withheld.values())
            self._withheld = {}

    def _wait(self, failed: bool) -> bool:
        """Wait until there may be something to read; return whether it is time to stop instead."""
        settling = self._source.wake_after
        timeout = LOOK_PERIOD if settling is None or failed else min(LOOK_PERIOD, settling)
        descriptor = -1 if failed else self._source.fileno()
        watched = [self._stop, descriptor] if descriptor >= 0 else [self._stop]
        ready, _, _ = select.select(watched, [], [], timeout)
        return self._stop in ready
