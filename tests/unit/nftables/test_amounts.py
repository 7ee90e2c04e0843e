"""How much is done for a change: the same few messages and elements in a small cluster and in a large one."""

from collections.abc import Iterable

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.engine.changes import ChangeTracker
from kproxy_core.engine.compile import compile_ports
from kproxy_core.model.addresses import Address, Family, parse_address, parse_network
from kproxy_core.model.changes import Change, Deleted, Replaced, Upserted
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Service, ServicePortSpec, ServiceType, SliceEndpoint, SlicePort
from kproxy_core.model.snapshot import Kind
from kproxy_core.program.delta import diff_ports, diff_programs
from kproxy_core.program.program import Program, link, replace
from kproxy_core.wire import nfnetlink
from kproxy_core.wire.nft_constants import MessageKind
from kproxy_core.wire.nft_elements import decode_elements
from kproxy_core.wire.nft_operations import Operation
from kproxy_nftables.backend import NftablesBackend
from kproxy_nftables.objects import Key, Value
from kproxy_nftables.plan import phases

BACKEND = NftablesBackend()
SETTINGS = Settings(node_name="n1", cluster_cidrs=(parse_network("10.128.0.0/9"),))
SIZES = (10, 1000, pytest.param(10_000, marks=pytest.mark.slow))
ENDPOINTS = 10
ELEMENTS = (MessageKind.NEWSETELEM, MessageKind.DELSETELEM)


def service(number: int) -> Service:
    return Service(
        name=ObjectName("ns", f"svc-{number}"),
        created=0.0,
        type=ServiceType.NODE_PORT,
        cluster_ips=(Address((0x0A600000 + number).to_bytes(4, "big")),),
        ports=(ServicePortSpec(port=80, node_port=30000 + number if number < 2000 else 0),),
    )


def piece(number: int, count: int = ENDPOINTS) -> EndpointSlice:
    first = 0x0A800000 + number * 100
    endpoints = tuple(SliceEndpoint(address=Address((first + i).to_bytes(4, "big")), node_name="n2") for i in range(count))
    name = ObjectName("ns", f"svc-{number}")
    return EndpointSlice(name=name, service=name, family=Family.IPV4, endpoints=endpoints, ports=(SlicePort(port=8080),))


class Cluster:
    """A cluster in which one thing changes after the other, and the program that follows it."""

    def __init__(self, size: int) -> None:
        self._tracker = ChangeTracker(SETTINGS)
        self._tracker.set_interface_addresses([parse_address("192.0.2.1")])
        self._program: Program[Key, Value] = Program()
        self._next_id = 1
        services = [service(number) for number in range(size)]
        slices = [piece(number) for number in range(size)]
        self.apply(
            Replaced(kind=Kind.SERVICE, objects=tuple(services)), Replaced(kind=Kind.ENDPOINT_SLICE, objects=tuple(slices))
        )

    def apply(self, *changes: Change) -> list[Operation]:
        """The plan that changes need."""
        self._tracker.apply(changes)
        resolution = self._tracker.resolve()
        before = self._program
        made = compile_ports(BACKEND, resolution.state, resolution.dirty, before.fragments, self._next_id)
        self._next_id = made.next_id
        if resolution.node_changed:
            fragments = {port: fragment for port, fragment in made.updates.items() if fragment}
            self._program = link(fragments, BACKEND.scaffold(resolution.state.node))
            return BACKEND.plan(before, diff_programs(before, self._program))
        self._program = replace(before, made.updates)
        return BACKEND.plan(before, diff_ports(before, self._program, resolution.dirty))


def amounts(plan: Iterable[Operation]) -> tuple[int, int, int]:
    """Messages, elements in them, and bytes."""
    operations = list(plan)
    elements = sum(
        len(decode_elements(nfnetlink.family_header(operation.family) + operation.attributes))
        for operation in operations
        if operation.kind in ELEMENTS
    )
    return len(operations), elements, sum(operation.size for operation in operations)


def changes_of_one(size: int) -> dict[str, tuple[tuple[int, int, int], int]]:
    """What each kind of change takes: amounts, and transactions."""
    cluster = Cluster(size)
    middle, fresh = size // 2, size
    steps: dict[str, tuple[Change, ...]] = {
        "nothing": (Upserted(object=piece(middle)),),
        "an endpoint more": (Upserted(object=piece(middle, ENDPOINTS + 1)),),
        "an endpoint less": (Upserted(object=piece(middle, ENDPOINTS)),),
        "a Service without endpoints": (Upserted(object=service(fresh)),),
        "its endpoints": (Upserted(object=piece(fresh)),),
        "all of them gone": (Upserted(object=piece(fresh, 0)),),
        "a Service gone": (Deleted(kind=Kind.SERVICE, name=service(fresh).name),),
    }
    found = {}
    for name, changes in steps.items():
        plan = cluster.apply(*changes)
        found[name] = amounts(plan), len(phases(plan))
    return found


SMALL = changes_of_one(7)


@pytest.mark.parametrize("size", SIZES)
def test_one_change_takes_the_same_whatever_the_size_of_the_cluster(size: int) -> None:
    # Names differ in length, NodePorts are not in every one: 1,999 Services have them.
    found = {name: (messages, elements, rounds) for name, ((messages, elements, _), rounds) in changes_of_one(size).items()}
    small = {name: (messages, elements, rounds) for name, ((messages, elements, _), rounds) in SMALL.items()}
    if size < 2000:
        assert found == small
    assert all(found[name] <= small[name] for name in small)


def test_one_endpoint_is_a_handful_of_elements() -> None:
    amount, rounds = SMALL["an endpoint more"]
    # One element, and for both frontends another action; the new actions' chains once.
    assert amount[1] <= 8
    assert rounds == 2  # the chains, then what leads to them
    assert SMALL["nothing"] == ((0, 0, 0), 0)


def test_where_such_an_action_is_known_it_is_less() -> None:
    cluster = Cluster(10)
    cluster.apply(Upserted(object=piece(1, ENDPOINTS + 1)))
    plan = cluster.apply(Upserted(object=piece(2, ENDPOINTS + 1)))
    # An endpoint added; two actions swapped, each deleted and added.
    assert amounts(plan)[:2] == (5, 5)
    assert len(phases(plan)) == 1
    less = cluster.apply(Upserted(object=piece(2, ENDPOINTS)))
    assert amounts(less)[:2] == (5, 5)
    assert len(phases(less)) == 2


@pytest.mark.parametrize("size", [10, 1000])
def test_chains_and_verdicts_are_few(size: int) -> None:
    cluster = Cluster(size)
    common = cluster._program.common
    chains = [key for key in common if key[0] == "ip chain"]
    dispatch = [key for key in common if key[0] in ("ip dispatch", "ip node-port-dispatch")]
    assert (len(chains), len(dispatch)) == (8, 2)
