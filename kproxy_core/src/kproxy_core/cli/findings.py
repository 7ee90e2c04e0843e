"""Shows findings of probes, as lines for people and as JSON."""

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import click

from kproxy_core.plugin.backend import Finding

_WIDTH = 110


def finding_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Each finding, and below it the remedy where something is amiss; one remedy for several in a row is told once."""
    every = tuple(findings)
    width = max((len(finding.name) for finding in every), default=0)
    for finding, following in zip(every, (*every[1:], None), strict=True):
        colour = "green" if finding.ok else "red" if finding.fatal else "yellow"
        label = click.style(f"{state(finding):7}", fg=colour)
        first, *rest = textwrap.wrap(finding.message, _WIDTH - width) or [""]
        yield f"  {label} {finding.name:{width}}  {first}".rstrip()
        indent = " " * (12 + width)
        yield from (f"{indent}{line}" for line in rest)
        told_below = following is not None and not following.ok and following.remedy == finding.remedy
        if finding.remedy and not finding.ok and not told_below:
            lines = textwrap.wrap(finding.remedy, _WIDTH - width, break_on_hyphens=False)
            yield f"{indent}{click.style('remedy:', bold=True)} {lines[0]}"
            yield from (f"{indent}        {line}" for line in lines[1:])


def state(finding: Finding) -> str:
    """``ok``, ``missing`` (nothing works without it) or ``warning``."""
    return "ok" if finding.ok else "missing" if finding.fatal else "warning"


def finding_document(finding: Finding) -> dict[str, Any]:
    """A finding as JSON; ``state`` is ``ok``, ``warning`` or ``missing``."""
    return {"name": finding.name, "state": state(finding), "message": finding.message, "remedy": finding.remedy}
