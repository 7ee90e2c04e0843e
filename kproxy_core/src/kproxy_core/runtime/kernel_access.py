"""Performs reads and plans on a dataplane, and opens a new one when it fails in a way that the contract does not know."""

import contextlib
import logging
from collections.abc import Sequence
from typing import Any

from kproxy_core.engine.events import KernelRead, KernelUnreadable, PlanApplied
from kproxy_core.plugin.backend import AnyBackend, AnyDataplane, ApplyResult, Drift, Failure
from kproxy_core.plugin.errors import ApplyError
from kproxy_core.runtime.logs import LOGGER

log = logging.getLogger(LOGGER)


class KernelAccess:
    """The open dataplane of a backend. Raises ``UnsupportedError`` when it cannot be opened at first."""

    def __init__(self, backend: AnyBackend) -> None:
        self._backend = backend
        self._dataplane: AnyDataplane = backend.open()
        self._is_suspect = False

    def fileno(self) -> int:
        """The dataplane's descriptor for drift, or -1."""
        return self._dataplane.fileno()

    def read(self) -> KernelRead | KernelUnreadable:
        """Read what is ours in the kernel."""
        try:
            self._reopen_if_suspect()
            return KernelRead(self._dataplane.read(), self._dataplane.unserved)
        except ApplyError as error:
            return KernelUnreadable(str(error))
        except Exception as error:
            log.exception("mode %s broke its contract while reading the kernel", self._backend.name)
            self._is_suspect = True
            return KernelUnreadable(repr(error))

    def apply(self, plan: Sequence[Any]) -> PlanApplied:
        """Carry out a plan; after a surprise what the kernel holds is unknown."""
        try:
            return PlanApplied(self._dataplane.apply(plan))
        except Exception as error:
            log.exception("mode %s broke its contract while applying a plan", self._backend.name)
            self._is_suspect = True
            return PlanApplied(ApplyResult(failures=(Failure(message=repr(error), retryable=True),)))

    def drift(self) -> Drift | None:
        """Tell whether somebody else may have changed what is ours. Raises what the dataplane raises, once it is a new one."""
        try:
            self._reopen_if_suspect()
            return self._dataplane.drift()
        except Exception:
            self._is_suspect = True
            raise

    def close(self) -> None:
        """Close the dataplane; the kernel keeps the rules."""
        self._dataplane.close()

    def _reopen_if_suspect(self) -> None:
        if not self._is_suspect:
            return
        # The new one is opened first, so that its descriptor differs from the one that the loop still waits on.
        fresh = self._backend.open()
        with contextlib.suppress(Exception):
            self._dataplane.close()
        self._dataplane = fresh
        self._is_suspect = False
