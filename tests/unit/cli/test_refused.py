"""What was refused is kept for people, a few texts of each mode, and shown to them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kproxy_core.cli.main import main
from kproxy_core.kernel import failed_texts
from kproxy_core.kernel.failed_texts import FailedTexts


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where texts are kept in this test."""
    monkeypatch.setattr(failed_texts.failed_texts, "__defaults__", (tmp_path,))
    return tmp_path


def refused(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["refused", *arguments])


def test_nothing_was_refused(directory: Path) -> None:
    assert refused().output == "nothing was refused\n"
    assert refused("--show", "1").exit_code == 1
    assert json.loads(refused("--json").output) == {"refused": []}


def test_the_newest_comes_first_and_its_whole_text_can_be_seen(directory: Path) -> None:
    ring = FailedTexts("iptables", directory)
    ring.keep("*nat\nfirst\nCOMMIT\n", "line 2 failed")
    path = ring.keep("*nat\nsecond\nCOMMIT\n", "line 2 failed:\nNo such chain")
    lines = refused().output.splitlines()
    assert lines[0].startswith("1. iptables, ")
    assert lines[0].endswith(": line 2 failed: No such chain")
    assert lines[1].strip() == str(path)
    assert len(lines) == 4
    assert refused("--show", "1").output == "# line 2 failed:\n# No such chain\n*nat\nsecond\nCOMMIT\n"
    assert refused("--show", "3").exit_code == 1
    assert [each["mode"] for each in json.loads(refused("--json").output)["refused"]] == ["iptables", "iptables"]


def test_five_of_each_mode_are_kept_for_root_alone(directory: Path) -> None:
    for mode in ("iptables", "ipvs"):
        for number in range(7):
            FailedTexts(mode, directory).keep(f"text {number}\n", "why")
    kept = failed_texts.failed_texts(directory)
    assert [each.path.read_text()[-2] for each in kept if each.mode == "iptables"] == ["6", "5", "4", "3", "2"]
    assert len(kept) == 10
    assert {each.path.stat().st_mode & 0o777 for each in kept} == {0o600}


def test_what_cannot_be_kept_is_let_be(directory: Path) -> None:
    (directory / "iptables").write_text("a file is in the way")
    assert FailedTexts("iptables", directory).keep("text", "why") is None
    (directory / "other").mkdir()
    (directory / "other" / "failed-x.txt").write_text("not of our making")
    assert failed_texts.failed_texts(directory) == ()
