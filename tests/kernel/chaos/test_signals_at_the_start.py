"""Signals that come before the daemon has begun, as a reload right after a start does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kproxy_core.testing.lab import Lab

pytestmark = pytest.mark.kernel

PATIENCE = 30.0


def _ignores_hangups(process: subprocess.Popen[str]) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    ignored = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(ignored & 1 << (signal.SIGHUP - 1))


def test_sighup_before_the_manifests_are_read_does_not_end_it(shared_lab: Lab) -> None:
    """Standard input that stays open holds it where it reads them."""
    command = [sys.executable, "-m", "kproxy_core.cli.main", "run", "--source", "-", "--mode", "nftables", "--node-name", "node"]
    reader, writer = os.pipe()
    process = shared_lab.node.popen(command, stdin=reader, stderr=subprocess.PIPE)
    os.close(reader)
    try:
        deadline = time.monotonic() + PATIENCE
        while not _ignores_hangups(process):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGHUP)
        os.write(writer, b"kind: List\nitems: []\n")
        os.close(writer)
        assert process.stderr is not None
        assert any("first sync" in line for line in process.stderr)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()
