"""The laws of the ChangeTracker: incremental equals from scratch, order does not matter, and it tells exactly what differs."""

from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.config.settings import Settings
from kproxy_core.engine.changes import ChangeTracker, Resolution
from kproxy_core.model.addresses import Address, Family, parse_address, parse_network
from kproxy_core.model.changes import Change, Deleted, Replaced, Upserted, WatchedObject
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.flows import FrontendKey
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import (
    EndpointSlice,
    LoadBalancerIngress,
    Node,
    Service,
    ServiceCIDR,
    ServicePortSpec,
    ServiceType,
    SliceEndpoint,
    SlicePort,
    TrafficPolicy,
)
from kproxy_core.model.snapshot import NEEDED_BEFORE_FIRST_SYNC, Kind
from kproxy_core.model.state import NodeState
from kproxy_core.resolve.node import node_context
from kproxy_core.resolve.resolve import resolve, resolve_service

# Few names, addresses and ports, so that everything meets everything.
NAMES = [ObjectName("shop", "a"), ObjectName("shop", "b"), ObjectName("default", "kubernetes")]
SLICE_NAMES = [ObjectName(name.namespace, f"{name.name}-{n}") for name in NAMES for n in (1, 2)]
CLUSTER_IPS = list(map(parse_address, ["10.96.0.1", "10.96.0.2", "fd00:96::1"]))
EXTERNAL = list(map(parse_address, ["198.51.100.1", "192.0.2.1", "2001:db8::1", "127.0.0.1"]))
ENDPOINTS = list(map(parse_address, ["10.244.0.1", "10.244.0.2", "192.0.2.1"]))
INTERFACES = [
    (),
    tuple(map(parse_address, ["127.0.0.1", "192.0.2.1"])),
    tuple(map(parse_address, ["192.0.2.1", "2001:db8::1", "fe80::1"])),
]
PORT_NAMES = ["", "dns"]
SETTINGS = Settings(node_name="here", cluster_cidrs=(parse_network("10.244.0.0/16"),), protected_ports=frozenset({22}))

names = st.sampled_from(NAMES)


def some(values: list[Any], most: int = 2) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.sampled_from(values), max_size=most, unique=True).map(tuple)


port_specs = st.builds(
    ServicePortSpec,
    name=st.sampled_from(PORT_NAMES),
    protocol=st.sampled_from([Protocol.TCP, Protocol.UDP]),
    port=st.sampled_from([53, 22]),
    node_port=st.sampled_from([0, 30053, 53]),
)
services = st.builds(
    Service,
    name=names,
    created=st.sampled_from([1.0, 2.0]),
    type=st.sampled_from(list(ServiceType)),
    cluster_ips=some(CLUSTER_IPS).map(lambda found: tuple({a.family: a for a in found}.values())),
    external_ips=some(EXTERNAL),
    ingress=some([LoadBalancerIngress(address=a, proxied=p) for a in EXTERNAL for p in (False, True)]),
    ports=st.lists(port_specs, max_size=2, unique_by=lambda port: (port.name, port.protocol)).map(tuple),
    external_policy=st.sampled_from(list(TrafficPolicy)),
    internal_policy=st.sampled_from(list(TrafficPolicy)),
    source_ranges=st.sampled_from([None, (), (parse_network("192.0.2.0/24"),)]),
    health_check_node_port=st.sampled_from([0, 32000]),
    headless=st.booleans(),
    weights=st.sampled_from([{}, {"*": 0}]),
)
slices = st.builds(
    lambda name, owner, **given: EndpointSlice(name=name, service=ObjectName(name.namespace, owner.name), **given),
    name=st.sampled_from(SLICE_NAMES),
    owner=names,
    family=st.sampled_from(list(Family)),
    endpoints=st.lists(
        st.builds(
            SliceEndpoint,
            address=st.sampled_from(ENDPOINTS),
            ready=st.booleans(),
            terminating=st.booleans(),
            node_name=st.sampled_from(["here", "there"]),
        ),
        max_size=3,
    ).map(tuple),
    ports=st.just(tuple(SlicePort(name=name, protocol=p, port=53) for name in PORT_NAMES for p in (Protocol.TCP, Protocol.UDP))),
    trigger_time=st.sampled_from([None, 1.0, 2.0]),
)
nodes = st.builds(
    Node,
    name=st.sampled_from(["here", "there"]),
    internal_addresses=some(EXTERNAL[:3]),
    zone=st.sampled_from(["", "east"]),
)
cidrs = st.builds(
    ServiceCIDR, name=st.sampled_from(["one", "two"]), cidrs=some([parse_network("10.96.0.0/16"), parse_network("fd00:96::/112")])
)
BY_KIND: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.SERVICE: services,
    Kind.ENDPOINT_SLICE: slices,
    Kind.NODE: nodes,
    Kind.SERVICE_CIDR: cidrs,
}
OBJECTS = st.one_of(services, slices, services, slices, nodes, cidrs)


