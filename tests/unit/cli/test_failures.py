"""Failures are told in a line with the remedy; what nobody foresaw keeps its traceback."""

import pytest

from kproxy_core.cli.failures import is_misuse, one_line
from kproxy_core.kernel.errors import KernelError, PermissionDeniedError
from kproxy_core.plugin.errors import ApplyError, ConfigError, ContractError, UnsupportedError


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConfigError("mode is wrong"), "mode is wrong"),
        (UnsupportedError("no nf_tables"), "no nf_tables"),
        (ApplyError("try again"), "try again"),
        (ContractError("two owners"), "two owners (this is a fault of the mode's, tell its maker)"),
        (PermissionError(1, "no"), "[Errno 1] no; run as root, or with CAP_NET_ADMIN"),
        (KernelError("odd answer"), "odd answer"),
        (
            PermissionDeniedError("list tables", 1),
            "list tables: Operation not permitted (EPERM); run as root, or with CAP_NET_ADMIN",
        ),
    ],
)
def test_foreseen_failures_are_one_line(error: Exception, told: str) -> None:
    assert one_line(error) == told


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), OSError(2, "x"), RuntimeError()])
def test_unforeseen_failures_are_not_hidden(error: Exception) -> None:
    assert one_line(error) is None


def test_only_mistakes_of_the_user_are_misuse() -> None:
    assert is_misuse(ConfigError("x"))
    assert not is_misuse(UnsupportedError("x"))
