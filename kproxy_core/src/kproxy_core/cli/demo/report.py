"""What the demo has found out: expectations and whether they held, and the report for scripts."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen


@frozen(kw_only=True)
class Expectation:
    """Something that must hold. ``detail`` is what was seen, in numbers."""

    name: str
    ok: bool
    detail: str


@frozen(kw_only=True)
class Report:
    """The whole demo. ``measured`` are figures by name, with the unit in the name; nothing is expected of them."""

    mode: str
    seconds: float
    expectations: Sequence[Expectation] = ()
    services: Sequence[Mapping[str, Any]] = ()
    measured: Mapping[str, float] = field(factory=dict)
    missing: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Whether everything held."""
        return bool(self.expectations) and all(expectation.ok for expectation in self.expectations)


def report_document(report: Report) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "ok": report.ok,
        "mode": report.mode,
        "seconds": round(report.seconds, 3),
        "expectations": [
            {"name": expectation.name, "ok": expectation.ok, "detail": expectation.detail} for expectation in report.expectations
        ],
        "services": list(report.services),
        "measured": {name: round(value, 6) for name, value in report.measured.items()},
        "missing": list(report.missing),
    }


def evenly(counts: Sequence[int]) -> bool:
    """Whether these counts look like fair picks: none is more than five standard deviations from its share.

    By chance that happens once in a million times.
    """
    total, ways = sum(counts), len(counts)
    if not total or not ways:
        return False
    share = 1 / ways
    allowed = 5 * math.sqrt(total * share * (1 - share)) + 1
    return all(abs(count - total * share) <= allowed for count in counts)
