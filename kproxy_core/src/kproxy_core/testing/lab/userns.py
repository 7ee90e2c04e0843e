"""Being root without root: a user namespace of one's own, in which a lab can be built by anybody.

``python -m kproxy_core.testing.lab PROGRAM ARGUMENT...`` runs a program in one.
"""

import contextlib
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from kproxy_core.testing.lab import namespaces
from kproxy_core.testing.lab.faults import LabCapability, LabError, Missing

_WHOLE = ["0", "0", "4294967295"]
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 1


def in_user_namespace() -> bool:
    """Whether this process is in another user namespace than the machine's first."""
    try:
        return Path("/proc/self/uid_map").read_text().split() != _WHOLE
    except OSError:
        return False


def can_build() -> bool:
    """Whether a lab can be built here and now. Tries, in a thread of its own."""
    try:
        namespaces.Namespace.create().close()
    except LabError:
        return False
    return True


def enter_user_namespace() -> tuple[Missing, ...]:
    """Move this process into user, network and mount namespaces of its own, where it is root, with the loopback up.

    Raises :class:`LabError` when it has more than one thread (call it first thing in a program), or the system forbids it.
    Returns what a lab will have to do without.
    """
    if len(tuple(Path("/proc/self/task").iterdir())) > 1:
        raise LabError("a process with several threads cannot enter a user namespace: see command_in_user_namespace()")
    user, group = os.geteuid(), os.getegid()
    try:
        namespaces.unshare(namespaces.CLONE_NEWUSER | namespaces.CLONE_NEWNET | namespaces.CLONE_NEWNS)
    except OSError as error:
        raise LabError(
            f"no user namespace: {error.strerror}. Run as root, or allow them: sysctl user.max_user_namespaces"
            " (and kernel.unprivileged_userns_clone or kernel.apparmor_restrict_unprivileged_userns where they exist)"
        ) from error
    with contextlib.suppress(FileNotFoundError):  # before Linux 3.19
        Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    try:
        _raise_loopback()
    except OSError as error:
        raise LabError(
            f"no rights in the new user namespace: {error.strerror}. Run as root,"
            " or sysctl kernel.apparmor_restrict_unprivileged_userns=0"
        ) from error
    return tuple(missing for missing in (_mount_sys(), _mount_names()) if missing is not None)


def enter_own_network() -> None:
    """Move the calling thread, and threads started by it, into a network namespace of its own, with the loopback up.

    For root of a user namespace who is still in the machine's network (see :func:`can_return`).
    Raises ``OSError``.
    """
    namespaces.unshare(namespaces.CLONE_NEWNET)
    _raise_loopback()


def exec_in_user_namespace(argv: Sequence[str]) -> None:
    """Become a program inside, with the same standard streams. Returns only by raising."""
    enter_user_namespace()
    os.execvp(argv[0], list(argv))


def command_in_user_namespace(argv: Sequence[str]) -> list[str]:
    """The command that runs a program inside, for :mod:`subprocess`."""
    return [sys.executable, "-m", "kproxy_core.testing.lab", *argv]


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def _mount_sys() -> Missing | None:
    try:
        namespaces.mount("none", "/", "", namespaces.MS_REC | namespaces.MS_SLAVE)
        namespaces.mount("sysfs", "/sys", "sysfs")
    except OSError as error:
        return Missing(capability=LabCapability.SYSFS, reason=str(error), remedy="run as root")
    return None


def _mount_names() -> Missing | None:
    try:
        namespaces.mount("tmpfs", str(namespaces.NAMES), "tmpfs")
    except OSError as error:
        return Missing(capability=LabCapability.NAMES, reason=str(error), remedy=f"as root, once: mkdir {namespaces.NAMES}")
    return None
