"""What people are told when a command fails: one line with the remedy, for every failure that is no fault of kproxy's own."""

from kproxy_core.plugin.errors import ApplyError, ConfigError, ContractError, UnsupportedError


def one_line(error: BaseException) -> str | None:
    """Return what to tell about an error; None when nobody foresaw it, and a traceback serves better."""
    if isinstance(error, ContractError):
        return f"{error} (this is a fault of the mode's, tell its maker)"
    if isinstance(error, ConfigError | UnsupportedError | ApplyError):
        return str(error)
    if isinstance(error, PermissionError):
        return f"{error}; run as root, or with CAP_NET_ADMIN"
    return _of_the_kernel(error)


def is_misuse(error: BaseException) -> bool:
    """Whether the user has to write something else."""
    return isinstance(error, ConfigError)


def _of_the_kernel(error: BaseException) -> str | None:
    from kproxy_core.kernel.errors import KernelError, PermissionDeniedError

    if isinstance(error, PermissionDeniedError):
        return f"{error}; run as root, or with CAP_NET_ADMIN"
    return str(error) if isinstance(error, KernelError) else None
