"""Kernel settings under /proc/sys, of the calling thread's network namespace where they are per namespace."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from kproxy_core.kernel.errors import KernelError

_ROOT: Final = Path("/proc/sys")


class SysctlError(KernelError):
    """A setting could not be read or written; `name` says which."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"sysctl {name}: {reason}")
        self.name = name


class MissingSysctlError(SysctlError):
    """There is no such setting: the feature is not in this kernel, or its module is not loaded."""


class ReadOnlySysctlError(SysctlError):
    """The setting may not be written here: /proc/sys is mounted read-only, or the process lacks the right."""


class InvalidSysctlError(SysctlError):
    """The kernel refuses this value."""


def read(name: str) -> str:
    """The value, without the line's end.

    name: with slashes ("net/ipv4/conf/eth0.1/rp_filter", needed where a part has a dot) or, without a slash, with dots.
    Raises MissingSysctlError, SysctlError.
    """
    try:
        return _path(name).read_text().rstrip("\n")
    except OSError as error:
        raise _failure(name, error) from error


def write(name: str, value: str | int) -> bool:
    """Set it; returns whether it had another value before (it is not written otherwise, so a read-only /proc/sys does not hurt).

    Raises MissingSysctlError, ReadOnlySysctlError, InvalidSysctlError, SysctlError.
    """
    wanted = str(value)
    if read(name).split() == wanted.split():
        return False
    try:
        _path(name).write_text(wanted)
    except OSError as error:
        raise _failure(name, error) from error
    return True


def _path(name: str) -> Path:
    parts = name.split("/" if "/" in name else ".")
    if not all(parts) or ".." in parts or "." in parts:
        raise MissingSysctlError(name, "not a name of a setting")
    return _ROOT.joinpath(*parts)


def _failure(name: str, error: OSError) -> SysctlError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR):
        return MissingSysctlError(name, "this kernel has no such setting (or its module is not loaded)")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnlySysctlError(name, f"{error.strerror}: may not be accessed so by this process")
    if error.errno in (errno.EINVAL, errno.ERANGE):
        return InvalidSysctlError(name, f"the kernel refuses the value ({error.strerror})")
    return SysctlError(name, error.strerror or str(error))
