"""A watch on one directory by inotify(7), through the C library: Python's own has none."""

import ctypes
import os
import struct
from pathlib import Path
from typing import Final

from attrs import field, frozen

_CLOSE_WRITE: Final = 0x8
_MOVED_FROM: Final = 0x40
_MOVED_TO: Final = 0x80
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_DELETE_SELF: Final = 0x400
_MOVE_SELF: Final = 0x800
_OVERFLOW: Final = 0x4000
_ONLY_DIRECTORY: Final = 0x01000000

_MASK: Final = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLY_DIRECTORY
_EVENT: Final = struct.Struct("=iIII")


@frozen(kw_only=True)
class Noticed:
    """What has happened: ``complete`` names files that a writer has finished, by closing or by renaming them into place.

    ``everything`` says that any file may be complete: a directory was swapped behind a symbolic link, as the kubelet does with
    ConfigMaps, or events were lost.
    """

    complete: frozenset[str] = field(factory=frozenset)
    everything: bool = False


class DirectoryWatch:
    """Watches the entries of one directory; raises OSError when the kernel has no watch left to give."""

    def __init__(self, directory: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        if libc.inotify_add_watch(self._descriptor, os.fsencode(directory), _MASK) < 0:
            number = ctypes.get_errno()
            self.close()
            raise OSError(number, os.strerror(number), str(directory))

    def fileno(self) -> int:
        """A descriptor that is readable when something has happened."""
        return self._descriptor

    def read(self) -> Noticed:
        """Take what has happened since the last call; never waits."""
        complete: set[str] = set()
        everything = False
        while True:
            try:
                events = os.read(self._descriptor, 65536)
            except BlockingIOError:
                return Noticed(complete=frozenset(complete), everything=everything)
            offset = 0
            while offset < len(events):
                _, mask, _, length = _EVENT.unpack_from(events, offset)
                raw = events[offset + _EVENT.size : offset + _EVENT.size + length]
                offset += _EVENT.size + length
                name = os.fsdecode(raw.rstrip(b"\0"))
                if mask & (_CLOSE_WRITE | _MOVED_TO):
                    complete.add(name)
                everything |= bool(mask & _OVERFLOW) or (bool(mask & _MOVED_TO) and name.startswith(".."))

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
