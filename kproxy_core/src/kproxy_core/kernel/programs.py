"""Programs of the system, run in one network namespace: for modes that feed text to one."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Final

from kproxy_core.kernel.closing import Closing
from kproxy_core.kernel.errors import KernelError
from kproxy_core.kernel.namespaces import entered, identity

SEARCH_PATH: Final = ":".join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
"""Where programs are looked for: an ordinary user's search path on Debian leaves out the folders of nft and iptables."""


class SystemProgram(Closing):
    """A program, run in the network namespace in which this was made; for one thread at a time.

    Raises KernelError when the program is not installed.
    """

    def __init__(self, name: str) -> None:
        path = shutil.which(name, path=SEARCH_PATH)
        if path is None:
            raise KernelError(f"the program {name} is not installed")
        self.path: Final = path
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def run(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run it with a text for its standard input. How it ended is in the result; what it says is in English."""
        # To enter a namespace takes more rights than to work in it, so one does not enter where one is.
        with entered(None if identity(self._home) == identity() else self._home):
            return subprocess.run(
                [self.path, *arguments],
                input=text,
                capture_output=True,
                text=True,
                errors="surrogateescape",
                env={**os.environ, "LC_ALL": "C"},
                check=False,
            )

    def close(self) -> None:
        """Forget the namespace."""
        if self._home >= 0:
            os.close(self._home)
            self._home = -1
