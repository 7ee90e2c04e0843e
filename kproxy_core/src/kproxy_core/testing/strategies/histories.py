"""Strategies for the ways in which a watch may tell of a cluster."""

from collections.abc import Mapping

from hypothesis import strategies as st

from kproxy_core.model.changes import Change, Deleted, Replaced, Upserted, WatchedObject
from kproxy_core.model.names import ObjectName
from kproxy_core.model.snapshot import ClusterSnapshot, Kind
from kproxy_core.testing.strategies.clusters import snapshots
from kproxy_core.testing.strategies.drawing import pick, some


def objects_of(snapshot: ClusterSnapshot) -> dict[Kind, dict[ObjectName, WatchedObject]]:
    """All objects of a snapshot, by kind and by the name that a :class:`Deleted` would call them."""
    owned = (piece for pieces in snapshot.slices.values() for piece in pieces.values())
    node = snapshot.node
    return {
        Kind.SERVICE: dict(snapshot.services),
        Kind.ENDPOINT_SLICE: {piece.name: piece for piece in owned},
        Kind.NODE: {} if node is None else {ObjectName("", node.name): node},
        Kind.SERVICE_CIDR: {ObjectName("", name): made for name, made in snapshot.service_cidrs.items()},
    }


@st.composite
def changes_leading_to(draw: st.DrawFn, snapshot: ClusterSnapshot) -> tuple[Change, ...]:
    """Events that end in ``snapshot``, whatever they tell on the way.

    Kinds come in any interleaving, objects in any order, by list or one by one, some twice, some in another version first (a
    slice may then belong to another Service), and there are objects that come and go. The kinds in ``snapshot.synced`` are listed
    at least once, no others.
    """
    wanted, detours = objects_of(snapshot), objects_of(draw(snapshots()))
    pending = [list(draw(_history(kind, wanted[kind], detours[kind], kind in snapshot.synced))) for kind in Kind]
    told: list[Change] = []
    while any(pending):
        told.append(draw(st.sampled_from([history for history in pending if history])).pop(0))
    return tuple(told)


@st.composite
def _history(
    draw: st.DrawFn,
    kind: Kind,
    wanted: Mapping[ObjectName, WatchedObject],
    detours: Mapping[ObjectName, WatchedObject],
    listed: bool,
) -> list[Change]:
    """Events of one kind: a few that may be wrong, those that correct what is left of them, then some once more."""
    seen: dict[ObjectName, WatchedObject] = {}
    told: list[Change] = []

    def tell(change: Change) -> None:
        told.append(change)
        match change:
            case Replaced(objects=objects):
                seen.clear()
                seen.update((_name_of(made), made) for made in objects)
            case Upserted(object=made):
                seen[_name_of(made)] = made
            case Deleted(name=name):
                seen.pop(name, None)

    pool = [*wanted.items(), *detours.items()]
    for way in draw(st.lists(pick(("upsert", "delete", "list")), max_size=4)) if pool else ():
        if way == "list" and listed:
            versions = draw(st.lists(st.sampled_from(pool), max_size=4))
            tell(Replaced(kind=kind, objects=tuple(dict(versions).values())))
        else:
            name, made = draw(st.sampled_from(pool))
            tell(Upserted(object=made) if way == "upsert" else Deleted(kind=kind, name=name))
    if listed and (draw(st.booleans()) or not any(isinstance(change, Replaced) for change in told)):
        tell(Replaced(kind=kind, objects=tuple(draw(st.permutations(list(wanted.values()))))))
    corrections: list[Change] = [Upserted(object=made) for name, made in wanted.items() if seen.get(name) != made]
    corrections += [Deleted(kind=kind, name=name) for name in seen if name not in wanted]
    for change in draw(st.permutations(corrections)):
        tell(change)
    for name in draw(some(tuple(wanted), 2)) if wanted else ():
        tell(Upserted(object=wanted[name]))
    return told


def _name_of(made: WatchedObject) -> ObjectName:
    return made.name if isinstance(made.name, ObjectName) else ObjectName("", made.name)
