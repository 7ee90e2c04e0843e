"""Runs the benchmarks named on the command line, or all of them: ``python -m benchmarks [NAME ...]``."""

import importlib
import json
import pkgutil
import sys
from pathlib import Path

import benchmarks
from benchmarks.measure import Table

RESULTS = Path(__file__).parent / "results"


def main(names: list[str]) -> int:
    """Run the benchmarks, print their tables, keep the figures as JSON."""
    found = {module.name: module for module in pkgutil.iter_modules(benchmarks.__path__) if module.name.startswith("bench_")}
    known = [name.removeprefix("bench_") for name in found]
    unknown = set(names) - set(known)
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    RESULTS.mkdir(exist_ok=True)
    for name in names or known:
        print(f"== {name}", flush=True)
        tables: list[Table] = importlib.import_module(f"benchmarks.bench_{name}").run()
        for table in tables:
            print(table.text(), flush=True)
        figures = {table.title: table.rows for table in tables}
        (RESULTS / f"{name}.json").write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
