"""A mistake ends in one line that says what to write instead, with the right status and without a traceback."""

from pathlib import Path

import pytest

from .conftest import kproxy

pytestmark = pytest.mark.e2e

RENDER = ["render", "--source", "manifests:examples/web", "--mode", "nftables"]
RUN = ["run", "--source", "manifests:examples/web", "--mode", "nftables"]

MISTAKES: list[tuple[list[str], str]] = [
    (["rendr"], "No such command 'rendr'"),
    (["modes", "--nonsense"], "--nonsense"),
    (["modes", "surplus"], "surplus"),
    (["render"], "Missing option '--source'"),
    ([*RENDER, "--output", "xml"], "'xml' is not one of 'text', 'json'"),
    (["render", "--source", "examples/web"], "did you mean manifests:examples/web?"),
    (["render", "--source", "manifests:no/such/folder", "--mode", "nftables"], "no/such/folder: No such file or directory"),
    (["render", "--source", "manifests:examples/web", "--mode", "nftable"], "did you mean 'nftables'?"),
    (["render", "--source", "manifests:examples/web", "--mode", "xyz"], "modes that kproxy knows of: ebpf, iptables"),
    ([*RENDER, "--cluster-cidr", "10.0.0.0/40"], "'10.0.0.0/40' is not an address range"),
    ([*RENDER, "--masquerade-bit", "77"], "77 is not in the range"),
    ([*RENDER, "--node-addresses", "here"], "'here' is not an IP address"),
    ([*RENDER, "--detect-local-mode", "Guess"], "'Guess' is not one of"),
    ([*RUN, "--sync-period", "often"], "'often' is not a duration such as 500ms, 30s or 1h30m"),
    ([*RUN, "--min-sync-period", "2m"], "must not be longer than --sync-period"),
    ([*RUN, "--netns", "/run/netns/no-such-one"], "/run/netns/no-such-one"),
    ([*RUN, "-v", "much"], "'much' is not a whole number"),
    ([*RUN, "--log-format", "xml"], "'xml' is not one of 'text', 'json'"),
    (["run", "--source", "manifests:no/such/folder", "--mode", "nftables"], "no/such/folder: No such file or directory"),
    (["run", "--source", "manifests:examples/web", "--mode", "nftable"], "did you mean 'nftables'?"),
    (["probe", "nftable"], "did you mean 'nftables'?"),
    (["cleanup", "--mode", "iptable"], "mode 'iptable' is not installed"),
    (["demo", "--mode", "nftable"], "did you mean 'nftables'?"),
    (["demo", "--seconds", "1"], "1 is not in the range"),
]


@pytest.mark.parametrize(("arguments", "told"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_mistake_is_told_in_a_line(arguments: list[str], told: str) -> None:
    done = kproxy(*arguments)
    assert done.status == 2, done.err
    last = done.err.rstrip().splitlines()[-1]
    assert told in last
    assert last.startswith("Error: ")
    assert "Traceback" not in done.err
    assert done.out == ""


def test_a_namespace_file_that_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    done = kproxy("probe", "--netns", str(path))
    assert done.status == 1
    assert done.err.startswith("Error: enter network namespace ")
    assert "Traceback" not in done.err


@pytest.mark.parametrize("broken", ["kind: [Service", "a: b: c", "\tkind: x"])
def test_a_manifest_that_cannot_be_read_is_told_with_its_line(tmp_path: Path, broken: str) -> None:
    (tmp_path / "broken.yaml").write_text(f"# a comment\n{broken}\n")
    done = kproxy("render", "--source", f"manifests:{tmp_path}", "--mode", "nftables")
    assert done.status == 1
    assert "cannot read all manifests" in done.err
    assert "file broken.yaml: line" in done.err
    assert ("indented with a tab" in done.err) == ("\t" in broken)
    assert "Traceback" not in done.err
    assert done.out == ""


def test_broken_standard_input_is_told_with_its_line() -> None:
    done = kproxy("render", "--source", "-", "--mode", "nftables", stdin="kind: [Service\n")
    assert done.status == 2
    assert "cannot read manifests from standard input, line" in done.err
    assert "Traceback" not in done.err
