"""What every benchmark needs: a network namespace of its own, processor time, a table."""

import contextlib
import ctypes
import multiprocessing
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from attrs import define, field

T = TypeVar("T")
_CLONE_NEWNET = 0x40000000


@define
class Span:
    """Wall and processor seconds of a piece of work; ``children`` is the processor time of child processes."""

    wall: float = 0.0
    cpu: float = 0.0
    children: float = 0.0


@contextmanager
def measured() -> Iterator[Span]:
    """Measure the body."""
    span = Span()
    wall, cpu, children = time.perf_counter(), time.process_time(), _children()
    yield span
    span.wall = time.perf_counter() - wall
    span.cpu = time.process_time() - cpu
    span.children = _children() - children


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def in_fresh_namespace(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a child process inside a new network namespace and return what it returns.

    Raises ``RuntimeError`` with the child's words when it fails; needs root.
    """
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, initializer=_leave_network) as pool:
        return pool.apply(function, arguments)


def _leave_network() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        raise RuntimeError(f"cannot make a network namespace: {os.strerror(ctypes.get_errno())}; run as root")


def peak_memory() -> float:
    """Return the largest resident size of this process so far, in MiB.

    Not getrusage's: a process that was started by a larger one begins with that one's figure.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@contextmanager
def children_watched() -> Iterator[list[float]]:
    """Gather the largest resident size, in MiB, that any program started by the body had, into a list of one number.

    By looking every few milliseconds: what getrusage tells of a child begins with the size of the process that started it.
    """
    largest = [0.0]
    done = threading.Event()

    def look() -> None:
        own = Path("/proc/self/exe").resolve()
        while not done.wait(0.003):
            for pid in _children_of_all_threads():
                with contextlib.suppress(OSError, IndexError, ValueError):
                    # Before it becomes another program it shares our memory.
                    if Path(f"/proc/{pid}/exe").resolve() != own:
                        status = Path(f"/proc/{pid}/status").read_text()
                        largest[0] = max(largest[0], int(status.partition("VmHWM:")[2].split()[0]) / 1024)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield largest
    finally:
        done.set()
        thread.join()


def _children_of_all_threads() -> list[str]:
    found: list[str] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += path.read_text().split()
    return found


@define
class Table:
    """Rows of figures under a title, for people and as JSON."""

    title: str
    rows: list[dict[str, str | float | int]] = field(factory=list)

    def text(self) -> str:
        """Return the table aligned in columns."""
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        lines = [[_cell(row.get(name, "")) for name in names] for row in self.rows]
        widths = [max(len(line[index]) for line in [names, *lines]) for index in range(len(names))]
        body = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in [names, *lines]]
        return "\n".join([self.title, *body, ""])


def _cell(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"
    return str(value)
