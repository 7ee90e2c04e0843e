"""ManifestSource: objects from YAML and JSON files, a directory of them, or standard input; follows changes of the files."""

import errno
import stat
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from kproxy_core.model.changes import Replaced
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.snapshot import NEEDED_BEFORE_FIRST_SYNC, Kind
from kproxy_core.plugin.errors import ConfigError
from kproxy_core.sources.coherence import incoherent
from kproxy_core.sources.decode import Decoded
from kproxy_core.sources.documents import BrokenTextError, DuplicateKey, read_text
from kproxy_core.sources.inotify import DirectoryWatch, Noticed
from kproxy_core.sources.mixed import Listing, Origin, Place, combine, decode_document

SUFFIXES: Final = (".yaml", ".yml", ".json")

SETTLE: Final = 0.2
"""Seconds that a file must stay as it is before it is read, or gone before it counts as gone, unless its writer is known to have
finished. Editors truncate and rewrite, or rename away and create anew: for a moment half of the objects would seem deleted."""

Signature = tuple[int, ...]
"""What tells two versions of a file apart: device, inode, size, and the times of its content and of its inode."""


@frozen
class _Awaited:
    """A file that differs from what was read: its new signature (None: gone), and since when it is so."""

    signature: Signature | None
    since: float


class ManifestSource:
    """Reads Services, EndpointSlices, Endpoints, Nodes, ServiceCIDRs and Lists of them; other kinds are told and ignored.

    ``path`` is a file, a directory (its ``*.yaml``, ``*.yml`` and ``*.json``, not deeper, hidden ones left out, in the order of
    their names) or ``-`` for standard input, which is read once. A file that cannot be read is told, and its last good content
    stays in force; for one that never could be read see :attr:`complete`. Call :meth:`load` once, then :meth:`poll` when
    :meth:`fileno` is readable, when ``wake_after`` has passed, and each second or so: inotify tells at once, but neither of
    network file systems nor of the files behind symbolic links, so the truth is in size, inode and times. Not for use from
    several threads.
    """

    delivers: Final = NEEDED_BEFORE_FIRST_SYNC
    """The kinds that are listed by ``load`` in any case; Nodes and ServiceCIDRs only once there are some."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._stdin = path == "-"
        self._directory = not self._stdin and self._path.is_dir()
        self._once = not self._directory and not self._path.is_file()
        self._watch: DirectoryWatch | None = None
        self._watched: Signature | None = None
        self._read: dict[str, Signature] = {}
        self._origins: dict[str, Origin] = {}
        self._good: set[str] = set()
        self._failing: set[str] = set()
        self._complete = False
        self._awaited: dict[str, _Awaited] = {}
        self._listed: dict[Kind, Listing] = {}
        self._complaint: tuple[Diagnostic, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether there was a moment since the start at which every file had been read.

        Before that, what is missing in the lists may be in a file of :attr:`unread`: who takes it for gone removes Services that
        an earlier process has put into the kernel.
        """
        return self._complete

    @property
    def unread(self) -> tuple[Diagnostic, ...]:
        """Why files that never could be read cannot be read now."""
        return tuple(told for name in sorted(self._origins.keys() - self._good) for told in self._origins[name].diagnostics)

    def load(self) -> tuple[Replaced, ...]:
        """Read everything and return the list of each kind, which is all there is if it is :attr:`complete`.

        Raises :class:`~kproxy_core.plugin.errors.ConfigError` when there is no such file or directory, or it may not be read.
        """
        try:
            if self._once:
                self._origins["-"] = self._read_once()
                self._good.add("-")
                return self._changes()
            self._watch_directory()
            found = self._scan()
        except OSError as error:
            raise ConfigError(f"cannot read manifests at {self._path}: {error.strerror}") from error
        for name in found:
            self._take_in(name)
        return self._changes()

    def _read_once(self) -> Origin:
        """Read standard input or a pipe, which cannot be read again and so has to be right the first time."""
        name = "standard input" if self._stdin else str(self._path)
        content = sys.stdin.buffer.read() if self._stdin else self._path.read_bytes()
        if not content.strip():
            # What fed the pipe has failed: taken for a cluster without Services it would cost every connection.
            raise ConfigError(f"no manifests came from {name}: it was empty; an empty List says that there are none")
        try:
            return _origin(name, content)
        except BrokenTextError as error:
            raise ConfigError(f"cannot read manifests from {name}, line {error.line}: {error}; {error.remedy}") from error

    def fileno(self) -> int:
        """A descriptor that is readable when files have changed; -1 when there is none (polling still works)."""
        return self._watch.fileno() if self._watch else -1

    @property
    def wake_after(self) -> float | None:
        """Seconds until a file that is being written may be read; None when there is none."""
        if not self._awaited:
            return None
        return max(0.0, min(awaited.since for awaited in self._awaited.values()) + SETTLE - time.monotonic())

    def poll(self) -> tuple[Replaced, ...]:
        """Return the complete list of each kind that has changed since the last call. Never raises for what is in the files."""
        if self._once:
            return ()
        noticed = self._noticed()
        try:
            found = self._scan()
        except OSError as error:
            self._complaint = (self._vanished(error),)
            self._awaited.clear()
            return self._changes()
        self._complaint = ()
        now = time.monotonic()
        for name in sorted({*found, *self._read, *self._awaited}):
            # What the system refuses to give may be had later without any change of the file.
            if self._is_settled(name, found.get(name), noticed, now) or name in self._failing:
                self._take_in(name)
        return self._changes()

    def close(self) -> None:
        """Stop watching."""
        self._close_watch()

    def _scan(self) -> dict[str, Signature]:
        """The signatures of the files that count, by name."""
        if not self._directory:
            return {self._path.name: _signature(self._path)}
        found = {}
        for path in sorted(self._path.iterdir()):
            if path.suffix in SUFFIXES and not path.name.startswith("."):
                try:
                    found[path.name] = _signature(path)
                except OSError:
                    continue
        return found

    def _is_settled(self, name: str, signature: Signature | None, noticed: Noticed, now: float) -> bool:
        """Whether a file differs from what was read and nobody seems to be writing it."""
        if signature == self._read.get(name):
            self._awaited.pop(name, None)
            return False
        awaited = self._awaited.get(name)
        if awaited is None or awaited.signature != signature:
            awaited = self._awaited[name] = _Awaited(signature, now)
        finished = noticed.everything or (signature is not None and name in noticed.complete)
        return finished or now - awaited.since >= SETTLE

    def _take_in(self, name: str) -> None:
        """Read a file, or forget one that is gone."""
        self._awaited.pop(name, None)
        self._failing.discard(name)
        path = self._path / name if self._directory else self._path
        try:
            # Of before it is read: if the file changes meanwhile, the next poll sees it.
            self._read[name] = _signature(path)
            self._origins[name] = _origin(name, path.read_bytes())
            self._good.add(name)
        except BrokenTextError as error:
            self._origins[name] = self._kept(name, error)
        except FileNotFoundError:
            if path.is_symlink():
                self._fail(
                    name, f"it is a link to {path.readlink()}, which is not there", "restore that file, or remove the link"
                )
            else:
                self._forget(name)
        except OSError as error:
            self._fail(name, f"cannot be read: {error.strerror}", "let the proxy read it, or remove it")

    def _forget(self, name: str) -> None:
        self._read.pop(name, None)
        self._origins.pop(name, None)
        self._good.discard(name)

    def _fail(self, name: str, problem: str, remedy: str) -> None:
        self._failing.add(name)
        self._origins[name] = self._kept(name, BrokenTextError(0, problem, remedy))

    def _kept(self, name: str, fault: BrokenTextError) -> Origin:
        """The last good content of a file, with word of why it is not its present one."""
        before = self._origins.get(name, Origin(name=name))
        kept = ""
        if name in self._good:
            kept = "; its last good content stays in force"
        elif self._complete:
            kept = "; it is left out"
        complaint = Diagnostic(
            severity=Severity.ERROR,
            subject=f"file {name}",
            field=f"line {fault.line}" if fault.line else "",
            message=f"{fault}{kept}",
            remedy=fault.remedy,
        )
        return evolve(before, diagnostics=(complaint,))

    def _vanished(self, error: OSError) -> Diagnostic:
        return Diagnostic(
            severity=Severity.ERROR,
            subject=f"{'directory' if self._directory else 'file'} {self._path}",
            message=f"{error.strerror}; its last content stays in force",
            remedy="restore it, or stop the proxy",
        )

    def _changes(self) -> tuple[Replaced, ...]:
        listings = combine(self._origins[name] for name in sorted(self._origins))
        self._complete = self._complete or not self.unread
        if self._complete:
            for kind, told in incoherent(listings, f"manifests {'standard input' if self._stdin else self._path}"):
                listings[kind] = evolve(listings[kind], diagnostics=(*listings[kind].diagnostics, told))
        if self._complaint:
            services = listings[Kind.SERVICE]
            listings[Kind.SERVICE] = evolve(services, diagnostics=(*self._complaint, *services.diagnostics))
        changes = tuple(
            Replaced(kind=kind, objects=listing.objects, diagnostics=listing.diagnostics)
            for kind, listing in listings.items()
            if listing != self._listed.get(kind) and (listing or kind in self._listed or kind in self.delivers)
        )
        self._listed.update((change.kind, listings[change.kind]) for change in changes)
        return changes

    def _noticed(self) -> Noticed:
        """What inotify tells; the watch is renewed when another directory has taken the place of the watched one."""
        noticed = self._watch.read() if self._watch else Noticed()
        if self._watched != self._directory_identity():
            self._watch_directory()
        return noticed

    def _directory_identity(self) -> Signature | None:
        try:
            status = self._folder.stat()
        except OSError:
            return None
        return (status.st_dev, status.st_ino)

    @property
    def _folder(self) -> Path:
        return self._path if self._directory else self._path.parent

    def _watch_directory(self) -> None:
        self._close_watch()
        self._watched = self._directory_identity()
        try:
            self._watch = DirectoryWatch(self._folder)
        except OSError:
            # Out of watches, or no inotify: polling finds the changes, a little later.
            self._watch = None

    def _close_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None


def _signature(path: Path) -> Signature:
    """The signature of the file, or of a link that leads nowhere."""
    try:
        status = path.stat()
    except OSError:
        status = path.lstat()
        if not stat.S_ISLNK(status.st_mode):
            raise
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
        # To read a FIFO could take for ever, and a device has no end.
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _origin(name: str, content: bytes) -> Origin:
    """Decode a text. Raises :class:`BrokenTextError`."""
    found = read_text(content)
    decoded = tuple(
        decoded
        for document in found.documents
        for decoded in decode_document(document.data, Place(name, document.line), document.item_lines)
    )
    return Origin(name=name, decoded=_useful(decoded), diagnostics=tuple(_duplicate(name, key) for key in found.duplicates))


def _useful(decoded: Iterable[Decoded]) -> tuple[Decoded, ...]:
    return tuple(item for item in decoded if item.objects or item.diagnostics)


def _duplicate(name: str, duplicate: DuplicateKey) -> Diagnostic:
    return Diagnostic(
        severity=Severity.WARNING,
        subject=f"file {name}",
        field=f"line {duplicate.line}" if duplicate.line else "",
        message=f"the key {duplicate.key!r} is there twice; the last value counts",
        remedy="keep one of them",
    )
