"""Calls the plugins that observe, each on its own, so that none can stop a sync or the others."""

import logging
from typing import Any

import pluggy

from kproxy_core.model.state import NodeState
from kproxy_core.plugin.backend import SyncReport
from kproxy_core.runtime.logs import LOGGER

log = logging.getLogger(LOGGER)


class Observers:
    """The observers among the registered plugins."""

    def __init__(self, plugins: pluggy.PluginManager) -> None:
        self._hooks = plugins.hook

    def state_resolved(self, state: NodeState) -> None:
        """Tell them of a state that is about to be programmed."""
        self._call(self._hooks.kproxy_state_resolved, state=state)

    def sync_finished(self, report: SyncReport) -> None:
        """Tell them of a sync that has ended."""
        self._call(self._hooks.kproxy_sync_finished, report=report)

    def shutdown(self) -> None:
        """Tell them that the daemon ends."""
        self._call(self._hooks.kproxy_shutdown)

    @staticmethod
    def _call(hook: pluggy.HookCaller, **arguments: Any) -> None:
        # hook(...) would stop at the first exception, and leave out the rest.
        for implementation in hook.get_hookimpls():
            try:
                implementation.function(*(arguments[name] for name in implementation.argnames))
            except Exception:
                log.exception("observer %s failed in %s", implementation.plugin_name, hook.name)
