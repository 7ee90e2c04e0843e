"""Where changes come from beside the daemon's own source: extensions; and the inbox for sources with threads of their own."""

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

import pluggy

from kproxy_core.config.settings import Settings
from kproxy_core.model.changes import Change
from kproxy_core.plugin.source import Source
from kproxy_core.runtime.logs import LOGGER

log = logging.getLogger(LOGGER)


def extension_sources(plugins: pluggy.PluginManager, settings: Settings) -> tuple[Source, ...]:
    """Ask the registered plugins, in that order, for more sources, each on its own; one that fails is told and left out."""
    found: list[Source] = []
    for implementation in plugins.hook.kproxy_sources.get_hookimpls():
        try:
            given: Any = implementation.function(*(settings for _ in implementation.argnames))
            sources = tuple(given)
        except Exception:
            log.exception("the sources of %s cannot be had, and are left out", implementation.plugin_name)
            continue
        for source in sources:
            if isinstance(source, Source):
                found.append(source)
            else:
                log.error("%s offers %r, which is no source; it is left out", implementation.plugin_name, source)
    return tuple(found)


class Inbox:
    """A queue of changes that wakes the daemon: put in from any thread, taken out by the source's ``poll``."""

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._changes: deque[Change] = deque()
        # Guards the descriptor, which must not be written to after it was closed: its number may be another file's by then.
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """Readable while there is something to take."""
        return self._event

    def put(self, changes: Iterable[Change]) -> None:
        """Deliver changes, in order, from any thread. After ``close`` they are discarded."""
        self._changes.extend(changes)
        with self._lock:
            if self._event >= 0:
                os.eventfd_write(self._event, 1)

    def take(self) -> tuple[Change, ...]:
        """Take out everything that has been delivered."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        taken: list[Change] = []
        # Not list() and clear(): another thread may be putting in between.
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self._changes.popleft())
        return tuple(taken)

    def close(self) -> None:
        """Take nothing more."""
        with self._lock:
            if self._event >= 0:
                os.close(self._event)
                self._event = -1
