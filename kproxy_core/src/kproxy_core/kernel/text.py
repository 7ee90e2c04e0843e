"""The kernel's side of a mode that feeds a program with text."""

import subprocess
from collections.abc import Iterator, Sequence
from typing import ClassVar

from kproxy_core.kernel.errors import KernelError
from kproxy_core.kernel.programs import SystemProgram
from kproxy_core.plugin.backend import ApplyResult, Failure, Leftovers
from kproxy_core.plugin.errors import ApplyError, UnsupportedError
from kproxy_core.plugin.text import TextDataplane
from kproxy_core.program.program import K, V


class FedProgram(TextDataplane[K, V]):
    """A program that takes all the lines of a plan from its standard input, or none of them.

    ``program`` is its name, ``feed`` the arguments with which it takes a text, ``check`` those with which it only looks at one.
    ``absent`` is what it says where something is not there that a text takes for granted: the plan was made for a kernel that
    has changed meanwhile, and so it is nobody's fault. ``clearance`` is the text that removes all of ``leftovers()``.
    """

    program: ClassVar[str]
    feed: ClassVar[Sequence[str]]
    check: ClassVar[Sequence[str]]
    clearance: ClassVar[str]
    absent: ClassVar[str] = "No such file or directory"

    def __init__(self) -> None:
        try:
            self._program = SystemProgram(self.program)
        except KernelError as error:
            raise UnsupportedError(str(error)) from error

    def ask(self, *arguments: str) -> str:
        """Return what the program prints in the network namespace in which this was opened; empty where that is not there.

        Raises ApplyError when it fails for any other reason.
        """
        done = self._program.run(*arguments)
        if done.returncode and self.absent not in done.stderr:
            raise ApplyError(f"{self.program} {' '.join(arguments)}: {_said(done)}")
        return done.stdout if not done.returncode else ""

    def complaint(self, plan: Sequence[str]) -> str:
        """Return what the program says against a plan."""
        done = self._program.run(*self.check, text=_lines(plan))
        return _said(done) if done.returncode else ""

    def apply(self, plan: Sequence[str]) -> ApplyResult:
        """Feed all of it."""
        done = self._program.run(*self.feed, text=_lines(plan))
        if not done.returncode:
            return ApplyResult(done=len(plan))
        return ApplyResult(failures=(Failure(message=_said(done), retryable=self.absent in done.stderr),), unchanged=True)

    def cleanup(self) -> Leftovers:
        """Feed the clearance, if there is anything left."""
        found = self.leftovers()
        if found and (failures := self.apply([self.clearance]).failures):
            raise ApplyError(f"not everything could be removed: {failures[0].message}")
        return found

    def close(self) -> None:
        """Forget the network namespace; the kernel keeps what it has."""
        self._program.close()


def _lines(plan: Sequence[str]) -> Iterator[str]:
    return (f"{line}\n" for line in plan)


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip() or f"exit status {done.returncode}"
