"""Several sources are one to the engine: lists are complete when all are, and nobody's list takes another's objects away."""

from collections.abc import Iterable, Sequence

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.config.settings import Settings
from kproxy_core.engine.changes import ChangeTracker
from kproxy_core.model.changes import Change, Deleted, Replaced, Upserted
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import Service
from kproxy_core.model.snapshot import Kind
from kproxy_core.runtime.merging import Merger
from kproxy_core.testing.sketch import NODE, gone, name_of, node, put, service, slice_of

SERVICES = frozenset({Kind.SERVICE})


@frozen(eq=False)
class Named:
    """A source as far as the merger looks at it."""

    name: str
    kinds: frozenset[Kind] = SERVICES

    def fileno(self) -> int:
        return -1

    def poll(self) -> tuple[Change, ...]:
        return ()

    def close(self) -> None:
        pass


OWN, MORE = Named("own"), Named("more")
A, B = service("shop/a", "10.96.0.1"), service("shop/b", "10.96.0.2")
OTHER_A = service("shop/a", "10.96.0.99")


def services(*objects: Service, told: tuple[Diagnostic, ...] = ()) -> Replaced:
    return Replaced(kind=Kind.SERVICE, objects=objects, diagnostics=told)


def complaint(text: str) -> Diagnostic:
    return Diagnostic(severity=Severity.WARNING, subject=f"Service {text}", message="is odd")


def merger() -> Merger:
    return Merger([OWN, MORE])


def test_a_kind_is_listed_when_all_have_listed_it() -> None:
    merged = merger()
    assert set(merged.awaited) == {"own", "more"}
    assert merged.merge(MORE, [services(B)]) == ()
    assert merged.merge(MORE, put(service("shop/c", "10.96.0.3"))) == ()
    assert list(merged.awaited) == ["own"]
    (whole,) = merged.merge(OWN, [services(A)])
    assert isinstance(whole, Replaced)
    assert [str(each.name) for each in whole.objects] == ["shop/a", "shop/b", "shop/c"]
    assert not merged.awaited


def test_what_only_one_delivers_waits_for_nobody() -> None:
    own = Named("own", frozenset({Kind.SERVICE, Kind.NODE}))
    merged = Merger([own, MORE])
    here = Replaced(kind=Kind.NODE, objects=(node("192.0.2.1"),))
    assert merged.merge(own, [here]) == (here,)
    assert merged.merge(own, put(node("192.0.2.2"))) == put(node("192.0.2.2"))


def test_a_new_list_takes_away_its_own_only() -> None:
    merged = merger()
    merged.merge(OWN, [services(A)])
    merged.merge(MORE, [services(B)])
    (whole,) = merged.merge(OWN, [services()])
    assert whole == services(B)


def test_the_first_source_counts_until_it_lets_go(caplog: pytest.LogCaptureFixture) -> None:
    merged = merger()
    merged.merge(OWN, [services(A)])
    assert merged.merge(MORE, [services(OTHER_A)]) == (services(A),)
    assert merged.merge(MORE, put(OTHER_A)) == put(A)
    assert merged.merge(OWN, gone(A)) == put(OTHER_A)
    assert merged.merge(OWN, put(A)) == put(A)
    assert merged.merge(MORE, gone(OTHER_A)) == put(A)
    assert merged.merge(OWN, gone(A)) == gone(A)
    clashes = [record.getMessage() for record in caplog.records]
    assert clashes == ["Service shop/a is delivered by several sources, the first of which counts: own, more"]


def test_what_the_decoder_told_goes_with_the_object() -> None:
    merged = merger()
    merged.merge(OWN, [services(A, told=(complaint("shop/a"), complaint("shop/z")))])
    (whole,) = merged.merge(MORE, [services(B, told=(complaint("shop/b"),))])
    assert isinstance(whole, Replaced)
    assert set(whole.diagnostics) == {complaint("shop/a"), complaint("shop/z"), complaint("shop/b")}
    told = evolve(complaint("shop/b"), message="is odder")
    assert merged.merge(MORE, [Upserted(object=B, diagnostics=(told,))]) == (Upserted(object=B, diagnostics=(told,)),)
    merged.merge(OWN, put(A))
    (whole,) = merged.merge(MORE, [services(B)])
    assert isinstance(whole, Replaced)
    assert whole.diagnostics == (complaint("shop/z"),)
    refused = Deleted(kind=Kind.SERVICE, name=name_of("shop/b"), diagnostics=(told,))
    assert merged.merge(MORE, [refused]) == (refused,)


def test_an_extension_that_is_late_is_done_without_and_the_own_source_is_not() -> None:
    merged = merger()
    assert merged.do_without() == ()
    assert merged.awaited == ("own",)
    assert merged.merge(OWN, [services(A)]) == (services(A),)
    assert merged.merge(MORE, [services(B)]) == (services(A, B),)
    late = merger()
    assert late.merge(OWN, [services(A)]) == ()
    assert late.do_without() == (services(A),)


def test_a_kind_that_a_source_does_not_name_is_not_waited_for_and_merged_all_the_same() -> None:
    own = Named("own", frozenset({Kind.SERVICE, Kind.ENDPOINT_SLICE}))
    merged = Merger([own, MORE])
    mine, theirs = slice_of("shop/a", "10.244.0.1"), slice_of("shop/b", "10.244.0.2")
    assert merged.merge(MORE, put(theirs)) == ()
    assert merged.merge(own, [Replaced(kind=Kind.ENDPOINT_SLICE, objects=(mine,))]) == (
        Replaced(kind=Kind.ENDPOINT_SLICE, objects=(mine, theirs)),
    )
    assert merged.merge(MORE, put(node("192.0.2.1"))) == put(node("192.0.2.1"))


NAMES = st.sampled_from(["shop/a", "shop/b", "shop/c"])
OBJECTS = st.builds(lambda name, last: service(name, f"10.96.0.{last}"), NAMES, st.integers(1, 3))
CHANGES = st.one_of(
    st.lists(OBJECTS, unique_by=lambda each: each.name).map(lambda objects: services(*objects)),
    OBJECTS.map(lambda each: Upserted(object=each)),
    NAMES.map(lambda name: Deleted(kind=Kind.SERVICE, name=name_of(name))),
)


def seen_alone(changes: Iterable[Change]) -> dict[ObjectName, Service]:
    tracker = ChangeTracker(Settings(node_name=NODE))
    tracker.apply(changes)
    return dict(tracker.snapshot().services)


@given(st.lists(st.tuples(st.sampled_from([OWN, MORE]), CHANGES)))
def test_the_whole_is_what_each_alone_has_told_whatever_the_order(history: Sequence[tuple[Named, Change]]) -> None:
    history = [(OWN, services()), (MORE, services()), *history]
    merged = merger()
    together = [change for source, step in history for change in merged.merge(source, [step])]
    own, more = (seen_alone(change for source, change in history if source is one) for one in (OWN, MORE))
    assert seen_alone(together) == {**more, **own}
