"""Puts lines together from pieces as they arrive, whatever the pieces split: lines, characters of UTF-8, HTTP chunks."""

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes. An API object is at most about 3 MiB; beyond this something else is talking."""


class LineTooLongError(ValueError):
    """So much without an end of line that it cannot be an event."""


class LineBuffer:
    """The unfinished line so far, kept in parts: joining once at its end costs linear time, however many pieces it came in."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that ``data`` completes, without their ends. Raises LineTooLongError."""
        head, *rest = data.split(b"\n")
        self._parts.append(head)
        if not rest:
            self._size += len(head)
            if self._size > LONGEST_LINE:
                raise LineTooLongError(f"no end of line within {self._size} bytes")
            return []
        lines = [b"".join(self._parts), *rest[:-1]]
        self._parts = [rest[-1]] if rest[-1] else []
        self._size = len(rest[-1])
        return lines

    def clear(self) -> None:
        """Forget the unfinished line."""
        self._parts.clear()
        self._size = 0

    @property
    def unfinished(self) -> bool:
        """Whether a line has begun."""
        return self._size > 0