def told(subject: str) -> st.SearchStrategy[tuple[Diagnostic, ...]]:
    odd = [Diagnostic(severity=Severity.ERROR, subject=subject, message=f"odd {n}") for n in (1, 2)]
    return st.sampled_from([(), (), (odd[0],), tuple(odd)])


def name_of(watched: WatchedObject) -> ObjectName:
    return watched.name if isinstance(watched.name, ObjectName) else ObjectName("", watched.name)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    match draw(st.sampled_from(["put", "put", "put", "delete", "replace"])):
        case "put":
            new = draw(OBJECTS)
            return Upserted(object=new, diagnostics=draw(told(new.subject)))
        case "delete":
            kind = draw(st.sampled_from(list(Kind)))
            old = draw(BY_KIND[kind])
            return Deleted(kind=kind, name=name_of(old), diagnostics=draw(told(old.subject)))
        case _:
            kind = draw(st.sampled_from(list(Kind)))
            listed = draw(st.lists(BY_KIND[kind], max_size=3, unique_by=lambda found: str(found.name)))
            diagnostics = tuple(d for new in listed for d in draw(told(new.subject)))
            return Replaced(kind=kind, objects=tuple(listed), diagnostics=diagnostics)


@frozen
class Addresses:
    """The interfaces have these addresses now."""

    addresses: tuple[Address, ...]


@frozen
class Sync:
    """The engine resolves."""


steps = st.one_of(changes(), changes(), changes(), st.sampled_from(INTERFACES).map(Addresses), st.just(Sync()))


def from_scratch(tracker: ChangeTracker, interfaces: Iterable[Address]) -> NodeState:
    snapshot = tracker.snapshot()
    node = node_context(snapshot, interfaces, SETTINGS, node_ports_everywhere=False)
    return resolve(snapshot, node, SETTINGS)


def udp_frontends(state: NodeState) -> Iterator[FrontendKey]:
    for key, port in state.ports.items():
        if key.name.protocol is Protocol.UDP:
            for rule in port.rules:
                yield FrontendKey(key.family, rule.frontend.address, rule.frontend.port, Protocol.UDP)


