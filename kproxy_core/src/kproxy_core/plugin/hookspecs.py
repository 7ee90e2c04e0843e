"""The hooks by which pluggy finds and configures modes, sources and observers."""

from collections.abc import Iterable
from typing import Any

import pluggy

from kproxy_core.config.settings import Settings
from kproxy_core.model.state import NodeState
from kproxy_core.plugin.backend import SyncReport
from kproxy_core.plugin.source import Source

PROJECT = "kproxy"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec(firstresult=True)
def kproxy_backend(mode: str, settings: Settings) -> Any | None:
    """Build the backend for ``mode``, or return None when it is another's.

    Called once at start, before any watch, with the mode's entry-point name. No I/O: looking at the kernel belongs to
    ``Backend.probe``. May raise :class:`~kproxy_core.plugin.errors.ConfigError`. Returns a
    :class:`~kproxy_core.plugin.backend.Backend`.
    """


@hookspec
def kproxy_sources(settings: Settings) -> Iterable[Source]:  # type: ignore[empty-body]
    """Name more places to watch, beside the API server or the manifests.

    Called once, before the daemon's loop starts; the daemon polls what it returns, and closes it in the end. An exception is
    logged and costs these sources only. Nothing is programmed before every source has listed its kinds, but no source of an
    extension is waited for longer than half a minute. An object that is delivered twice is that of the daemon's own source.
    """


@hookspec
def kproxy_state_resolved(state: NodeState) -> None:
    """Observe a newly resolved state, before it is programmed. An exception is logged and never stops a sync."""


@hookspec
def kproxy_sync_finished(report: SyncReport) -> None:
    """Observe the end of a sync, good or bad. An exception is logged and never stops anything."""


@hookspec
def kproxy_shutdown() -> None:
    """Say good-bye: the daemon is about to end; the kernel keeps its rules."""
