"""What the daemon answers to ``kproxy status``: a mapping fit for JSON."""

import os
from collections.abc import Mapping
from typing import Any

from kproxy_core.engine.machine import Engine
from kproxy_core.plugin.backend import SyncReport


def status_of(engine: Engine, mode: str, sync_period: float, now: float) -> Mapping[str, Any]:
    """Sum up an engine; ``now`` is in monotonic seconds, ages are in seconds."""
    report = engine.last_report
    state = engine.state
    refusals = engine.quarantine.refusals
    return {
        "mode": mode,
        "pid": os.getpid(),
        "synced": bool(engine.health.last_sync),
        "healthy": engine.health.healthy(now, sync_period),
        "pending": {family.label: round(now - since, 3) for family, since in engine.health.pending_since.items()},
        "ports": len(state.ports) if state is not None else 0,
        "failed": [{"service": str(port), "reason": refusal.reason} for port, refusal in sorted(refusals.items())],
        "unserved": {family.label: why for family, why in engine.unserved.items()},
        "drift_count": engine.drift_count,
        "last_sync": _last_sync(report, now) if report is not None else None,
        "diagnostics": [str(diagnostic) for diagnostic in state.diagnostics] if state is not None else [],
    }


def _last_sync(report: SyncReport, now: float) -> Mapping[str, Any]:
    return {
        "age": round(now - report.finished, 3),
        "took": round(report.finished - report.started, 6),
        "ok": report.ok,
        "error": report.error,
        "operations": report.operations,
        "changed_ports": report.changed_ports,
    }
