"""What the daemon expects of a source of changes, its own ones and those that extensions add."""

from typing import Protocol, runtime_checkable

from kproxy_core.model.changes import Change
from kproxy_core.model.snapshot import Kind


@runtime_checkable
class Source(Protocol):
    """Somewhere to watch the cluster's objects. Called from the daemon's thread only."""

    @property
    def name(self) -> str:
        """How logs call it, such as ``manifests:/etc/kproxy``."""
        ...

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds that it will list, all objects of each in a ``Replaced``: nothing is programmed before.

        It may deliver others as well, which nobody waits for.
        """
        ...

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when ``poll`` has something, or -1 to be polled once a second."""
        ...

    def poll(self) -> tuple[Change, ...]:
        """Return what is new since the last call, without waiting; the first call may return complete lists at once.

        An exception is logged, and the source polled again a little later: what the kernel has is kept.
        """
        ...

    def close(self) -> None:
        """Stop watching; ``poll`` is not called again."""
        ...
