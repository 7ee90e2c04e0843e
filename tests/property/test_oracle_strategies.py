"""The strategies: their clusters are possible and varied, and the histories they draw end where they should."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy_core.model.changes import Change, Deleted, Replaced, Upserted, WatchedObject
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Node, Service
from kproxy_core.model.packet import Delivered
from kproxy_core.model.snapshot import ClusterSnapshot, Kind
from kproxy_core.testing.oracle import Scene, decide
from kproxy_core.testing.strategies import changes_leading_to, objects_of, packets, scenes, snapshots

Objects = dict[tuple[Kind, ObjectName], WatchedObject]


def kind_of(made: WatchedObject) -> Kind:
    match made:
        case Service():
            return Kind.SERVICE
        case EndpointSlice():
            return Kind.ENDPOINT_SLICE
        case Node():
            return Kind.NODE
        case _:
            return Kind.SERVICE_CIDR


def key_of(made: WatchedObject) -> tuple[Kind, ObjectName]:
    return kind_of(made), made.name if isinstance(made.name, ObjectName) else ObjectName("", made.name)


def after(changes: tuple[Change, ...]) -> tuple[Objects, set[Kind]]:
    """What there is after some changes, and which kinds were listed."""
    objects: Objects = {}
    listed: set[Kind] = set()
    for change in changes:
        match change:
            case Replaced(kind=kind):
                objects = {key: made for key, made in objects.items() if key[0] is not kind}
                objects |= {key_of(made): made for made in change.objects}
                listed.add(kind)
            case Upserted(object=made):
                objects[key_of(made)] = made
            case Deleted(kind=kind, name=name):
                objects.pop((kind, name), None)
    return objects, listed


@given(st.data())
def test_histories_end_in_the_snapshot(data: st.DataObject) -> None:
    snapshot = data.draw(snapshots())
    changes = data.draw(changes_leading_to(snapshot))
    objects, listed = after(changes)
    assert listed == snapshot.synced
    assert objects == {(kind, name): made for kind, named in objects_of(snapshot).items() for name, made in named.items()}
    for change in changes:
        if isinstance(change, Replaced):
            assert all(kind_of(made) is change.kind for made in change.objects)
            assert len({key_of(made) for made in change.objects}) == len(change.objects)


@given(snapshots())
def test_clusters_are_possible(snapshot: ClusterSnapshot) -> None:
    """What the API guarantees, everything indexed as ClusterSnapshot says."""
    for name, service in snapshot.services.items():
        assert service.name == name
        assert len({address.family for address in service.cluster_ips}) == len(service.cluster_ips)
        assert len({(port.name, port.protocol) for port in service.ports}) == len(service.ports)
    pieces = [piece for owned in snapshot.slices.values() for piece in owned.values()]
    assert len({piece.name for piece in pieces}) == len(pieces)
    for owner, owned in snapshot.slices.items():
        assert owned
        assert all(piece.service == owner and piece.name == name for name, piece in owned.items())
        assert all(name.namespace == owner.namespace for name in owned)


def test_every_kind_of_verdict_is_frequent() -> None:
    """Of packets to generated clusters, none of the four verdicts is rare, nor any way to be delivered."""
    seen: Counter[str] = Counter()

    @settings(max_examples=150)
    @given(st.data(), scenes())
    def look(data: st.DataObject, scene: Scene) -> None:
        for packet in data.draw(st.lists(packets(scene), min_size=10, max_size=10)):
            verdict = decide(scene, packet)
            seen[type(verdict).__name__] += 1
            if isinstance(verdict, Delivered):
                ways = sorted({target.masqueraded for target in verdict.targets})
                seen[" ".join(f"{'' if way else 'not '}masqueraded" for way in ways)] += 1

    look()
    total = seen["Delivered"] + seen["Refused"] + seen["Dropped"] + seen["Untouched"]
    assert total >= 1000
    rare = {what: count for what, count in seen.items() if count < total / 100}
    assert set(rare) <= {"not masqueraded masqueraded"}, seen
    assert len(seen) == 7, seen
