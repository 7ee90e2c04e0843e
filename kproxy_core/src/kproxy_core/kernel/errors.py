"""What goes wrong between this process and the kernel."""

from __future__ import annotations

import errno
import os


class KernelError(Exception):
    """Base of what this package raises."""


class NetlinkError(KernelError):
    """The kernel refused a request: `error` is the errno, `text` the kernel's own words if it had any."""

    def __init__(self, what: str, error: int, text: str | None = None) -> None:
        name = errno.errorcode.get(error, str(error))
        super().__init__(f"{what}: {os.strerror(error)} ({name})" + (f": {text}" if text else ""))
        self.what = what
        self.error = error
        self.text = text


class NotFoundError(NetlinkError):
    """ENOENT: the table, chain, set or flow is not there."""


class PermissionDeniedError(NetlinkError):
    """EPERM or EACCES: the process lacks CAP_NET_ADMIN here, or another process owns the table."""


class OverrunError(KernelError):
    """The socket's receive buffer was full (ENOBUFS): answers or notifications are lost."""


class DumpInterruptedError(KernelError):
    """What was being listed kept changing, so that no consistent list could be had."""


class OutcomeUnknownError(KernelError):
    """The kernel said neither yes nor no to a transaction: read back before going on."""


class NamespaceError(KernelError):
    """A network namespace could not be entered or left."""


def netlink_error(what: str, error: int, text: str | None = None) -> NetlinkError:
    """The most specific error for an errno."""
    kinds = {errno.ENOENT: NotFoundError, errno.EPERM: PermissionDeniedError, errno.EACCES: PermissionDeniedError}
    return kinds.get(error, NetlinkError)(what, error, text)
