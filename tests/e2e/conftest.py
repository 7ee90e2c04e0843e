"""Runs the kproxy command as its own process, in network namespaces of the tests' own, and with modes made for a test."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field, frozen

from kproxy_core.testing.lab import Namespace, can_build

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "kproxy_core.cli.main"]
PATIENCE = 60.0
"""Seconds for what is expected to take one: a machine under load must not fail a test."""
TAKEN_OVER = re.compile(r"first sync: [02] operations")
"""What a daemon says that finds all as it should be. It takes hold of the tables, where the kernel lets it (Linux 6.9)."""


@frozen
class Done:
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON document on standard output."""
        return json.loads(self.out)


def kproxy(*arguments: str, **options: Any) -> Done:
    """Run a command to its end; ``stdin`` is text for its standard input, ``environment`` what to add to the environment."""
    environment = {**os.environ, "COLUMNS": "200", **options.get("environment", {})}
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=options.get("stdin", ""),
        cwd=options.get("cwd", ROOT),
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition, with patience."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"waited in vain: {what}"
        time.sleep(0.02)


@define
class Running:
    """A command in the background; what it says goes to files."""

    process: subprocess.Popen[bytes]
    folder: Path
    ended: bool = field(default=False)

    @property
    def log(self) -> str:
        """What it has said on standard error so far."""
        return (self.folder / "err").read_text()

    @property
    def out(self) -> str:
        """What it has said on standard output so far."""
        return (self.folder / "out").read_text()

    def says(self, text: str | re.Pattern[str]) -> None:
        """Wait until it has said something."""
        wanted = re.compile(re.escape(text)) if isinstance(text, str) else text

        def said() -> bool:
            # Looked at first, so that nothing said in its last moments is missed.
            gone = self.process.poll() is not None
            if wanted.search(self.log) or wanted.search(self.out):
                return True
            assert not gone, f"ended without saying {text!r}:\n{self.log}{self.out}"
            return False

        wait_until(said, f"{text!r} in:\n{self.log}")

    def send(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end and return the status."""
        return self.process.wait(PATIENCE)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        self.send(number)
        return self.wait()


@pytest.fixture
def background(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start commands in the background; they are ended after the test at the latest."""
    started: list[Running] = []

    def start(*arguments: str, argv: list[str] | None = None, **options: Any) -> Running:
        folder = tmp_path / f"background-{len(started)}"
        folder.mkdir()
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                [*(argv or COMMAND), *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=ROOT, **options
            )
        started.append(Running(process, folder))
        return started[-1]

    yield start
    for running in started:
        if running.process.poll() is None:
            running.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.process.wait(PATIENCE)
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """An empty network namespace."""
    if not can_build():
        pytest.skip("no privilege to make network namespaces (run as root or in a user namespace)")
    made = Namespace.create()
    yield made
    made.close()


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A copy of the example, to be changed."""
    folder = tmp_path / "manifests"
    folder.mkdir()
    for path in (ROOT / "examples" / "web").iterdir():
        (folder / path.name).write_text(path.read_text())
    return folder


def install_mode(folder: Path, name: str, source: str, group: str = "kproxy.backends") -> dict[str, str]:
    """Install a distribution that announces a mode (or an extension), for one command; returns what to add to the environment."""
    module = f"kproxy_test_{name}"
    (folder / f"{module}.py").write_text(source)
    information = folder / f"{module}-3.2.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kproxy-test-{name}\nVersion: 3.2.1\n")
    (information / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}\n")
    return {"PYTHONPATH": str(folder)}


def ipv6_is_on() -> bool:
    """Whether this machine has IPv6 at all."""
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()
    except OSError:
        return False
    return True
