"""Doing something inside another network namespace, without disturbing other threads.

setns(2) moves the calling thread alone. A namespace is given by path (`/run/netns/x`, `/proc/PID/ns/net`) or by descriptor.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from kproxy_core.kernel.errors import NamespaceError

_T = TypeVar("_T")
_CLONE_NEWNET = 0x40000000
_OWN = "/proc/thread-self/ns/net"
_libc = ctypes.CDLL(None, use_errno=True)

Namespace = str | os.PathLike[str] | int


@contextmanager
def entered(namespace: Namespace | None) -> Iterator[None]:
    """Be in the namespace for the body; None is where one already is.

    Only the calling thread moves. What is opened inside (sockets, files under /proc/sys/net) stays there.
    Raises NamespaceError when it cannot be entered. If the thread cannot return, it must not go on: NamespaceError, too, and the
    thread is better ended (in_thread() is for code that wants to be safe from that).
    """
    if namespace is None:
        yield
        return
    with _opened(_OWN) as home:
        with _opened(namespace) as target:
            _set(target, f"enter network namespace {namespace}")
        try:
            yield
        finally:
            _set(home, "return from a network namespace")


def in_namespace(namespace: Namespace | None, function: Callable[[], _T]) -> _T:
    """Call a function inside the namespace, in the calling thread."""
    with entered(namespace):
        return function()


def in_thread(namespace: Namespace, function: Callable[[], _T]) -> _T:
    """Call a function inside the namespace in a thread of its own, and wait for it.

    The calling thread never moves. Exceptions of the function are raised here.
    """
    results: list[_T] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with _opened(namespace) as target:
                _set(target, f"enter network namespace {namespace}")
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            failures.append(error)

    thread = threading.Thread(target=work, name=f"in {namespace}", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def create() -> int:
    """A descriptor of a new network namespace, which lives until nothing refers to it any more.

    Its loopback is down. Raises NamespaceError when namespaces may not be made.
    """

    def work() -> int:
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise NamespaceError(f"make a network namespace: {os.strerror(ctypes.get_errno())}")
        return os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)

    return in_thread(_OWN, work)


def identity(namespace: Namespace | None = None) -> tuple[int, int]:
    """Device and inode of a namespace (by default the calling thread's): equal for the same namespace.

    Raises NamespaceError when there is no such namespace.
    """
    with _opened(_OWN if namespace is None else namespace) as descriptor:
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino


@contextmanager
def _opened(namespace: Namespace) -> Iterator[int]:
    if isinstance(namespace, int):
        yield namespace
        return
    try:
        descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NamespaceError(f"open network namespace {namespace}: {error.strerror}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _set(descriptor: int, what: str) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise NamespaceError(f"{what}: {os.strerror(ctypes.get_errno())}")
