"""What a run of the kit came to: counts by kind of address, origin, protocol and family, and all of it as plain data."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import define

from kproxy_core.testing.conformance.runner import Check, Report

KINDS: Mapping[str, str] = {
    "cluster": "ClusterIP",
    "nodePort": "NodePort",
    "external": "externalIP",
    "balancer": "LoadBalancer",
    "loopback": "on loopback",
    "host": "of no Service",
    "address": "of no Service",
}
"""How the kinds of address are called."""

ORIGINS = ("routed pod", "bridged pod", "node", "outside")
GROUPS = tuple((protocol, family) for protocol in ("TCP", "UDP", "SCTP") for family in ("IPv4", "IPv6"))

Place = tuple[str, str, str, str]
"""Kind, origin, protocol and family."""


@define
class Count:
    """Packets of one place that met what they had to, that did not, and that were not sent for want of a capability."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def word(self) -> str:
        """What to say of it in a word."""
        if self.failed:
            return "FAIL"
        return "ok" if self.passed else "skip" if self.skipped else ""


def origin_of(host: str) -> str:
    """What a host of the lab is to the node."""
    if host in ("node", "outside"):
        return host
    return "bridged pod" if "br" in host else "routed pod"


def table(reports: Iterable[Report]) -> dict[Place, Count]:
    """Counts by place."""
    found: dict[Place, Count] = {}
    for report in reports:
        for check in report.checks:
            count = found.setdefault(_place(check), Count())
            count.passed += not check.complaint and not check.skipped
            count.failed += bool(check.complaint)
            count.skipped += bool(check.skipped)
    return found


def _place(check: Check) -> Place:
    return KINDS[check.kind], origin_of(check.origin), check.protocol, check.family


def rows(counts: Mapping[Place, Count]) -> list[tuple[str, str, tuple[Count, ...]]]:
    """The table's rows: kind, origin, and a count for each of the groups."""
    made = []
    for kind in dict.fromkeys(KINDS.values()):
        for origin in ORIGINS:
            line = tuple(counts.get((kind, origin, *group), Count()) for group in GROUPS)
            if any(count.word for count in line):
                made.append((kind, origin, line))
    return made


def document(reports: Sequence[Report]) -> dict[str, Any]:
    """All that a run came to, as plain data."""
    counts = table(reports)
    return {
        "ok": all(report.ok for report in reports),
        "passed": sum(report.ok and not report.skipped for report in reports),
        "failed": sum(not report.ok for report in reports),
        "skipped": sum(bool(report.skipped) for report in reports),
        "packets": sum(len(report.checks) for report in reports),
        "seconds": round(sum(report.seconds for report in reports), 1),
        "scenarios": [_scenario(report) for report in reports],
        "table": [
            {
                "kind": kind,
                "from": origin,
                "protocol": protocol,
                "family": family,
                "passed": count.passed,
                "failed": count.failed,
                "skipped": count.skipped,
            }
            for (kind, origin, protocol, family), count in counts.items()
        ],
    }


def _scenario(report: Report) -> dict[str, Any]:
    return {
        "name": report.scenario.name,
        "cases": list(report.scenario.cases),
        "result": "skipped" if report.skipped else "passed" if report.ok else "failed",
        "skipped": report.skipped,
        "packets": len(report.checks),
        "seconds": round(report.seconds, 2),
        "complaints": list(report.complaints),
    }
