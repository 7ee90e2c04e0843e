"""Runs the ``kproxy`` command in an altered world: the alterations' names first, then what the command is given."""

import math
import sys

from kproxy_core.cli.main import main
from kproxy_core.runtime import daemon
from kproxy_nftables import trials

NO_FLAGS = 1 << 31
"""Flags of a table that every kernel refuses, as those before 6.9 refuse the ones that we ask for."""


def older_kernel() -> None:
    """Let nobody hold a table for good."""
    trials.HELD = NO_FLAGS  # type: ignore[assignment, attr-defined]


def no_polling() -> None:
    """Look for drift only when the kernel tells of a change."""
    daemon.POLL_PERIOD = math.inf


if __name__ == "__main__":
    alterations = {alteration.__name__: alteration for alteration in (older_kernel, no_polling)}
    while sys.argv[1] in alterations:
        alterations[sys.argv.pop(1)]()
    main(prog_name="kproxy")
