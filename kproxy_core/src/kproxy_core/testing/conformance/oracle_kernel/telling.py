"""The ways in which a mode is told of the next cluster."""

import enum
import random

from attrs import frozen

from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.snapshot import ClusterSnapshot
from kproxy_core.testing.manifests import objects_in
from kproxy_core.testing.oracle import Scene


class Way(enum.Enum):
    """How a mode is told of a cluster."""

    RESTARTED = "by a new process"
    LISTED = "by a list of everything"
    PIECEMEAL = "object by object"


@frozen(kw_only=True)
class Told:
    """A scene, and how the mode was told of it: after which cluster, and which way; ``seed`` orders the pieces."""

    scene: Scene
    way: Way
    before: ClusterSnapshot | None
    seed: int = 0


@frozen
class Step:
    """Objects that are created or replaced (``puts``), or deleted, at once."""

    puts: bool
    objects: tuple[WatchedObject, ...]


def steps_between(before: ClusterSnapshot | None, after: ClusterSnapshot, seed: int) -> tuple[Step, ...]:
    """Lead from one cluster to the next by one to three objects at a time, in any order, those that go among those that come."""
    chance = random.Random(seed)
    there = _by_name(before) if before is not None else {}
    coming = _by_name(after)
    left = [(True, each) for key, each in coming.items() if there.get(key) != each]
    left += [(False, each) for key, each in there.items() if key not in coming]
    chance.shuffle(left)
    steps: list[Step] = []
    while left:
        puts, most = left[0][0], chance.randrange(1, 4)
        taken = [left.pop(0)[1]]
        while left and left[0][0] is puts and len(taken) < most:
            taken.append(left.pop(0)[1])
        steps.append(Step(puts, tuple(taken)))
    return tuple(steps)


def _by_name(snapshot: ClusterSnapshot) -> dict[tuple[type, str], WatchedObject]:
    return {(type(each), str(each.name)): each for each in objects_in(snapshot)}
