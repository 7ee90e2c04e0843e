"""Deltas: what must change between two programs, and the law that applying it gives the second one."""

from collections.abc import Iterable, Mapping
from typing import Generic

from attrs import field, frozen

from kproxy_core.model.names import ServicePortKey
from kproxy_core.program.program import K, Program, V, objects


@frozen(kw_only=True)
class Delta(Generic[K, V]):
    """Objects to add, to change (old and new value) and to remove. A key is in at most one of the three."""

    added: Mapping[K, V] = field(factory=dict)
    changed: Mapping[K, tuple[V, V]] = field(factory=dict)
    removed: Mapping[K, V] = field(factory=dict)

    @property
    def made(self) -> dict[K, V]:
        """What is there afterwards and was not before: the objects that are added, and the new values of those that change."""
        return {**self.added, **{key: new for key, (_, new) in self.changed.items()}}

    @property
    def gone(self) -> dict[K, V]:
        """What was there before and is not any more: the objects that are removed, and the old values of those that change."""
        return {**self.removed, **{key: old for key, (old, _) in self.changed.items()}}

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def __len__(self) -> int:
        return len(self.added) + len(self.changed) + len(self.removed)


def diff(before: Mapping[K, V], after: Mapping[K, V]) -> Delta[K, V]:
    """Tell two flat mappings apart: patching the first with the result gives the second."""
    if not before:
        # A first load: no copy of everything there is.
        return Delta(added=after)
    added = {key: value for key, value in after.items() if key not in before}
    removed = {key: value for key, value in before.items() if key not in after}
    changed = {key: (before[key], value) for key, value in after.items() if key in before and before[key] != value}
    return Delta(added=added, changed=changed, removed=removed)


def patch(before: Mapping[K, V], delta: Delta[K, V]) -> dict[K, V]:
    """Apply a delta to a flat mapping."""
    after = {key: value for key, value in before.items() if key not in delta.removed}
    after.update(delta.added)
    after.update((key, new) for key, (_, new) in delta.changed.items())
    return after


def diff_programs(before: Program[K, V], after: Program[K, V]) -> Delta[K, V]:
    """Tell two whole programs apart; ``before`` may be what was read from the kernel."""
    return diff(objects(before), objects(after))


def diff_ports(before: Program[K, V], after: Program[K, V], dirty: Iterable[ServicePortKey]) -> Delta[K, V]:
    """Tell two linked programs apart where only the ``dirty`` Service ports differ; the scaffold must be the same.

    The work is proportional to the dirty fragments. A key that moves from one Service port to another is a change, not a removal
    and an addition, so that its frontend is served without a gap.
    """
    old: dict[K, V] = {}
    new: dict[K, V] = {}
    for port in dirty:
        fragments = (before.fragments.get(port), after.fragments.get(port))
        old.update(fragments[0].own if fragments[0] else {})
        new.update(fragments[1].own if fragments[1] else {})
        # A shared key that loses one of its users is still there for the others.
        for fragment in fragments:
            for key in fragment.shared if fragment else ():
                if key in before.common:
                    old[key] = before.common[key]
                if key in after.common:
                    new[key] = after.common[key]
    return diff(old, new)
