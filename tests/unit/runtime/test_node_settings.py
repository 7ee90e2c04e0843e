"""Kernel settings that a configuration asks for: what is set, what is left, and what cannot be."""

import logging
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kproxy_core.config.kubeproxy import Conntrack
from kproxy_core.kernel import sysctl
from kproxy_core.runtime import node_settings
from kproxy_core.runtime.node_settings import MOST_CONNECTIONS, apply_conntrack, apply_oom_score, wanted_settings

READ_ONLY = Path("/proc/sys/kernel/cap_last_cap")
"""A number of the kernel's that even root may not write."""
PREFIX = "net/netfilter/nf_conntrack_"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /proc/sys, with the settings of a kernel that has a small table."""
    folder = tmp_path / "sys"
    (folder / PREFIX).parent.mkdir(parents=True)
    for name, value in (("max", 65536), ("tcp_timeout_established", 432000), ("tcp_timeout_close_wait", 60)):
        (folder / f"{PREFIX}{name}").write_text(f"{value}\n")
    hashsize = tmp_path / "hashsize"
    hashsize.write_text("16384\n")
    monkeypatch.setattr(sysctl, "_ROOT", folder)
    monkeypatch.setattr(node_settings, "_HASHSIZE", hashsize)
    return folder


def number(settings: Path, name: str) -> int:
    """What a setting is now."""
    return int((settings / f"{PREFIX}{name}").read_text())


@pytest.mark.parametrize(
    ("changes", "processors", "expected"),
    [
        pytest.param({}, 1, 131072, id="d32: the floor"),
        pytest.param({}, 8, 262144, id="d32: by processor"),
        pytest.param({}, 64, MOST_CONNECTIONS, id="the cap"),
        pytest.param({"min": 2 * MOST_CONNECTIONS}, 64, 2 * MOST_CONNECTIONS, id="a floor above the cap"),
        pytest.param({"max_per_core": 0}, 8, None, id="left alone"),
    ],
)
def test_the_size_of_the_table(changes: dict[str, Any], processors: int, expected: int | None) -> None:
    assert wanted_settings(evolve(Conntrack(), **changes), processors).get("max") == expected


def test_what_is_asked_for() -> None:
    assert wanted_settings(Conntrack(), 1) == {
        "max": 131072,
        "tcp_timeout_established": 86400,
        "tcp_timeout_close_wait": 3600,
    }
    asked = Conntrack(
        max_per_core=0,
        tcp_established_timeout=0.0,
        tcp_close_wait_timeout=0.0,
        tcp_be_liberal=True,
        udp_timeout=30.0,
        udp_stream_timeout=120.0,
    )
    assert wanted_settings(asked, 1) == {"udp_timeout": 30, "udp_timeout_stream": 120, "tcp_be_liberal": 1}


def test_d32_the_table_grows_with_its_buckets_and_timeouts_are_set(settings: Path) -> None:
    apply_conntrack(Conntrack(max_per_core=1, min=200_000))
    assert number(settings, "max") == 200_000
    assert int((settings.parent / "hashsize").read_text()) == 50_000
    assert number(settings, "tcp_timeout_established") == 86400
    assert number(settings, "tcp_timeout_close_wait") == 3600


def test_o4_what_suffices_is_not_written(settings: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A table that is larger already, though the file is read-only; a time that is as wanted."""
    (settings / f"{PREFIX}max").unlink()
    (settings / f"{PREFIX}max").symlink_to(READ_ONLY)
    (settings / f"{PREFIX}tcp_timeout_established").write_text("86400\n")
    (settings / f"{PREFIX}tcp_timeout_close_wait").write_text("3600\n")
    with caplog.at_level(logging.INFO):
        apply_conntrack(Conntrack(max_per_core=1, min=1))
    assert caplog.messages == []


def test_o4_what_may_not_be_written_is_told_and_goes_on(settings: Path, caplog: pytest.LogCaptureFixture) -> None:
    (settings / f"{PREFIX}max").unlink()
    (settings / f"{PREFIX}max").symlink_to(READ_ONLY)
    apply_conntrack(Conntrack(max_per_core=1, min=200_000))
    (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "net.netfilter.nf_conntrack_max cannot be set to 200000" in told.getMessage()
    assert number(settings, "tcp_timeout_established") == 86400


def test_d38_a_kernel_without_conntrack_as_yet_is_told_and_goes_on(settings: Path, caplog: pytest.LogCaptureFixture) -> None:
    for each in settings.rglob("nf_conntrack_*"):
        each.unlink()
    apply_conntrack(Conntrack())
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3
    assert not list(settings.rglob("nf_conntrack_*"))


def test_a_score_that_may_not_be_set_is_told(caplog: pytest.LogCaptureFixture) -> None:
    mine = Path("/proc/self/oom_score_adj")
    now = int(mine.read_text())
    apply_oom_score(now)
    assert caplog.messages == []
    apply_oom_score(1001)
    assert int(mine.read_text()) == now
    assert "cannot be set to 1001" in caplog.text
