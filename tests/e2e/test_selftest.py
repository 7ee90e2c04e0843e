"""``kproxy selftest`` as its own process: what it prints and how it exits."""

import json
import shlex
from pathlib import Path

import pytest

from kproxy_core.testing.conformance.corpus import FOLDER

from ..users import User
from .conftest import COMMAND, kproxy

pytestmark = pytest.mark.e2e

KPROXY = f"{shlex.join(COMMAND)} run --config {{config}}"


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A folder with a scenario that no proxy passes, and one that each does."""
    text = (FOLDER / "hairpin.yaml").read_text()
    (tmp_path / "wrong.yaml").write_text(
        text.replace("name: hairpin", "name: wrong").replace(
            "to: [cluster 2, external 2], expect: a2 kept", "to: cluster 2, expect: b1"
        )
    )
    (tmp_path / "right.yaml").write_text(text.replace("name: hairpin", "name: right"))
    return tmp_path


def test_what_is_as_it_should_be_is_a_table() -> None:
    done = kproxy("selftest", "--mode", "nftables", "-k", "hairpin", "-k", "X1")
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "mode nftables"
    assert lines[2].split() == ["address", "from", "IPv4", "IPv6", "IPv4", "IPv6", "IPv4", "IPv6"]
    assert "ClusterIP     routed pod   ok     ok     ok     ok     ok     ok" in lines
    assert lines[-1].startswith("3 scenarios: 3 passed, 0 failed, 0 skipped; ")
    assert done.err == ""


def test_what_is_wrong_is_told_with_its_line(wrong: Path) -> None:
    done = kproxy("selftest", "--mode", "nftables", "--scenarios", str(wrong))
    assert done.status == 1
    assert done.out.startswith("FAILED wrong\n")
    assert "line 15: cluster 2: abr2 to 10.96.0.2 TCP 80: answered by another than b1" in done.out
    assert "FAIL" in next(line for line in done.out.splitlines() if line.strip().startswith("bridged pod"))
    assert done.out.splitlines()[-1].startswith("2 scenarios: 1 passed, 1 failed, 0 skipped")


def test_json_has_everything(wrong: Path) -> None:
    done = kproxy("selftest", "--mode", "nftables", "--scenarios", str(wrong), "--json")
    assert done.status == 1
    document = done.json
    assert (document["subject"], document["ok"], document["passed"], document["failed"]) == ("mode nftables", False, 1, 1)
    (failed,) = [each for each in document["scenarios"] if each["result"] == "failed"]
    assert failed["name"] == "wrong"
    assert failed["cases"] == ["S53"]
    assert len(failed["complaints"]) == 6
    assert sum(each["failed"] for each in document["table"]) == 6
    assert {each["kind"] for each in document["table"]} == {"ClusterIP", "externalIP"}


def test_what_a_mode_cannot_do_is_named() -> None:
    done = kproxy("selftest", "--mode", "nftables", "-k", "loopback-served")
    assert done.status == 0
    assert "skipped: loopback-served needs LOCALHOST_NODE_PORTS" in done.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--against", "kube-proxy"], "there is no {config} in it"),
        (["--lacks", "SCTP"], "this is for --against"),
        (["--against", "x {config}", "--lacks", "STCP"], "'STCP' is unknown (there are: SCTP, "),
        (["-k", "nothing-like-it"], "no scenario has nothing-like-it in its name or cases"),
        (["--mode", "nftable"], "did you mean 'nftables'"),
    ],
)
def test_misuse(arguments: list[str], told: str) -> None:
    done = kproxy("selftest", *arguments)
    assert done.status == 2
    assert told in done.err


def test_a_scenario_that_cannot_be_read_is_told_before_anything_is_built(tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text("name: odd\nwhy: no\nstep: []\n")
    done = kproxy("selftest", "--scenarios", str(tmp_path))
    assert done.status == 2
    assert "odd.yaml:3: step: no field of this name; did you mean steps?" in done.err


def test_the_whole_daemon_over_an_api_server() -> None:
    chosen = ("-k", "hairpin", "-k", "api-cut", "-k", "restart-daemon", "-k", "flushed", "-k", "udp-service-deleted")
    done = kproxy("selftest", "--against", KPROXY, *chosen, "--json")
    assert done.status == 0, json.dumps(done.json, indent=1)
    assert done.json["subject"] == KPROXY
    assert done.json["passed"] == 7
    assert done.json["skipped"] == 0


def test_it_needs_no_root(unprivileged_with_namespaces: User) -> None:
    """In a user namespace, the mode in this process and another proxy alike."""
    run = ("-m", "kproxy_core.cli.main", "selftest", "-k", "hairpin", "--mode", "nftables")
    other = f"{unprivileged_with_namespaces.interpreter} -m kproxy_core.cli.main run --config {{config}}"
    for more in ((), ("--against", other)):
        done = unprivileged_with_namespaces.run(*run, *more)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "2 scenarios: 2 passed, 0 failed, 0 skipped" in done.stdout


def test_a_command_that_is_no_proxy() -> None:
    done = kproxy("selftest", "--against", "sh -c 'echo nothing here; exit 7' {config}", "-k", "hairpin")
    assert done.status == 1
    assert "the command has ended, with status 7" in done.out
    assert "nothing here" in done.out


def test_what_to_install_for_another_proxy(tmp_path: Path) -> None:
    (tmp_path / "cryptography.py").write_text("raise ModuleNotFoundError('cryptography')\n")
    done = kproxy("selftest", "--against", KPROXY, environment={"PYTHONPATH": str(tmp_path)})
    assert done.status == 1
    assert "pip install 'kproxy-core[testing]'" in done.err
