"""What the in-memory mode puts into its kernel: objects with readable parts."""

from typing import Final

from attrs import frozen

TABLE: Final = "kproxy-memory"
"""Whose objects are ours; everything else in the kernel belongs to others."""

Key = tuple[object, ...]
"""A key's first part is its kind; the kinds are those of :class:`~kproxy_core.testing.memory_backend.MemoryBackend`."""
Value = object
Objects = dict[Key, Value]

LEAVE: Final = ("leave",)
"""The action for an origin that the mode does not claim: the packet goes on to the next table."""


@frozen(kw_only=True)
class Front:
    """What a frontend's object holds: its Service id, and what happens by origin.

    That is ``("forward", scope, slots, masquerade)``, drop, reject or :data:`LEAVE`.
    """

    service: int
    local_pod: tuple[object, ...]
    node: tuple[object, ...]
    outside: tuple[object, ...]
    restricted: bool
