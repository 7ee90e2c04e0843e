"""Network namespaces held by a descriptor: made, entered by the current thread, optionally named, gone with the process.

Python has ``os.setns`` and ``os.unshare`` from 3.12 on only; the C library is called for them.
"""

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from kproxy_core.testing.lab.faults import LabError

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_SLAVE = 0x80000
MNT_DETACH = 2

NAMES = Path("/run/netns")
"""Where ``ip netns`` looks for named namespaces."""

_OWN = "/proc/thread-self/ns/net"
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Give the calling thread new namespaces (man 2 unshare). Raises ``OSError``."""
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Move the calling thread into a namespace (man 2 setns). Raises ``OSError``."""
    _checked(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(kind)), "setns")


@contextlib.contextmanager
def open_own() -> Iterator[int]:
    """A descriptor of the network namespace that the calling thread is in."""
    descriptor = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def can_return() -> bool:
    """Whether the calling thread, once it has left its network namespace, could come back. Tries.

    Root of a user namespace cannot, while it is in a network that does not belong to it: the machine's.
    """
    try:
        with open_own() as home:
            setns(home, CLONE_NEWNET)
    except OSError:
        return False
    return True


def mount(source: str, target: str, kind: str, flags: int = 0) -> None:
    """Attach a file system, or a file to another (man 2 mount). Raises ``OSError``."""
    arguments = (ctypes.c_char_p(source.encode()), ctypes.c_char_p(target.encode()), ctypes.c_char_p(kind.encode()))
    _checked(_libc.mount(*arguments, ctypes.c_ulong(flags), None), f"mount {kind or source} on {target}")


def unmount(target: str) -> None:
    """Unmount at once, open files or not. Raises ``OSError``."""
    _checked(_libc.umount2(ctypes.c_char_p(target.encode()), ctypes.c_int(MNT_DETACH)), f"umount {target}")


class Namespace:
    """A network namespace, alive as long as its descriptor here or any process in it: nothing is left after a kill -9."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._name: Path | None = None

    @classmethod
    def create(cls) -> "Namespace":
        """Make one, without interfaces but a loopback that is down.

        Raises :class:`LabError` without the privilege, or when nobody could come back from it to where the caller is.
        """
        made: list[int] = []
        refused: list[OSError] = []

        def unshare_and_hold() -> None:
            try:
                with open_own() as home:
                    unshare(CLONE_NEWNET)
                    made.append(os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC))
                    # What can_return() tells, tried now, before somebody needs it.
                    setns(home, CLONE_NEWNET)
            except OSError as error:
                refused.append(error)

        # A thread of its own, so that no failure on the way back can leave the caller in the wrong namespace.
        maker = threading.Thread(target=unshare_and_hold, name="lab-namespace")
        maker.start()
        maker.join()
        if refused:
            for descriptor in made:
                os.close(descriptor)
            raise LabError(
                f"cannot make a network namespace: {refused[0].strerror}. Run as root, or call enter_user_namespace() first"
            ) from refused[0]
        return cls(made[0])

    @property
    def descriptor(self) -> int:
        """The descriptor that holds it. Raises :class:`LabError` after :meth:`close`."""
        if self._descriptor < 0:
            raise LabError("this network namespace is closed")
        return self._descriptor

    @property
    def path(self) -> str:
        """A path that other programs can open while this process lives: the one under /run/netns, if it has a name."""
        return str(self._name) if self._name else self.descriptor_path

    @property
    def descriptor_path(self) -> str:
        """The path below /proc, for ``nsenter --net=`` for example."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    @property
    def name(self) -> str:
        """The name under /run/netns, empty without one."""
        return self._name.name if self._name else ""

    @contextlib.contextmanager
    def enter(self) -> Iterator[None]:
        """Have the calling thread, and only it, live in the namespace: sockets made and programs started meanwhile belong there.

        May be nested. Raises :class:`LabError` when the namespace left could not be returned to.
        """
        with open_own() as home:
            setns(self.descriptor, CLONE_NEWNET)
            try:
                yield
            finally:
                setns(home, CLONE_NEWNET)

    def publish(self, name: str) -> None:
        """Bind it to /run/netns/NAME, as ``ip netns add`` does. Raises ``OSError``, ``FileExistsError`` for a name in use."""
        NAMES.mkdir(mode=0o755, exist_ok=True)
        target = NAMES / name
        target.touch(mode=0o444, exist_ok=False)
        try:
            mount(f"/proc/self/fd/{self.descriptor}", str(target), "none", MS_BIND)
        except OSError:
            target.unlink()
            raise
        self._name = target

    def close(self) -> None:
        """Let go of it, and of its name. May be called again."""
        if self._name:
            with contextlib.suppress(OSError):  # somebody may have done it already, by ``ip netns del`` for example
                unmount(str(self._name))
            self._name.unlink(missing_ok=True)
            self._name = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
