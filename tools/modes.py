"""Runs the conformance kit on every installed mode, and writes what came of it into the reference and the README.

``python tools/modes.py`` as root or in a user namespace; ``--only-readme`` writes the README from the results that are there.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "reference" / "modes.json"
README = ROOT / "README.md"
SECTION = re.compile(r"(?<=<!-- modes -->\n).*?(?=<!-- /modes -->)", re.DOTALL)

USES = {
    "nftables": "nf_tables maps and sets, programmed by netlink",
    "iptables": "iptables-restore (either variant) and ipset, few rules for each Service",
    "ipvs": "the kernel's virtual server",
    "userspace": "relays in processes of their own",
    "ebpf": "socket load balancing",
}
"""The modes in the order of the table, and what each is built on."""


def measure() -> dict[str, Any]:
    """Run the kit on the installed modes. Nothing in the result depends on the machine's speed."""
    from kproxy_core.plugin.registry import installed_modes
    from kproxy_core.testing.conformance.corpus import corpus
    from kproxy_core.testing.conformance.session import installed_mode, run_all
    from kproxy_core.testing.conformance.tally import document

    results = {}
    for mode in (mode for mode in USES if mode in installed_modes()):
        with installed_mode(mode) as subject:
            found = document(run_all(corpus(), subject, lambda report: print(report.scenario.name, file=sys.stderr)))  # noqa: T201
        results[mode] = {
            "passed": found["passed"],
            "failed": [each["name"] for each in found["scenarios"] if each["result"] == "failed"],
            "skipped": {each["name"]: each["skipped"] for each in found["scenarios"] if each["skipped"]},
            "packets": found["packets"],
        }
    return {"scenarios": [scenario.name for scenario in corpus()], "modes": results}


def table(results: dict[str, Any]) -> str:
    """The README's table."""
    lines = ["| mode | distribution | what it uses | conformance |", "|---|---|---|---|"]
    for mode, uses in USES.items():
        lines.append(f"| {mode} | `kproxy-{mode}` | {uses} | {_state(results['modes'].get(mode))} |")
    return "\n".join(lines) + "\n"


def _state(result: dict[str, Any] | None) -> str:
    if result is None:
        return "planned"
    tried = result["passed"] + len(result["failed"])
    told = f"all {tried} scenarios" if not result["failed"] else f"{result['passed']} of {tried} scenarios"
    missing = {why.removeprefix("needs ") for why in result["skipped"].values() if why.startswith("needs ")}
    lacking = sorted(missing - {"NODE_PORTS_EVERYWHERE"})  # a default, nothing that a mode can or cannot do
    without = f", without {', '.join(f'`{name}`' for name in lacking)}" if lacking else ""
    return f"{told}, {result['packets']:,} packets{without}"


def with_table(readme: str, results: dict[str, Any]) -> str:
    """The README with the table of these results."""
    return SECTION.sub(lambda _: table(results), readme)


def main() -> None:
    """Do so."""
    if "--only-readme" not in sys.argv[1:]:
        RESULTS.write_text(json.dumps(measure(), indent=2) + "\n")
    README.write_text(with_table(README.read_text(), json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
