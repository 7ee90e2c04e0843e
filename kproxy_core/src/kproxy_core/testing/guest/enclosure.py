"""The last step before a user-mode kernel starts, as a process of its own in new mount and process namespaces.

A guest's root is a root of the host, as far as files go, so what it must not write is made read-only around it. Become then a
shell, the first process of the namespace, that starts the kernel: when it ends, so does everything in there.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from kproxy_core.testing.lab import namespaces

_MOUNT_SETATTR = 442
"""The number of mount_setattr(2), Linux 5.12, on every architecture."""
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_READ_ONLY = 0x1
_ADDR_NO_RANDOMIZE = 0x0040000
_ATTRIBUTES = struct.Struct("=QQQQ")
_libc = ctypes.CDLL(None, use_errno=True)


def _set_read_only(path: str, read_only: bool) -> None:
    """Make a mount and all below it read-only, or writable. Raises ``OSError``."""
    attributes = _ATTRIBUTES.pack(_READ_ONLY if read_only else 0, 0 if read_only else _READ_ONLY, 0, 0)
    result = _libc.syscall(
        _MOUNT_SETATTR, ctypes.c_int(_AT_FDCWD), path.encode(), ctypes.c_uint(_AT_RECURSIVE), attributes, _ATTRIBUTES.size
    )
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"make {path} {'read-only' if read_only else 'writable'}: {os.strerror(number)}")


def enclose(mailbox: str, writable: Sequence[str]) -> None:
    """Leave only these folders writable, and give the kernel memory to keep its own in. Raises ``OSError``."""
    namespaces.mount("none", "/", "", namespaces.MS_REC | namespaces.MS_SLAVE)
    folders = [mailbox, *writable]
    for folder in folders:
        namespaces.mount(folder, folder, "", namespaces.MS_BIND)
    _set_read_only("/", read_only=True)
    for folder in folders:
        _set_read_only(folder, read_only=False)
    namespaces.mount("tmpfs", f"{mailbox}/memory", "tmpfs")


def pin(choice: bytes) -> None:
    """Stay on one processor, any: a user-mode kernel's system calls are two to three times as fast then."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[sum(choice) % len(allowed)]})


def lay_out_memory_plainly() -> None:
    """Let programs started from here have their memory where it always is (man 2 personality).

    Where it is laid out by chance, a user-mode kernel has a hole of up to a gigabyte in its memory, and one in some twenty
    does not come up.
    """
    _libc.personality(ctypes.c_ulong(_ADDR_NO_RANDOMIZE))


def main(mailbox: str, kernel_command: Sequence[str]) -> None:
    """Enclose and become the shell. Returns only by raising ``OSError``."""
    enclose(mailbox, (Path(mailbox) / "writable").read_text().splitlines())
    pin(mailbox.encode())
    lay_out_memory_plainly()
    environment = {"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": f"{mailbox}/memory", "HOME": f"{mailbox}/memory"}
    # Not the shell's last command, or it would become the kernel; and a kernel that is the first process hangs on a panic.
    os.execve("/bin/sh", ["sh", "-c", '"$@"; exit $?', "sh", *kernel_command], environment)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except OSError as error:
        sys.exit(f"cannot enclose a guest: {error}")
