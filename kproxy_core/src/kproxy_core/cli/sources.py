"""Follows manifests for the daemon."""

import logging
import os
import select
import threading

from kproxy_core.cli.options import MANIFESTS
from kproxy_core.model.changes import Change
from kproxy_core.runtime.logs import LOGGER
from kproxy_core.runtime.sources import Inbox
from kproxy_core.sources.manifests import ManifestSource

log = logging.getLogger(LOGGER)

LOOK_PERIOD = 1.0
"""Seconds between two looks at files that inotify does not tell of: those on network file systems, and behind symbolic links."""


class FollowedManifests:
    """Manifests that a thread of its own looks after: it reads what has changed and puts it into an inbox for the daemon's loop.

    Reads everything once at first; raises :class:`~kproxy_core.plugin.errors.ConfigError` when there is nothing to read.
    """

    def __init__(self, path: str) -> None:
        self._source = ManifestSource(path)
        self.name = f"{MANIFESTS}{path}"
        self.delivers = self._source.delivers
        changes = self._source.load()
        self._inbox = Inbox()
        self._inbox.put(changes)
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
            if changes:
                self._inbox.put(changes)

    def _wait(self, failed: bool) -> bool:
        """Wait until there may be something to read; return whether it is time to stop instead."""
        settling = self._source.wake_after
        timeout = LOOK_PERIOD if settling is None or failed else min(LOOK_PERIOD, settling)
        descriptor = -1 if failed else self._source.fileno()
        watched = [self._stop, descriptor] if descriptor >= 0 else [self._stop]
        ready, _, _ = select.select(watched, [], [], timeout)
        return self._stop in ready
