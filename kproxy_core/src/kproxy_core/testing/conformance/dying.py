"""The kproxy command, but its process is killed in the midst of what it does to the kernel: ``kill -9`` of itself, on purpose.

``python -m kproxy_core.testing.conformance.dying WHEN TALLY run --source ...``. WHEN is ``call=N`` (just before the Nth call
by which the first plan is carried out: a message sent, a program started, a file written), ``operation=N`` (after N operations of
it), ``plan`` (after it; also when there are not so many), or ``never``. TALLY is a file that gets the numbers of calls and
operations of the first plan.

No code of kproxy knows of this: calls are seen by Python's audit events (PEP 578), and plans by standing between the daemon and
the mode's dataplane.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from attrs import evolve

from kproxy_core.plugin.backend import AnyBackend, ApplyResult
from kproxy_core.runtime import daemon
from kproxy_core.runtime.control import Control
from kproxy_core.runtime.options import DaemonOptions

_CALLS = frozenset({"socket.sendto", "socket.sendmsg", "socket.connect", "subprocess.Popen", "os.posix_spawn", "os.exec"})
_WRITING = os.O_WRONLY | os.O_RDWR


class Doom:
    """Counts, and knows when the end has come."""

    def __init__(self, when: str, tally: Path) -> None:
        self._what, _, number = when.partition("=")
        self._number = int(number or 0)
        self._tally = tally
        self._applying = False
        self._calls = 0

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Hear of an audit event."""
        if self._applying and (event in _CALLS or (event == "open" and _is_write(arguments))):
            self._calls += 1
            if self._what == "call" and self._calls == self._number:
                _die()

    def apply(self, inner: Any, plan: Sequence[Any]) -> ApplyResult:
        """Carry out a plan, or what of it the end leaves."""
        self._applying = True
        try:
            result: ApplyResult = inner.apply(plan[: self._number] if self._what == "operation" else plan)
        finally:
            self._applying = False
        if self._what != "never":
            _die()
        if not self._tally.exists():
            self._tally.write_text(f"{self._calls} {len(plan)}")
        return result


class _Between:
    """Stands for a backend or a dataplane, and passes on what it does not do itself."""

    def __init__(self, inner: Any, doom: Doom) -> None:
        self._inner = inner
        self._doom = doom

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Backend(_Between):
    def open(self) -> "_Dataplane":
        """Open the kernel."""
        return _Dataplane(self._inner.open(), self._doom)


class _Dataplane(_Between):
    def apply(self, plan: Sequence[Any]) -> ApplyResult:
        """Carry out a plan."""
        return self._doom.apply(self._inner, plan)

    def __enter__(self) -> "_Dataplane":
        return self

    def __exit__(self, *_: object) -> None:
        self._inner.close()


def _is_write(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 else 0
    return isinstance(flags, int) and bool(flags & _WRITING)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: Sequence[str]) -> None:
    """Run the command."""
    from kproxy_core.cli.main import main as kproxy

    when, tally, *command = arguments
    doom = Doom(when, Path(tally))
    run = daemon.run_daemon

    def run_doomed(options: DaemonOptions, control: Control | None = None) -> int:
        return run(evolve(options, backend=cast("AnyBackend", _Backend(options.backend, doom))), control)

    daemon.run_daemon = run_doomed
    sys.addaudithook(doom.audit)
    kproxy(command)


if __name__ == "__main__":
    main(sys.argv[1:])
