"""What may come into a folder of manifests beside good ones: these are served and followed, and the daemon ends when told."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy_core.testing.lab import Answer, Lab, ask
from kproxy_core.testing.lab_cluster import LabCluster
from kproxy_core.testing.manifests import manifests

pytestmark = pytest.mark.kernel

PATIENCE = 30.0
_ALIASES = ", ".join(["*a"] * 1000)

TEXTS: dict[str, bytes] = {
    "a tag without its value": b'a: !!int ""\n',
    "a tag with another value": b"a: !!bool x\n",
    "a lone surrogate for an object": b'{"apiVersion":"v1","kind":"Service","metadata":{"name":"odd"},"spec":"\\ud800"}',
    "a lone surrogate for a kind": b'{"apiVersion":"v1","kind":"\\ud800"}',
    "no UTF-8": bytes(range(256)),
    "nesting without end": b"[" * 100_000,
    "Lists of aliases of Lists": (
        "kind: List\nitems:\n- &a {kind: List, items: [{kind: Service, apiVersion: v1}]}\n"
        f"- &b {{kind: List, items: [{_ALIASES}]}}\n"
        f"- {{kind: List, items: [{_ALIASES.replace('a', 'b')}]}}\n"
    ).encode(),
}


@pytest.fixture
def folder(tmp_path: Path, shared_lab: Lab) -> Path:
    """A folder of manifests with one good Service in it."""
    _serve(tmp_path, shared_lab, "a1")
    return tmp_path


def _spoil(folder: Path) -> None:
    """Put one of everything that is bad beside it."""
    for number, text in enumerate(TEXTS.values()):
        (folder / f"0{number}.yaml").write_bytes(text)
    os.mkfifo(folder / "fifo.yaml")
    (folder / "device.yaml").symlink_to("/dev/zero")
    (folder / "loop.yaml").symlink_to("loop.yaml")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.yaml")).write_bytes(b"a: 1")


def _serve(folder: Path, lab: Lab, host: str) -> None:
    cluster = LabCluster(lab)
    (folder / ".fresh").write_text(manifests([cluster.service("web", 10), *cluster.endpoints("web", host)]))
    (folder / ".fresh").rename(folder / "web.yaml")


@pytest.fixture
def daemon(folder: Path, shared_lab: Lab) -> Iterator[subprocess.Popen[str]]:
    """The daemon on that folder."""
    command = [sys.executable, "-m", "kproxy_core.cli.main", "run", "--source", f"manifests:{folder}", "--mode", "nftables"]
    with (folder / "log").open("w") as log:
        process = shared_lab.node.popen(
            [*command, "--node-name", "node", "--log-format", "json"], stderr=log, stdin=subprocess.DEVNULL
        )
    yield process
    process.kill()
    process.wait()


def _wait(process: subprocess.Popen[str], condition: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def test_the_good_ones_are_served_and_followed_and_it_ends_when_told(
    daemon: subprocess.Popen[str], folder: Path, shared_lab: Lab
) -> None:
    for host in ("a1", "b1"):
        shared_lab.serve(shared_lab.hosts[host])

    def served_by(host: str) -> bool:
        outcome = ask(shared_lab.hosts["a2"], LabCluster(shared_lab).cluster(10).ipv4, 80)
        return isinstance(outcome, Answer) and outcome.server == host

    _wait(daemon, lambda: served_by("a1"), folder / "log")
    _spoil(folder)
    _wait(daemon, lambda: f"file 0{len(TEXTS) - 2}.yaml" in (folder / "log").read_text(), folder / "log")
    _serve(folder, shared_lab, "b1")
    _wait(daemon, lambda: served_by("b1"), folder / "log")
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE) == 0
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    assert not [line for line in lines if "exception" in line]
