"""Programs of the system, run in one network namespace: for modes that feed text to one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Final

from kproxy_core.kernel.closing import Closing
from kproxy_core.kernel.errors import KernelError
from kproxy_core.kernel.namespaces import entered, identity

_SEARCH_PATH: Final = ":".join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
"""An ordinary user's search path on Debian leaves out the folders of nft and iptables."""


def find_program(name: str) -> str | None:
    """The path of a program; None where it is not installed."""
    return shutil.which(name, path=_SEARCH_PATH)


class AtHome(Closing):
    """Base of what runs programs in the network namespace in which it was made; for one thread at a time."""

    def __init__(self) -> None:
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Forget the namespace."""
        if self._home >= 0:
            os.close(self._home)
            self._home = -1

    def at_home(self) -> AbstractContextManager[None]:
        """Be in the network namespace in which this was made, for the calling thread."""
        # To enter a namespace takes more rights than to work in it, so one does not enter where one is.
        return entered(None if identity(self._home) == identity() else self._home)

    def run_program(self, path: str, *arguments: str, text: Iterable[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run a program with a text, given in parts, on its standard input. Says how it ended, and what it said, in English."""
        # A file, if only in memory, and not a pipe: a first load has tens of megabytes, which need not be put together here.
        with os.fdopen(os.memfd_create("stdin"), "w+", errors="surrogateescape") as stdin, self.at_home():
            stdin.writelines(text)
            stdin.seek(0)
            return subprocess.run(
                [path, *arguments],
                stdin=stdin,
                capture_output=True,
                text=True,
                errors="surrogateescape",
                env={**os.environ, "LC_ALL": "C"},
                check=False,
            )


class SystemProgram(AtHome):
    """One program, run in the network namespace in which this was made; for one thread at a time.

    Raises KernelError when the program is not installed.
    """

    def __init__(self, name: str) -> None:
        path = find_program(name)
        if path is None:
            raise KernelError(f"the program {name} is not installed")
        super().__init__()
        self.path: Final = path

    def run(self, *arguments: str, text: Iterable[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run it; see :meth:`AtHome.run_program`."""
        return self.run_program(self.path, *arguments, text=text)
