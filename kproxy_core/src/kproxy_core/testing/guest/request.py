"""What is asked of a guest, and what becomes of it; and the texts that tell the guest."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

INIT = "init.sh"
"""The guest's first process, a file beside this one and in every mailbox."""
TIMED_OUT = 124
"""The exit status for a command that took too long, as that of timeout(1)."""
BROKEN = 125
"""The exit status for a guest that ended without telling the command's."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROGRAMS = "/usr/local/sbin:/usr/sbin:/sbin"


@frozen(kw_only=True)
class GuestRequest:
    """A command for a guest.

    command: program and arguments. directory: where it is run. environment: all of its variables. writable: folders of the host
    that it may write to; all else that it writes is gone with it. memory: MiB. time_limit: seconds that all of it may take.
    """

    command: Sequence[str]
    directory: Path
    environment: Mapping[str, str] = field(factory=dict)
    writable: Sequence[Path] = ()
    memory: int = 1024
    time_limit: float = 1800.0


@frozen(kw_only=True)
class GuestOutcome:
    """How it ended.

    status: the command's exit status; None when the guest did not come to tell it. log: the kernel's last lines.
    """

    status: int | None
    timed_out: bool = False
    log: str = ""

    @property
    def exit_status(self) -> int:
        """A status for the caller's own exit."""
        if self.status is not None:
            return self.status
        return TIMED_OUT if self.timed_out else BROKEN


def script(request: GuestRequest) -> str:
    """The command as a shell script: in its directory, with its environment and nothing of the guest's own."""
    variables = {name: value for name, value in request.environment.items() if _NAME.fullmatch(name)}
    variables["PATH"] = f"{variables.get('PATH', '/usr/local/bin:/usr/bin:/bin')}:{_PROGRAMS}"
    settings = " ".join(shlex.quote(f"{name}={value}") for name, value in sorted(variables.items()))
    return f"cd {shlex.quote(str(request.directory))} || exit {BROKEN}\nexec env -i {settings} {shlex.join(request.command)}\n"


def kernel_command(kernel: Path, mailbox: Path, memory: int, lines: tuple[int, int]) -> list[str]:
    """The command line of a user-mode kernel: what is written to its first two serial lines goes to these descriptors.

    What the kernel itself says goes to its standard output.
    """
    out, err = lines
    return [
        str(kernel),
        f"mem={memory}M",
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        f"init={mailbox / INIT}",
        f"uml_dir={mailbox / 'memory'}",
        "con=null",
        "con0=null,fd:1",
        "ssl=null",
        f"ssl1=null,fd:{out}",
        f"ssl2=null,fd:{err}",
        "panic=-1",
        f"mailbox={mailbox}",
    ]
