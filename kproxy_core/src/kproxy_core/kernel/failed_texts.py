"""The last texts that a program refused, kept on disk for people: a ring of a few files for each mode."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from attrs import frozen

DIRECTORY: Final = Path("/run/kproxy")
KEPT: Final = 5
_PATTERN: Final = "failed-*.txt"


@frozen(kw_only=True)
class FailedText:
    """A file that was kept: of which mode, when (seconds since the epoch), what was said, and where the whole of it is."""

    mode: str
    at: float
    reason: str
    path: Path


class FailedTexts:
    """The ring of one mode. What cannot be written is let be: a full disk must not stop a sync."""

    def __init__(self, mode: str, directory: Path = DIRECTORY) -> None:
        self._directory = directory / mode

    def keep(self, text: str, reason: str) -> Path | None:
        """Keep a text with what was said against it, as lines of comment before it; the file, or None."""
        name = f"failed-{time.time_ns():020d}-{os.getpid()}.txt"
        head = "".join(f"# {line}\n" for line in reason.splitlines())
        path = self._directory / name
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Addresses and names of a cluster are nobody else's business.
            with open(path, "x", opener=_private, errors="surrogateescape") as file:
                file.write(head + text)
            for old in sorted(self._directory.glob(_PATTERN))[:-KEPT]:
                old.unlink(missing_ok=True)
        except OSError:
            return None
        return path


def failed_texts(directory: Path = DIRECTORY) -> tuple[FailedText, ...]:
    """What is kept, of all modes, the newest first."""
    found = (_described(path) for path in directory.glob(f"*/{_PATTERN}"))
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.at, reverse=True))


def _described(path: Path) -> FailedText | None:
    try:
        with path.open(errors="surrogateescape") as file:
            lines = [line[2:].rstrip("\n") for line in iter(file.readline, "") if line.startswith("# ")]
        return FailedText(mode=path.parent.name, at=int(path.name.split("-")[1]) / 1e9, reason=" ".join(lines), path=path)
    except (OSError, ValueError):
        return None  # removed meanwhile, or not of our making


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
