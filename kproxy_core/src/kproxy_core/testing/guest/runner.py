"""Running a command in a guest: start, streams, time limit, end. Nothing outlives it, however it ends."""

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from kproxy_core.testing.guest.request import INIT, GuestOutcome, GuestRequest, kernel_command, script

Sink = Callable[[bytes], object]
"""Takes what the command wrote, piece by piece."""

_KERNEL = "linux.uml"
_NEEDED = {
    _KERNEL: "user-mode-linux",
    "insmod": "kmod",
    "modprobe": "kmod",
    "ip": "iproute2",
    "mount": "mount",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "hostname": "hostname",
}
"""Programs of the host and the guest, and the Debian packages that they are in."""
_LOG_SIZE = 16 << 10
_PIECE = 1 << 16


class GuestError(Exception):
    """A guest cannot be had; says why and what to do about it."""


def find_kernel() -> Path:
    """The user-mode kernel. Raises :class:`GuestError` when it, or a program that a guest needs, is missing."""
    missing = sorted({package for program, package in _NEEDED.items() if _which(program) is None})
    if missing:
        raise GuestError(f"no guest with a kernel of its own here: on Debian, apt-get install {' '.join(missing)}")
    return _program(_KERNEL)


def _which(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))


def _program(name: str) -> Path:
    found = _which(name)
    if found is None:
        raise GuestError(f"{name} is missing")
    return Path(found)


class Guest:
    """A running guest. Made by :meth:`start`, and by `with` ended in every case."""

    def __init__(
        self, request: GuestRequest, mailbox: Path, process: "subprocess.Popen[bytes]", streams: tuple[int, int]
    ) -> None:
        self._request = request
        self._mailbox = mailbox
        self._process = process
        self._streams = streams
        self._log = b""

    @classmethod
    def start(cls, request: GuestRequest) -> Self:
        """Start one. Raises :class:`GuestError`."""
        kernel = find_kernel()
        for folder in request.writable:
            if not folder.is_dir() or set(str(folder)) & set(",\n"):
                raise GuestError(f"{folder} cannot be writable in a guest: no folder, or a comma in its name")
        mailbox = Path(tempfile.mkdtemp(prefix="kproxy-guest-"))
        try:
            _fill(mailbox, request)
            with _pipe() as out, _pipe() as err:
                command = kernel_command(kernel, mailbox, request.memory, (out[1], err[1]))
                process = _spawn(mailbox, command, (out[1], err[1]))
                return cls(request, mailbox, process, (os.dup(out[0]), os.dup(err[0])))
        except BaseException:
            shutil.rmtree(mailbox, ignore_errors=True)
            raise

    def pump(self, out: Sink, err: Sink) -> GuestOutcome:
        """Hand on what the command writes, as it comes, until the guest ends or has had its time."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + self._request.time_limit
        sinks = {self._streams[0]: out, self._streams[1]: err, self._process.stdout.fileno(): self._keep}
        with selectors.DefaultSelector() as selector:
            for descriptor in sinks:
                selector.register(descriptor, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    self.kill()
                    return GuestOutcome(status=None, timed_out=True, log=self._text())
                for key, _ in ready:
                    piece = os.read(key.fd, _PIECE)
                    sinks[key.fd](piece)
                    if not piece:
                        selector.unregister(key.fd)
        self._process.wait()
        return GuestOutcome(status=self._status(), log=self._text())

    def _keep(self, piece: bytes) -> None:
        self._log = (self._log + piece)[-_LOG_SIZE:]

    def _text(self) -> str:
        return self._log.decode(errors="replace").replace("\r", "")

    def _status(self) -> int | None:
        try:
            return int((self._mailbox / "status").read_text())
        except (OSError, ValueError):
            return None

    def kill(self) -> None:
        """End it at once, with all its processes."""
        if self._process.poll() is None:
            # The group, not only its first process: that might not have told its child yet to die with it.
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it if it runs, and remove what it left. May be called again."""
        self.kill()
        self._process.wait()
        if self._process.stdout is not None and not self._process.stdout.closed:
            # The end of this stream is the end of the last process in the guest's namespace.
            while os.read(self._process.stdout.fileno(), _PIECE):
                pass
            self._process.stdout.close()
            for descriptor in self._streams:
                os.close(descriptor)
        shutil.rmtree(self._mailbox, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def run(request: GuestRequest, out: Sink, err: Sink) -> GuestOutcome:
    """Run a command in a guest. Raises :class:`GuestError` when none can be had."""
    with Guest.start(request) as guest:
        return guest.pump(out, err)


def _fill(mailbox: Path, request: GuestRequest) -> None:
    for folder in ("memory", "stage"):
        (mailbox / folder).mkdir()
    shutil.copy(Path(__file__).with_name(INIT), mailbox / INIT)
    (mailbox / INIT).chmod(0o755)
    shutil.copyfile(_program("mount"), mailbox / "mount")
    (mailbox / "mount").chmod(0o755)
    (mailbox / "command").write_text(script(request))
    folders = [mailbox, *(folder.resolve() for folder in request.writable)]
    (mailbox / "writable").write_text("".join(f"{folder}\n" for folder in folders))


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe, closed here at the end; who wants to keep one duplicates it."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def _spawn(mailbox: Path, kernel: list[str], streams: tuple[int, int]) -> "subprocess.Popen[bytes]":
    """Start the kernel in new namespaces.

    It dies with the thread that starts it, and all its processes with it: by its parent's death, since it is the first one of a
    process namespace. It is in a session of its own, so that a terminal's Ctrl-C reaches only this process.
    """
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = ["unshare", *as_root, "--mount", "--pid", "--fork", "--kill-child=KILL"]
    enclosure = [sys.executable, "-m", "kproxy_core.testing.guest.enclosure", str(mailbox), *kernel]
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *unshare, *enclosure],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=streams,
        start_new_session=True,
    )
