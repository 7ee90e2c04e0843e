"""The reference of the configuration file has every field, with the default that the code has."""

import re
from pathlib import Path
from typing import Any

import pytest

from kproxy_core.config.values import parse_duration

from .fields import LEAVES, Leaf

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "configuration.md").read_text()
ROW = re.compile(r"^\| `([\w.]+)` \| `([^`]*)`(, also for 0)? \| (.+) \|$", re.MULTILINE)
ROWS = {match[1]: match for match in ROW.finditer(PAGE)}
UNLESS_ZERO = {
    "clientConnection.qps",
    "clientConnection.burst",
    "logging.flushFrequency",
    "iptables.syncPeriod",
    "ipvs.syncPeriod",
    "nftables.syncPeriod",
    "configSyncPeriod",
}


def test_the_fields_are_there_in_order() -> None:
    assert list(ROWS) == [leaf.path for leaf in LEAVES]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.path)
def test_the_default_is_the_codes(leaf: Leaf) -> None:
    text = ROWS[leaf.path][2]
    if isinstance(leaf.default, float) and not isinstance(leaf.default, bool):
        assert parse_duration(text) == leaf.default
    else:
        assert text == _shown(leaf.default)
    assert (ROWS[leaf.path][3] is not None) == (leaf.path in UNLESS_ZERO)


def _shown(default: Any) -> str:
    shown = {"": '""', (): "[]", True: "true", False: "false"}
    if isinstance(default, dict):
        return "{}"
    if isinstance(default, bool | str | tuple):
        return shown.get(default, str(default))
    return str(default)
