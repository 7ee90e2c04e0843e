"""Tells people what goes on, in the log: each thing once when it begins and once when it ends, not with every sync."""

import logging
from collections.abc import Mapping

from kproxy_core.engine.events import ReportAccepted, ReportRefused
from kproxy_core.model.addresses import Family
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.state import NodeState
from kproxy_core.plugin.backend import SyncReport
from kproxy_core.runtime.logs import LOGGER

log = logging.getLogger(LOGGER)

_LEVELS = {Severity.NOTE: logging.DEBUG, Severity.WARNING: logging.WARNING, Severity.ERROR: logging.ERROR}


class Announcements:
    """Remembers what has been said."""

    def __init__(self) -> None:
        self._told: tuple[Diagnostic, ...] = ()
        self._diagnostics: frozenset[Diagnostic] = frozenset()
        self._error = ""
        self._unserved: Mapping[Family, str] = {}
        self._has_synced = False

    def state(self, state: NodeState) -> None:
        """Log the diagnostics that are new, and those that are gone."""
        if state.diagnostics is self._told:
            return
        self._told = state.diagnostics
        now = frozenset(state.diagnostics)
        for diagnostic in sorted(now - self._diagnostics):
            log.log(_LEVELS[diagnostic.severity], "%s", diagnostic, extra=_about(diagnostic))
        for diagnostic in sorted(self._diagnostics - now):
            level = min(_LEVELS[diagnostic.severity], logging.INFO)
            log.log(level, "settled: %s", diagnostic, extra=_about(diagnostic))
        self._diagnostics = now

    def sync(self, report: SyncReport) -> None:
        """Log what a sync did, if it did anything, and a failure when it is not the one of the last sync again."""
        if report.drifted:
            who = report.culprit or "somebody"
            extra = {"drifted": report.drifted, "culprit": report.culprit}
            log.warning("%s had changed %d of our objects in the kernel; repaired", who, report.drifted, extra=extra)
        if report.error and report.error != self._error:
            log.error("sync failed, and will be tried again: %s", report.error)
        elif self._error and not report.error:
            log.info("sync works again")
        self._error = report.error
        if not report.error:
            self._families(report.unserved)
        first = not (report.error or self._has_synced)
        self._has_synced |= first
        level = logging.INFO if report.operations or first else logging.DEBUG
        log.log(level, "%s%s", "first sync: " if first else "sync: ", _summary(report), extra=_fields(report))

    def _families(self, unserved: Mapping[Family, str]) -> None:
        for family, why in unserved.items():
            if self._unserved.get(family) != why:
                log.error("%s is not served, and will be tried again: %s", family.label, why, extra={"ip_family": family.label})
        for family in self._unserved.keys() - unserved.keys():
            log.info("%s is served again", family.label, extra={"ip_family": family.label})
        self._unserved = unserved

    def refused(self, effect: ReportRefused) -> None:
        """Log a Service port that could not be programmed."""
        extra = {"service": str(effect.port), "reason": effect.reason}
        log.error("%s is not programmed: %s; its earlier rules stay", effect.port, effect.reason, extra=extra)

    def accepted(self, effect: ReportAccepted) -> None:
        """Log that it is in order again."""
        log.info("%s is no longer refused", effect.port, extra={"service": str(effect.port)})


def _about(diagnostic: Diagnostic) -> dict[str, str]:
    return {"subject": diagnostic.subject, "field": diagnostic.field, "place": diagnostic.place}


def _summary(report: SyncReport) -> str:
    took = (report.finished - report.started) * 1000
    refused = f", {len(report.failed)} refused" if report.failed else ""
    operations = _counted(report.operations, "operation")
    return f"{operations} for {_counted(report.changed_ports, 'Service port')} in {took:.1f} ms{refused}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _fields(report: SyncReport) -> dict[str, object]:
    durations = {f"{phase}_ms": round(seconds * 1000, 3) for phase, seconds in report.durations.items()}
    return {"operations": report.operations, "changed_ports": report.changed_ports, "full": report.full, **durations}
