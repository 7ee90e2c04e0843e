"""Commands in a guest: both streams, the exit status, what reaches this machine, and that nothing is left however it ends."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from kproxy_core.testing.guest import Guest, GuestError, GuestOutcome, GuestRequest, find_kernel, run

from ..users import User

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

PROGRAM = [sys.executable, "-m", "kproxy_core.testing.guest"]


@attrs.frozen
class Seen:
    """What came out of a guest."""

    outcome: GuestOutcome
    out: str
    err: str


def in_guest(*command: str, directory: Path, **more: Any) -> Seen:
    """Run a command in a guest."""
    pieces: dict[str, list[bytes]] = {"out": [], "err": []}
    request = GuestRequest(command=command, directory=directory, environment={"PATH": os.environ["PATH"], "LANG": "C"}, **more)
    outcome = run(request, pieces["out"].append, pieces["err"].append)
    return Seen(outcome, b"".join(pieces["out"]).decode(), b"".join(pieces["err"]).decode())


def all_end(processes: Sequence[int]) -> bool:
    """Whether processes that are nobody's children here end; those that were killed do so in a moment."""
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            ended, _, _ = select.select([descriptor], [], [], 60)
            os.close(descriptor)
            if not ended:
                return False
    return True


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that these started, as far as they live."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        path = Path(f"/proc/{waiting.pop()}/task")
        tasks = list(path.iterdir()) if path.exists() else []
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        found += children
        waiting += children
    return found


