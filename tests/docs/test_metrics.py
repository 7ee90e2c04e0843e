"""The reference of metrics names each metric that the daemon has, and no other."""

import re
from pathlib import Path

from kproxy_core.runtime.metrics import Metrics

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "health-and-metrics.md").read_text()
OF_THE_PROCESS = ("process_", "python_")


def test_the_reference_names_every_metric() -> None:
    families = [family for family in Metrics("nftables").registry.collect() if not family.name.startswith(OF_THE_PROCESS)]
    present = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    assert set(re.findall(r"^\| `(k\w+)` ", PAGE, re.MULTILINE)) == present