def check(found: Resolution, before: NodeState | None) -> None:
    """What a resolution tells is what differs between the two states, no more and no less."""
    old, new = (before.ports if before else {}), found.state.ports
    assert found.dirty == {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    assert found.node_changed == (before is None or before.node != found.state.node)
    if before is not None:
        assert found.gone_frontends == set(udp_frontends(before)) - set(udp_frontends(found.state))


@given(st.lists(steps, max_size=30))
def test_incremental_equals_from_scratch_and_what_differs_is_told_exactly(script: list[Any]) -> None:
    tracker = ChangeTracker(SETTINGS, node_ports_everywhere=False)
    interfaces: tuple[Address, ...] = ()
    state: NodeState | None = None
    handed_out: list[tuple[NodeState, dict[Any, Any], dict[Any, Any]]] = []
    for step in [*script, Sync()]:
        match step:
            case Addresses(addresses):
                interfaces = addresses
                tracker.set_interface_addresses(addresses)
            case Sync():
                was_pending = tracker.pending
                found = tracker.resolve()
                assert found.state == from_scratch(tracker, interfaces)
                check(found, state)
                assert was_pending or (found.state is state and not found.dirty and not found.trigger_times)
                assert not tracker.pending
                state = found.state
                handed_out.append((state, dict(state.ports), dict(state.health)))
            case change:
                tracker.apply([change])
    assert all(state.ports == ports and state.health == health for state, ports, health in handed_out), "a state never changes"


@given(st.lists(OBJECTS, max_size=10, unique_by=lambda o: (type(o), str(o.name))), st.randoms(use_true_random=False), st.data())
def test_the_order_of_events_does_not_matter(objects: list[WatchedObject], random: Any, data: st.DataObject) -> None:
    states = []
    for _ in range(3):
        events = [Upserted(object=watched) for watched in objects]
        random.shuffle(events)
        tracker = ChangeTracker(SETTINGS)
        cut = data.draw(st.integers(0, len(events)))
        for batch in (events[:cut], events[cut:]):
            tracker.apply(batch)
            tracker.resolve()
        states.append(tracker.resolve().state)
    assert states[0] == states[1] == states[2]


@given(st.lists(changes(), max_size=12), st.integers(1, 12))
def test_batches_do_not_matter(script: list[Change], size: int) -> None:
    one_by_one, batched = ChangeTracker(SETTINGS), ChangeTracker(SETTINGS)
    matters = [one_by_one.apply([change]) for change in script]
    batches = [script[at : at + size] for at in range(0, len(script), size)]
    found = [batched.apply(batch) for batch in batches]
    assert found == [any(matters[at : at + size]) for at in range(0, len(script), size)]
    assert one_by_one.resolve() == batched.resolve()


@given(st.lists(changes(), max_size=12), changes())
def test_a_change_that_does_not_matter_changes_nothing(script: list[Change], last: Change) -> None:
    tracker = ChangeTracker(SETTINGS)
    tracker.apply(script)
    state = tracker.resolve().state
    if not tracker.apply([last]):
        assert tracker.resolve().state is state
    assert not tracker.apply([evolve(last)]), "the same again never matters"


@given(st.permutations(list(Kind)), st.sets(st.sampled_from(list(Kind))))
def test_a16_synced_once_every_needed_kind_was_listed(order: list[Kind], more: set[Kind]) -> None:
    needed = NEEDED_BEFORE_FIRST_SYNC | more
    tracker = ChangeTracker(SETTINGS, needed=needed)
    for number, kind in enumerate(order):
        assert tracker.synced == (needed <= set(order[:number]))
        tracker.apply([Replaced(kind=kind, objects=())])
    assert tracker.synced


def web(number: int) -> Service:
    return Service(
        name=ObjectName("shop", f"web-{number}"),
        cluster_ips=(parse_address(f"10.96.{number // 250}.{number % 250}"),),
        ports=(ServicePortSpec(port=80),),
    )


def web_slice(number: int, *hosts: int, trigger_time: float | None = None) -> EndpointSlice:
    name = ObjectName("shop", f"web-{number}")
    endpoints = tuple(SliceEndpoint(address=parse_address(f"10.244.0.{host}")) for host in hosts)
    ports = (SlicePort(port=80),)
    return EndpointSlice(name=name, service=name, family=Family.IPV4, endpoints=endpoints, ports=ports, trigger_time=trigger_time)


SIZE = 200


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[ObjectName]:
    """The names of the Services that were decided, one entry for each time."""
    names: list[ObjectName] = []

    def counting(service: Service, *rest: Any) -> Any:
        names.append(service.name)
        return resolve_service(service, *rest)

    monkeypatch.setattr("kproxy_core.engine.changes.resolve_service", counting)
    return names


@pytest.fixture
def tracker(decided: list[ObjectName]) -> ChangeTracker:
    """A tracker of many Services, resolved once."""
    made = ChangeTracker(SETTINGS)
    made.set_interface_addresses([parse_address("192.0.2.1")])
    made.apply(
        [
            Replaced(kind=Kind.SERVICE, objects=tuple(web(n) for n in range(SIZE))),
            Replaced(kind=Kind.ENDPOINT_SLICE, objects=tuple(web_slice(n, 1, 2, trigger_time=5.0) for n in range(SIZE))),
        ]
    )
    first = made.resolve()
    assert (len(decided), len(first.dirty), len(first.trigger_times)) == (SIZE, SIZE, SIZE)
    decided.clear()
    return made


def test_one_changed_slice_decides_one_service(tracker: ChangeTracker, decided: list[ObjectName]) -> None:
    assert tracker.apply([Upserted(object=web_slice(7, 1, 2, 3, trigger_time=9.0))])
    found = tracker.resolve()
    assert decided == [ObjectName("shop", "web-7")]
    assert [str(key) for key in found.dirty] == ["shop/web-7/TCP (IPv4)"]
    assert (found.trigger_times, found.node_changed) == ((9.0,), False)


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(Upserted(object=web_slice(7, 1, 2, trigger_time=5.0)), id="the same slice"),
        pytest.param(Upserted(object=web_slice(7, 1, 2, trigger_time=99.0)), id="only another trigger time"),
        pytest.param(Upserted(object=web(7)), id="the same Service"),
        pytest.param(Upserted(object=web_slice(SIZE + 1, 1)), id="a slice of nobody"),
        pytest.param(Upserted(object=evolve(web(SIZE + 2), headless=True)), id="a Service of no concern"),
        pytest.param(Upserted(object=Node(name="there")), id="another node"),
        pytest.param(Deleted(kind=Kind.SERVICE, name=ObjectName("shop", "unknown")), id="what was never there goes"),
        pytest.param(Replaced(kind=Kind.SERVICE, objects=tuple(web(n) for n in range(SIZE))), id="the same list"),
    ],
)
def test_a15_what_says_nothing_new_costs_nothing(again: Change, tracker: ChangeTracker, decided: list[ObjectName]) -> None:
    assert not tracker.apply([again])
    assert not tracker.pending
    found = tracker.resolve()
    assert (decided, found.dirty, found.trigger_times) == ([], frozenset(), ())


