"""The real process is killed at each thing that it does to the kernel: the next start brings about what was wanted."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kproxy_core.model.changes import WatchedObject
from kproxy_core.plugin.backend import Capability
from kproxy_core.testing.conformance import dying
from kproxy_core.testing.conformance.laws.change import held, whole_change
from kproxy_core.testing.conformance.laws.faults import good
from kproxy_core.testing.conformance.mode_tests import ModeTests
from kproxy_core.testing.manifests import manifests

PATIENCE = 60.0
"""Seconds for what takes one: a busy machine must not fail a test."""
MOST_CALLS = 8
MOST_OPERATIONS = 3


class CrashLaws(ModeTests):
    """``kproxy run`` as its own process, killed by kill -9."""

    def test_a_kill_at_each_kernel_call_of_a_first_start(self, tmp_path: Path) -> None:
        """Where nothing was: whatever of it got there, the next start makes all of it."""
        change, node = whole_change(self.world), self.world.node

        def empty() -> None:
            node.restart_untold()
            node.dataplane.cleanup()

        empty()
        for when in self.moments(tmp_path, change.before, empty):
            empty()
            self.run_until_killed(when, tmp_path, change.before)
            good(node.restart(cluster=change.before))
            assert not node.difference(), when
            change.look_before()

    def test_a_kill_at_each_kernel_call_of_a_change(self, tmp_path: Path) -> None:
        """Established connections outlive it, where the mode says that they do."""
        change, node = whole_change(self.world), self.world.node

        def before() -> None:
            good(node.restart(cluster=change.before))

        before()
        survives = Capability.SURVIVES_CRASH in node.backend.capabilities
        address = self.world.cluster.cluster(201).ipv4
        with held(self.world, address) if survives else contextlib.nullcontext(lambda: True) as all_alive:
            for when in self.moments(tmp_path, change.after, before):
                before()
                self.run_until_killed(when, tmp_path, change.after)
                assert all_alive(), f"connections were lost by a kill at {when}"
                good(node.restart(cluster=change.after))
                assert not node.difference(), when
                change.look_after()
                assert all_alive(), f"connections were lost by the start after a kill at {when}"

    # -- how

    def moments(self, folder: Path, objects: Sequence[WatchedObject], before: Callable[[], None]) -> list[str]:
        """When to kill: at each call that a run of it makes, or as many as there is time for, and after some operations."""
        before()
        tally = folder / "tally"
        tally.unlink(missing_ok=True)
        with self.started("never", folder, objects) as process:
            wait_for_first_sync(process)
        calls, operations = map(int, tally.read_text().split())
        return [
            *(f"call={number}" for number in spread(calls, MOST_CALLS)),
            *(f"operation={number}" for number in spread(operations, MOST_OPERATIONS)),
            "plan",
        ]

    def run_until_killed(self, when: str, folder: Path, objects: Sequence[WatchedObject]) -> None:
        """Start it, and see it die."""
        with self.started(when, folder, objects) as process:
            try:
                _, said = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                pytest.fail(f"it lives on, though it was to die at {when}")
            assert process.returncode == -signal.SIGKILL, said

    @contextlib.contextmanager
    def started(self, when: str, folder: Path, objects: Sequence[WatchedObject]) -> Iterator[subprocess.Popen[str]]:
        """Start ``kproxy run`` on the node, told these objects; it is killed at the end at the latest.

        The test's own process is ended first: there is one writer at a time.
        """
        self.world.node.close()
        source = folder / "cluster.yaml"
        source.write_text(manifests(objects))
        cidrs = ",".join(str(each) for each in (self.world.lab.plan.pods_ipv4, self.world.lab.plan.pods_ipv6))
        options = ["--source", f"manifests:{source}", "--mode", self.mode, "--node-name", "node", "--cluster-cidr", cidrs]
        argv = [sys.executable, "-m", dying.__name__, when, str(folder / "tally"), "run", *options]
        process = self.world.lab.node.popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def wait_for_first_sync(process: subprocess.Popen[str]) -> None:
    """Read its log until it has synced."""
    assert process.stderr is not None
    end = threading.Timer(PATIENCE, process.kill)
    end.start()
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if "first sync: " in line:
                return
    finally:
        end.cancel()
    pytest.fail(f"no first sync in {PATIENCE:g} seconds:\n{''.join(said)}")


def spread(count: int, most: int) -> list[int]:
    """Numbers from 1 to ``count``: all, or ``most`` of them at even distances, the first and the last among them."""
    if count <= most:
        return list(range(1, count + 1))
    return sorted({1 + round(step * (count - 1) / (most - 1)) for step in range(most)})
