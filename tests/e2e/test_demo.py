"""The demo shows what it promises, in every way it can be started, and leaves nothing, however it ends."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy_core.testing.lab import can_build, in_user_namespace

from ..users import NO_USER_NAMESPACES, User, this_user
from .conftest import COMMAND, PATIENCE, ROOT, Running, install_mode, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.kernel, pytest.mark.slow]

DEMO = [*COMMAND, "demo", "--seconds", "4"]
Background = Callable[..., Running]


@pytest.fixture(scope="module", autouse=True)
def _able() -> None:
    if not can_build() and not this_user().may_make_user_namespaces:
        pytest.skip(f"neither root, nor: {NO_USER_NAMESPACES}")


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    """The folder for temporary files of the demo, which must be as empty at the end as it was at first."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    tmp_path.chmod(0o711)
    folder.chmod(0o777)
    yield folder
    assert list(folder.iterdir()) == []


def environment(temporary: Path, **more: str) -> dict[str, str]:
    """What a demo is started with."""
    return {**os.environ, "TMPDIR": str(temporary), **more}


def session(leader: int) -> list[str]:
    """The command lines of the processes of a session that are still there: whoever is started by the demo belongs to its own."""
    found = []
    for folder in Path("/proc").glob("[1-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append((folder / "cmdline").read_text().replace("\0", " "))
    return found


def test_everything_holds(temporary: Path) -> None:
    process = subprocess.Popen(
        [*DEMO, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(temporary),
        start_new_session=True,
    )
    out, err = process.communicate(timeout=PATIENCE * 3)
    report = json.loads(out)
    assert [one for one in report["expectations"] if not one["ok"]] == []
    assert (process.returncode, report["ok"]) == (0, True), err
    assert session(process.pid) == []
    _check_report(report)
    assert all(f"/6 {title}" in err for title in ("A small cluster", "A rolling update", "Services without endpoints"))


def _check_report(report: dict[str, Any]) -> None:
    services = {service["name"]: service for service in report["services"]}
    assert {service["type"] for service in services.values()} == {"ClusterIP", "NodePort", "LoadBalancer"}
    assert {service["protocol"] for service in services.values()} == {"TCP", "UDP"}
    assert [endpoint["pod"] for endpoint in services["web"]["endpoints"]] == ["web-4", "web-5", "web-6"]
    assert sorted(services["web"]["connections_by_pod"]) == [f"web-{number}" for number in range(1, 7)]
    mail = {endpoint["pod"]: endpoint for endpoint in services["mail"]["endpoints"]}
    assert (mail["mail-3"]["node"], mail["mail-3"]["connections"]) == ("node2", 0)
    for service in services.values():
        assert service["failed"] == 0
        assert service["connections"] == sum(service["connections_by_pod"].values()) > 0
    assert report["measured"]["failed_connections"] == 0
    assert report["measured"]["connections"] == sum(service["connections"] for service in services.values())


def test_an_unprivileged_user_sees_the_same(temporary: Path, unprivileged_with_namespaces: User) -> None:
    done = unprivileged_with_namespaces.run(*DEMO[1:], "--json", environment={"TMPDIR": str(temporary)})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"]


def test_root_of_a_user_namespace_in_the_machines_network_sees_the_same(
    temporary: Path, unprivileged_with_namespaces: User
) -> None:
    """As after ``unshare --user --map-root-user``: it cannot come back to that network, and needs one of its own."""
    user = unprivileged_with_namespaces
    done = user.run_as_root_without_a_network(*DEMO[1:], "--json", environment={"TMPDIR": str(temporary)})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"]


@pytest.mark.usefixtures("user_namespaces")
def test_where_it_is_not_allowed_it_says_what_would_help(temporary: Path) -> None:
    # In a user namespace that allows no other, with nothing left of the capabilities that root has there.
    code = """
import ctypes, os, sys
from pathlib import Path
from kproxy_core.testing.lab import enter_user_namespace
enter_user_namespace()
Path("/proc/sys/user/max_user_namespaces").write_text("0")
for number in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
    ctypes.CDLL(None).prctl(24, number, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
    argv = [sys.executable, "-c", code, *DEMO[1:]]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment(temporary), timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: the demo needs network namespaces: no user namespace: ")
    assert "Run as root" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("part", "number"),
    [("1/6", signal.SIGINT), ("2/6", signal.SIGINT), ("3/6", signal.SIGTERM), ("4/6", signal.SIGINT), ("5/6", signal.SIGHUP)],
)
def test_it_can_be_ended_at_any_time(temporary: Path, background: Background, part: str, number: int) -> None:
    demo = background(argv=DEMO, env=environment(temporary, PYTHONUNBUFFERED="1"), start_new_session=True)
    demo.says(part)
    assert demo.stop(number) == 128 + number
    assert demo.log == "the demo was ended early; nothing of it is left\n"
    assert session(demo.process.pid) == []


def test_when_it_is_killed_its_processes_end(tmp_path: Path, background: Background) -> None:
    demo = background(argv=DEMO, env=environment(tmp_path, PYTHONUNBUFFERED="1"), start_new_session=True)
    demo.says("4/6")
    assert len(session(demo.process.pid)) == 3
    demo.send(signal.SIGKILL)
    demo.wait()
    wait_until(lambda: session(demo.process.pid) == [], "the end of the daemon and the servers")


def test_it_fails_when_something_does_not_hold(temporary: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    idle = """
from kproxy_core.plugin.hookspecs import hookimpl
from kproxy_core.testing.memory_backend import MemoryBackend, MemoryKernel

@hookimpl
def kproxy_backend(mode, settings):
    return MemoryBackend(MemoryKernel())
"""
    more = install_mode(folder, "idle", idle)
    argv = [*DEMO, "--mode", "idle", "--json"]
    done = subprocess.run(
        argv, capture_output=True, text=True, env=environment(temporary, **more), timeout=PATIENCE * 2, check=False
    )
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert not report["ok"]
    failed = [expectation["name"] for expectation in report["expectations"] if not expectation["ok"]]
    assert failed == ["with kproxy every Service answers"]
    assert "✗ with kproxy every Service answers" in done.stderr


class Terminal:
    """A demo at a terminal as large as terminals usually are, but with more lines."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execvpe(argv[0], argv, {**env, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "45"})
        self.written = ""

    def read_until(self, text: str) -> None:
        """Read what it writes until a text has come."""
        while text not in self.written:
            self.written += self._read()

    def read_to_end(self) -> int:
        """Read the rest and return the exit status."""
        with contextlib.suppress(OSError):  # what Linux tells when the other end is closed
            while True:
                self.written += self._read()
        os.close(self._descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def lines(self) -> list[str]:
        """What it has written, without colours; a line ends where the cursor is moved, too."""
        moved = re.sub(r"\x1b\[[0-9;?]*[A-HJKhl]|\r\n?", "\n", self.written)
        return [line for line in re.sub(r"\x1b\[[0-9;]*m", "", moved).splitlines() if line]

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._descriptor, keys)

    def _read(self) -> str:
        return os.read(self._descriptor, 1 << 16).decode(errors="replace")


def test_at_a_terminal_it_is_live_and_can_stay(temporary: Path) -> None:
    terminal = Terminal([*DEMO, "--stay"], environment(temporary))
    terminal.read_until("kproxy.log")
    assert "\x1b[?25l" in terminal.written, "the cursor is hidden while the table is live"
    assert "\x1b[?25h" in terminal.written, "and given back"
    assert "expectations held" in terminal.written
    assert "The cluster stays until Ctrl-C" in terminal.written
    enter = _command_below(terminal, "into the client's pod:").split()
    if in_user_namespace():
        # The command is for people outside of the demo's user namespace, who enter that as well; the test is in it already.
        enter = ["nsenter", *(word for word in enter if word.startswith("--net=")), "bash"]
    asked = [*enter, "-c", _command_below(terminal, "who answers there for web:")]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    assert len(answer.splitlines()) == 6
    assert set(answer.splitlines()) <= {"web-4", "web-5", "web-6"}
    terminal.type(b"\x03")
    assert terminal.read_to_end() == 0
    assert session(terminal.pid) == []


def _command_below(terminal: Terminal, title: str) -> str:
    """The line below a title."""
    lines = [line.strip() for line in terminal.lines()]
    return lines[lines.index(title) + 1]


def test_a_terminal_of_usual_width_is_wide_enough(temporary: Path) -> None:
    """Lines fit, or go on below where they began; and what is said of the table is what the table says."""
    terminal = Terminal(DEMO, environment(temporary))
    assert terminal.read_to_end() == 0
    lines = terminal.lines()
    with_a_path = re.compile(r": /\S+ .*(demo --stay|run --help)$")  # as long as the path of this checkout
    assert [line for line in lines if len(line) > 80 and not with_a_path.search(line)] == []
    assert [line for line in lines if re.match(r"[a-z]", line)] == [], "each goes on below its beginning"
    said = lines.index(next(line for line in lines if "every endpoint gets its share" in line))
    start = max(number for number, line in enumerate(lines[:said]) if line.strip().startswith("Service "))
    counts = [int(found[1]) for line in lines[start:said] if (found := re.search(r" node2? +(\d+) ", line))]
    assert len(counts) == 13
    total = next(line for line in lines if "every connection is answered" in line)
    assert f": {sum(counts)} connections" in total
    shares = " ".join(lines[said : said + 2])
    assert f"web {' : '.join(map(str, counts[:3]))}, dns {' : '.join(map(str, counts[3:5]))}" in re.sub(r" +", " ", shares)


def test_ctrl_c_at_a_terminal_gives_the_terminal_back(temporary: Path) -> None:
    terminal = Terminal(DEMO, environment(temporary))
    terminal.read_until("3/6")
    terminal.type(b"\x03")
    assert terminal.read_to_end() == 130
    assert terminal.written.rindex("\x1b[?25h") > terminal.written.rindex("\x1b[?25l")
    assert session(terminal.pid) == []


def test_without_colour(temporary: Path) -> None:
    terminal = Terminal([*DEMO, "--no-color"], environment(temporary))
    terminal.read_until("3/6")
    terminal.type(b"\x03")
    assert terminal.read_to_end() == 130
    assert "\x1b[3" not in terminal.written