def test_a_slice_that_moves_to_another_service_decides_both(tracker: ChangeTracker, decided: list[ObjectName]) -> None:
    tracker.apply([Upserted(object=evolve(web_slice(7, 1, 2), service=ObjectName("shop", "web-8")))])
    found = tracker.resolve()
    assert sorted(name.name for name in decided) == ["web-7", "web-8"]
    # The endpoints are the same as those that web-8 has already.
    assert [key.name.name for key in found.dirty] == ["web-7"]


def test_only_rivals_of_a_changed_service_are_looked_at(tracker: ChangeTracker, decided: list[ObjectName]) -> None:
    rival = evolve(web(SIZE), cluster_ips=web(7).cluster_ips, created=1.0)
    tracker.apply([Upserted(object=rival)])
    found = tracker.resolve()
    assert decided == [rival.name]
    assert {key.name.name for key in found.dirty} == {"web-7", rival.name.name}
    tracker.apply([Deleted(kind=Kind.SERVICE, name=rival.name)])
    heir = tracker.resolve()
    assert decided == [rival.name]
    assert {key.name.name for key in heir.dirty} == {"web-7", rival.name.name}


def test_a_node_that_differs_for_the_scaffold_only_decides_no_service(tracker: ChangeTracker, decided: list[ObjectName]) -> None:
    tracker.apply([Upserted(object=ServiceCIDR(name="kubernetes", cidrs=(parse_network("10.96.0.0/12"),)))])
    found = tracker.resolve()
    assert (decided, found.dirty, found.node_changed) == ([], frozenset(), True)


def test_a_node_that_differs_for_services_decides_them_all(tracker: ChangeTracker, decided: list[ObjectName]) -> None:
    tracker.apply([Upserted(object=Node(name="here", zone="east"))])
    found = tracker.resolve()
    assert (len(decided), found.dirty, found.node_changed) == (SIZE, frozenset(), True)


def test_addresses_of_the_node_matter_only_when_they_differ(tracker: ChangeTracker) -> None:
    assert not tracker.set_interface_addresses([parse_address("192.0.2.1")])
    assert not tracker.set_interface_addresses([parse_address("192.0.2.1"), parse_address("fe80::7")]), "comes with a pod"
    assert tracker.set_interface_addresses([parse_address("192.0.2.2")])
    assert tracker.pending
    assert tracker.resolve().node_changed


def test_trigger_times_of_services_of_no_concern_do_not_count(tracker: ChangeTracker) -> None:
    tracker.apply([Upserted(object=web_slice(SIZE + 1, 1, trigger_time=8.0)), Upserted(object=web_slice(3, 1, trigger_time=9.0))])
    assert tracker.resolve().trigger_times == (9.0,)


def test_rivals_that_come_in_any_order_end_the_same() -> None:
    rivals = [evolve(web(n), cluster_ips=web(0).cluster_ips, created=age) for n, age in ((1, 3.0), (2, 1.0), (3, 2.0))]
    states = set()
    for order in permutations(rivals):
        tracker = ChangeTracker(SETTINGS)
        for service in order:
            tracker.apply([Upserted(object=service)])
            tracker.resolve()
        state = tracker.resolve().state
        states.add((state.diagnostics, frozenset((key, port.rules) for key, port in state.ports.items())))
    assert len(states) == 1
