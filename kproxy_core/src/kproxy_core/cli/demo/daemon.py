"""The daemon of the demo: ``kproxy run`` as a process of its own, in the network namespace of the demo's node."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from kproxy_core.kernel import writer_lock
from kproxy_core.kernel.writer_lock import ControlError
from kproxy_core.testing.lab import Host

STOP_PATIENCE = 5.0
_LOG_LINES = 15


@frozen(kw_only=True)
class Usage:
    """What the daemon has used: resident memory in MiB, seconds of processor time."""

    memory: float
    processor: float


class DaemonDiedError(Exception):
    """The daemon ended by itself; the message holds the end of its log."""


class DaemonProcess:
    """kproxy on the demo's node; may be killed and started again."""

    def __init__(self, node: Host, arguments: Sequence[str], log: Path) -> None:
        self._node = node
        self._arguments = tuple(arguments)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        where = ("--netns", self._node.namespace.path, "--end-with-parent")
        argv = [sys.executable, "-P", "-m", "kproxy_core.cli.main", "run", *self._arguments, *where]
        with self._log.open("ab") as log:
            # Its own process group: Ctrl-C at the terminal is for the demo, which then ends it.
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def check(self) -> None:
        """Raise :class:`DaemonDiedError` if it is no longer there."""
        if self._process is not None and self._process.poll() is not None:
            lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            raise DaemonDiedError(
                f"kproxy ended with status {self._process.returncode}:\n" + "\n".join(f"  {line}" for line in lines)
            )

    def kill(self) -> None:
        """Kill it, so that it cannot do anything more."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """End it and wait for that; kill it when it does not end. May be called again."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def status(self) -> dict[str, Any]:
        """What it says of itself; empty while it does not answer."""
        with contextlib.suppress(ControlError):
            return writer_lock.ask({"ask": "status"}, timeout=1.0, namespace=self._node.namespace.descriptor)
        return {}

    def usage(self) -> Usage:
        """What it has used so far."""
        folder = Path(f"/proc/{self.pid}")
        memory = next(int(line.split()[1]) for line in (folder / "status").read_text().splitlines() if line.startswith("VmRSS:"))
        # After the name, which may have blanks in it, come the fields from the third on; 14 and 15 are user and system time.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return Usage(memory=memory / 1024, processor=ticks / os.sysconf("SC_CLK_TCK"))
