"""``python -m kproxy_core.testing.guest -- COMMAND ARGUMENT...``: run a command in a guest, where the kernel has IPVS.

The guest is user-mode Linux. It sees this machine's files, and can change them all as far as it can tell, but its changes are
gone with it, except in the folders given by --writable. Its network is its own and empty. Needs no root.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from kproxy_core.testing.guest.request import BROKEN, TIMED_OUT, GuestOutcome, GuestRequest
from kproxy_core.testing.guest.runner import GuestError, Sink, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, 124 when it took too long, 125 when the guest broke or cannot be had."""
    options = _parser().parse_args(arguments)
    request = GuestRequest(
        command=options.command,
        directory=options.directory,
        environment=dict(os.environ),
        writable=options.writable,
        memory=options.memory,
        time_limit=options.time_limit,
    )
    try:
        outcome = run(request, _writer(1), _writer(2))
    except GuestError as error:
        sys.stderr.write(f"{error}\n")
        return BROKEN
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    _explain(outcome, options.time_limit)
    return outcome.exit_status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kproxy_core.testing.guest", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="the program and its arguments, after --")
    parser.add_argument(
        "--writable",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder that the guest may write to (may be repeated)",
    )
    parser.add_argument("--directory", type=Path, default=Path.cwd(), metavar="DIR", help="where to run it (default: here)")
    parser.add_argument("--memory", type=int, default=1024, metavar="MIB", help="the guest's memory (default: %(default)s)")
    parser.add_argument(
        "--time-limit",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help=f"end the guest after this time, with exit status {TIMED_OUT} (default: %(default)s)",
    )
    return parser


def _writer(descriptor: int) -> Sink:
    def write(piece: bytes) -> None:
        while piece:
            piece = piece[os.write(descriptor, piece) :]

    return write


def _explain(outcome: GuestOutcome, limit: float) -> None:
    if outcome.timed_out:
        sys.stderr.write(f"the guest was ended: it took more than {limit:g} seconds\n{outcome.log}")
    elif outcome.status is None:
        sys.stderr.write(f"the guest ended without an exit status of the command. Its kernel's last lines:\n{outcome.log}\n")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main())
