"""The daemon as a process of its own: what signals do, and what it leaves on standard error."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("signalled_daemon.py")


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[str]]:
    """A daemon that has done its first sync."""
    process = subprocess.Popen([sys.executable, PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "sync 8 full\n"
        yield process
        with contextlib.suppress(ProcessLookupError):
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_and_sigint_end_it_cleanly(daemon: subprocess.Popen[str], number: signal.Signals) -> None:
    daemon.send_signal(number)
    output, errors = daemon.communicate(timeout=20)
    assert daemon.returncode == 0
    assert output == "closed\n"
    lines = [json.loads(line) for line in errors.splitlines()]
    assert lines[-1]["message"] == "stopped; the kernel keeps its rules (kproxy cleanup removes them)"
    assert not [line for line in lines if line["level"] in {"error", "critical"}]
    first = next(line for line in lines if line["message"].startswith("first sync"))
    assert (first["operations"], first["changed_ports"], first["full"]) == (8, 1, True)


def test_sighup_has_the_kernel_checked_now(daemon: subprocess.Popen[str]) -> None:
    daemon.send_signal(signal.SIGHUP)
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == "sync 0 full\n"
    daemon.terminate()
    assert daemon.wait(timeout=20) == 0
