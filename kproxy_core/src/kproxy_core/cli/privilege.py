"""Becomes root of a user namespace of its own when this process may not make network namespaces."""

import os
import sys

import click

REENTERED = "KPROXY_INSIDE"


def become_able(what: str) -> None:
    """Return when network namespaces may be made; otherwise run this program again, from its start, where they may.

    ``what`` is what needs them, for the message when that fails.
    Raises :class:`~kproxy_core.testing.lab.LabError` with what would help when that is not allowed either.
    """
    from kproxy_core.runtime.node_checks import CAP_NET_ADMIN, CAP_SYS_ADMIN, has_capability
    from kproxy_core.testing.lab import LabError, can_return, exec_in_user_namespace

    able = has_capability(CAP_SYS_ADMIN) and has_capability(CAP_NET_ADMIN) and can_return()
    if able or os.environ.get(REENTERED):
        return
    os.environ[REENTERED] = "1"
    try:
        exec_in_user_namespace([sys.executable, "-P", "-m", "kproxy_core.cli.main", *sys.argv[1:]])
    except LabError as error:
        raise click.ClickException(f"{what} needs network namespaces: {error}") from error
    except OSError as error:
        raise click.ClickException(f"{what} cannot start {sys.executable} in a user namespace: {error.strerror}") from error
