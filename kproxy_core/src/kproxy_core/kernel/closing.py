"""Things that hold a descriptor: closed by close(), by `with`, and never twice."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Base of what has a descriptor to give back."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; doing so twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
