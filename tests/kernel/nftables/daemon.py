"""The real daemon, a process of its own in the lab's node."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kproxy_core.kernel import writer_lock
from kproxy_core.model.changes import WatchedObject
from kproxy_core.testing.lab import Lab
from kproxy_core.testing.manifests import manifests

from .world import World, everything

PATIENCE = 20.0
"""Seconds; less than the period of the daemon's own checks, so that what is mended sooner was noticed."""
SYNC_PERIOD = "60s"
ALTERED = Path(__file__).with_name("altered.py")


class Daemon:
    """A daemon that follows a folder of manifests; ``alterations`` are those of :mod:`altered`."""

    def __init__(self, lab: Lab, folder: Path, *alterations: str) -> None:
        self._lab = lab
        self._folder = folder
        self._alterations = alterations
        self._made = 0
        self.process: subprocess.Popen[str] | None = None
        self._log = folder / "log.json"

    def start(self, *more: str) -> None:
        """Start one, or one more, with more options."""
        program = [str(ALTERED), *self._alterations] if self._alterations else ["-m", "kproxy_core.cli.main"]
        command = [sys.executable, *program, "run", "--source", f"manifests:{self._folder}"]
        command += ["--mode", "nftables", "--node-name", "node", "--sync-period", SYNC_PERIOD, "--log-format", "json", *more]
        command += ["--cluster-cidr", f"{self._lab.plan.pods_ipv4},{self._lab.plan.pods_ipv6}"]
        self._made += 1
        self._log = self._folder / f"log-{self._made}"
        with self._log.open("w") as log:
            self.process = self._lab.node.popen(command, stderr=log, stdin=subprocess.DEVNULL)

    def write(self, *objects: WatchedObject) -> None:
        """Make these the whole cluster, in one step, as an atomic writer does."""
        fresh = self._folder / ".fresh"
        fresh.write_text(manifests(objects))
        fresh.rename(self._folder / "cluster.yaml")

    def end(self, how: int = signal.SIGTERM) -> None:
        """End it and wait for its end."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
            self.process = None

    def status(self) -> dict[str, Any]:
        """What it says of itself; empty while it does not answer."""
        try:
            with self._lab.node.enter():
                return writer_lock.ask({"ask": "status"})
        except writer_lock.ControlError:
            return {}

    def log(self) -> list[dict[str, Any]]:
        """What it has logged."""
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    def wait(self, condition: Callable[[], object]) -> None:
        """Wait for a condition while it lives."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"in vain; the daemon says: {self._log.read_text()[-3000:]}"
            assert self.process is None or self.process.poll() is None, self._log.read_text()
            time.sleep(0.02)

    def wait_for_sync(self) -> None:
        """Wait until it has nothing to do."""
        self.wait(lambda: (now := self.status()) and now["synced"] and not now["pending"] and now["pid"] == self.process.pid)  # type: ignore[union-attr]

    def logged(self, words: str) -> bool:
        """Whether it has said so."""
        return any(words in line["message"] for line in self.log())


@contextmanager
def running(world: World, folder: Path, *alterations: str) -> Iterator[Daemon]:
    """Run a daemon with a cluster of everything in place of the world's own process."""
    daemon = Daemon(world.lab, folder, *alterations)
    daemon.write(*everything(world))
    with world.ended():
        daemon.start()
        try:
            daemon.wait_for_sync()
            yield daemon
        finally:
            daemon.end(signal.SIGKILL)


def changed(world: World, name: str, hosts: str) -> Iterable[WatchedObject]:
    """Everything, with other endpoints for one Service."""
    slices = {piece.name: piece for piece in world.cluster.endpoints(name, hosts)}
    return (slices.get(thing.name, thing) if not isinstance(thing.name, str) else thing for thing in everything(world))
