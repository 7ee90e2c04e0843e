"""How the watches of the sources are doing, for metrics and health answers."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable


class WatchLife(Protocol):
    """One watch: seconds since the server's last sign of life (None before the first), and what is amiss, empty if nothing is."""

    @property
    def listed(self) -> bool:
        """Whether all objects of the kind have been seen."""
        ...

    @property
    def silence(self) -> float | None:
        """Seconds since the last sign of life."""
        ...

    @property
    def problem(self) -> str:
        """What is amiss."""
        ...

    @property
    def relists(self) -> int:
        """How often everything had to be listed anew."""
        ...

    @property
    def requests(self) -> int:
        """How many requests there have been."""
        ...


@runtime_checkable
class WatchingSource(Protocol):
    """A source that watches somebody else, who may be silent."""

    def liveness(self) -> Mapping[Any, WatchLife]:
        """Return how each of its watches is doing, by kind; from any thread."""
        ...


def watch_lives(sources: Iterable[object]) -> dict[str, WatchLife]:
    """Return how all watches of some sources are doing, by the name of the kind."""
    watching = (source for source in sources if isinstance(source, WatchingSource))
    return {str(kind.value): life for source in watching for kind, life in source.liveness().items()}
