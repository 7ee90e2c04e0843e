"""Waits on several descriptors by one."""

import select
from collections.abc import Callable, Sequence


class JoinedDescriptors:
    """An epoll descriptor that is readable as long as any of some others is.

    ``joined`` give what there is to wait on now, -1 for nothing, and are asked each time ``fileno`` is.
    """

    def __init__(self, joined: Sequence[Callable[[], int]]) -> None:
        self._joined = tuple(joined)
        self._epoll = select.epoll()

    def fileno(self) -> int:
        """Return the descriptor, or -1 when there is nothing to wait on."""
        descriptors = [descriptor for ask in self._joined if (descriptor := ask()) >= 0]
        for descriptor in descriptors:
            # One that was closed has left by itself, and its number may be another file's by now: this is the way to find out.
            try:
                self._epoll.register(descriptor, select.EPOLLIN)
            except FileExistsError:
                continue
        return self._epoll.fileno() if descriptors else -1

    def close(self) -> None:
        """Wait on nothing more."""
        self._epoll.close()