@pytest.fixture(autouse=True)
def mailboxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for what guests leave behind while they run; and no test without a guest."""
    try:
        find_kernel()
    except GuestError as error:
        pytest.skip(str(error))
    folder = tmp_path / "mailboxes"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


REPORT = """
import json, os, pathlib, sys
sys.stderr.write("to the other stream\\n")
json.dump({
    "directory": os.getcwd(),
    "arguments": sys.argv[1:],
    "variables": dict(os.environ),
    "terminal": sys.stdout.isatty(),
    "input": sys.stdin.read(),
    "kernel": os.uname().release,
    "name": os.uname().nodename,
    "user": os.getuid(),
    "first": pathlib.Path("/proc/1/cmdline").read_text().split("\\0"),
    "cgroups": pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists(),
}, sys.stdout)
sys.stdout.write("\\n" + "x" * 300_000)
os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "1000")
sys.exit(7)
"""


def test_a_command_gets_and_gives_what_it_would_here(tmp_path: Path, mailboxes: Path) -> None:
    odd = ["two words", "it's", "$HOME", "a\nb", "ä", ""]
    seen = in_guest(sys.executable, "-c", REPORT, *odd, directory=tmp_path)
    assert (seen.outcome.status, seen.outcome.exit_status, seen.outcome.timed_out) == (7, 7, False)
    first, _, rest = seen.out.partition("\n")
    assert rest == "x" * 300_000
    assert seen.err == "to the other stream\n"
    told = json.loads(first)
    assert told["directory"] == str(tmp_path)
    assert told["arguments"] == odd
    assert told["variables"]["LANG"] == "C"
    assert "mailbox" not in told["variables"]
    assert (told["terminal"], told["input"], told["user"], told["name"]) == (False, "", 0, "guest")
    assert told["kernel"] != os.uname().release
    assert told["first"][0] == "sh"
    assert told["cgroups"]
    assert list(mailboxes.iterdir()) == []


WRITING = """
echo guest > "$1/plain"; echo guest > "$2/allowed"; echo guest > "$1/existing"
cat "$1/plain" "$1/existing"
mkdir /mnt/host && mount -t hostfs none /mnt/host && echo guest > "/mnt/host$1/around"
echo 1 > /mnt/host/proc/sys/net/ipv4/ip_forward
rm -r "$1/folder"; ls "$1/folder"
exit 0
"""


def test_nothing_reaches_this_machine_but_what_is_allowed(tmp_path: Path) -> None:
    protected, allowed = tmp_path / "protected", tmp_path / "with space"
    (protected / "folder").mkdir(parents=True)
    allowed.mkdir()
    (protected / "existing").write_text("host\n")
    forwarding = Path("/proc/sys/net/ipv4/ip_forward").read_text()
    command = ("sh", "-c", WRITING, "sh", str(protected), str(allowed))
    seen = in_guest(*command, directory=tmp_path, writable=[allowed])
    assert seen.outcome.status == 0, seen
    assert seen.out == "guest\nguest\n"
    assert seen.err.count("Read-only file system") == 2
    assert sorted(path.name for path in protected.iterdir()) == ["existing", "folder"]
    assert (protected / "existing").read_text() == "host\n"
    assert (allowed / "allowed").read_text() == "guest\n"
    assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == forwarding


def test_a_command_that_takes_too_long(tmp_path: Path, mailboxes: Path) -> None:
    seen = in_guest("sh", "-c", "echo begun; sleep 1000", directory=tmp_path, time_limit=8)
    assert (seen.outcome.status, seen.outcome.timed_out, seen.outcome.exit_status) == (None, True, 124)
    assert seen.out == "begun\n"
    assert list(mailboxes.iterdir()) == []


def test_a_guest_that_breaks(tmp_path: Path) -> None:
    seen = in_guest("sh", "-c", "echo c > /proc/sysrq-trigger; sleep 1000", directory=tmp_path)
    assert (seen.outcome.status, seen.outcome.timed_out, seen.outcome.exit_status) == (None, False, 125)
    assert "Kernel panic" in seen.outcome.log


def test_no_process_outlives_it(tmp_path: Path) -> None:
    request = GuestRequest(command=["sleep", "1000"], directory=tmp_path)
    with Guest.start(request):
        started = descendants(os.getpid())
        assert started
    assert descendants(os.getpid()) == []
    assert all_end(started)


def test_folders_that_cannot_be_writable(tmp_path: Path, mailboxes: Path) -> None:
    (tmp_path / "a,b").mkdir()
    for folder in (tmp_path / "nothing", tmp_path / "a,b"):
        with pytest.raises(GuestError, match="cannot be writable in a guest"):
            in_guest("true", directory=tmp_path, writable=[folder])
    assert list(mailboxes.iterdir()) == []


def test_a_machine_without_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproxy_core.testing.guest.runner._which", lambda program: None)
    with pytest.raises(GuestError, match="apt-get install hostname iproute2 kmod mount user-mode-linux util-linux"):
        find_kernel()


# -- the program


def started(*command: str, options: Sequence[str] = ()) -> "subprocess.Popen[str]":
    return subprocess.Popen([*PROGRAM, *options, "--", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_program_ends_as_its_command_does() -> None:
    process = started("sh", "-c", "echo one; echo two >&2; exit 3")
    assert process.communicate() == ("one\n", "two\n")
    assert process.returncode == 3


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_program_is_interrupted(number: signal.Signals, status: int, mailboxes: Path) -> None:
    process = started("sh", "-c", "echo begun; sleep 1000")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    inner = descendants(process.pid)
    process.send_signal(number)
    assert process.communicate() == ("", "")
    assert process.returncode == status
    assert all_end(inner)
    assert list(mailboxes.iterdir()) == []


def test_no_guest_outlives_a_program_that_is_killed() -> None:
    process = started("sh", "-c", "echo begun; sleep 1000")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    inner = descendants(process.pid)
    process.kill()
    process.communicate()
    assert all_end(inner)


def test_root_is_not_needed(unprivileged_with_namespaces: User, mailboxes: Path) -> None:
    for folder in mailboxes.parents[:3]:
        folder.chmod(0o755)
    mailboxes.chmod(0o777)
    command = ("sh", "-c", "id -u && mount -t tmpfs none /mnt && modprobe ip_vs && exit 9")
    done = unprivileged_with_namespaces.run("-m", "kproxy_core.testing.guest", "--", *command)
    assert (done.returncode, done.stdout, done.stderr) == (9, "0\n", "")


def test_the_program_says_that_time_is_up() -> None:
    process = started("sleep", "1000", options=["--time-limit", "1"])
    out, err = process.communicate()
    assert (out, process.returncode) == ("", 124)
    assert "it took more than 1 seconds" in err


def test_help() -> None:
    text = subprocess.run([*PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
    assert "--writable DIR" in text
    assert "its changes are" in text
