"""Plans by example: what a packet meets while a plan is half done."""

from attrs import evolve

from kproxy_core.config.settings import Settings
from kproxy_core.engine.changes import ChangeTracker
from kproxy_core.model.addresses import Address, Family, parse_address
from kproxy_core.model.changes import Replaced
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import EndpointSlice, Service, ServicePortSpec, SliceEndpoint, SlicePort
from kproxy_core.model.packet import Packet
from kproxy_core.model.snapshot import Kind
from kproxy_core.model.state import NodeState
from kproxy_core.program.delta import Delta
from kproxy_core.program.program import Program
from kproxy_core.wire.nfnetlink import Family as NetlinkFamily
from kproxy_core.wire.nft_constants import DataType, MessageKind
from kproxy_core.wire.nft_objects import Flowtable, NamedObject, Set
from kproxy_core.wire.nft_operations import Operation, delete
from kproxy_nftables.objects import TABLE, Chain, Key, Value
from kproxy_nftables.plan import phases, plan

from .on_paper import compiled, loaded, plan_between
from .paper_kernel import Tables, commit
from .paper_packets import Outcome, Passed, Rejected, Translated, always, committed_at, outcomes

NAME = ObjectName("shop", "web")
OLD, NEW = parse_address("10.96.0.10"), parse_address("10.96.0.11")
FIRST, SECOND, THIRD = map(parse_address, ("10.244.1.1", "10.244.1.2", "10.244.2.1"))
SERVICE = Service(name=NAME, cluster_ips=(OLD,), ports=(ServicePortSpec(port=80),))


def state(service: Service, *endpoints: Address) -> NodeState:
    """One Service with these endpoints."""
    found = tuple(SliceEndpoint(address=each) for each in endpoints)
    piece = EndpointSlice(name=NAME, service=NAME, family=Family.IPV4, endpoints=found, ports=(SlicePort(port=8080),))
    tracker = ChangeTracker(Settings())
    tracker.set_interface_addresses(())
    tracker.apply((Replaced(kind=Kind.SERVICE, objects=(service,)), Replaced(kind=Kind.ENDPOINT_SLICE, objects=(piece,))))
    return tracker.resolve().state


def halfway(before: NodeState, after: NodeState) -> tuple[Tables, list[Operation]]:
    """A kernel that holds the first state, and the plan to the second."""
    first = compiled(before)
    return loaded(first), plan_between(first, compiled(after, first))


def at(address: Address) -> Packet:
    """A packet from a client outside."""
    return Packet(source=parse_address("198.51.100.1"), destination=address, protocol=Protocol.TCP, port=80, interface="eth0")


def served_by(found: frozenset[Outcome]) -> frozenset[Address]:
    """The endpoints among outcomes."""
    return frozenset(each.address for each in found if isinstance(each, Translated))


def test_a_service_made_anew_under_its_name_gives_no_new_endpoint_to_clients_of_the_old_address() -> None:
    anew = evolve(SERVICE, cluster_ips=(NEW,))
    tables, plan = halfway(state(SERVICE, FIRST, SECOND), state(anew, FIRST, THIRD))
    rounds = phases(plan)
    assert len(rounds) == 4  # the old frontend shut, data and the new one, the old address, what is left of it
    for phase in rounds:
        after = commit(tables, phase)
        for look in range(10):
            found = outcomes(committed_at(tables, after, look), at(OLD))
            assert served_by(found) <= {FIRST, SECOND}
            assert all(isinstance(each, Translated | Passed | Rejected) for each in found)
        tables = after
    assert outcomes(always(tables), at(OLD)) == {Passed()}
    assert served_by(outcomes(always(tables), at(NEW))) == {FIRST, THIRD}


def test_an_address_that_goes_alone_takes_no_further_transaction() -> None:
    both = evolve(SERVICE, external_ips=(NEW,))
    _, plan = halfway(state(both, FIRST, SECOND), state(SERVICE, FIRST, SECOND))
    assert len(phases(plan)) == 2


def test_what_a_table_of_ours_never_has_goes_after_all_that_may_refer_to_it() -> None:
    family = NetlinkFamily.IPV4
    counter = NamedObject(family=family, table=TABLE, name="theirs", type=1)
    flowtable = Flowtable(family=family, table=TABLE, name="fast")
    foreign: dict[Key, Value] = {
        ("ip named object", "theirs 1"): counter,
        ("ip flowtable", "fast"): flowtable,
        ("ip chain", "theirs"): Chain(rules=()),
        ("ip set", "their-map"): Set(family=family, table=TABLE, name="their-map", key_type=DataType.MARK, key_length=4),
    }
    planned = plan(Program(common=foreign), Delta(removed=foreign))
    kinds = [operation.kind for operation in planned]
    assert sorted(kinds) == sorted(
        (MessageKind.DELRULE, MessageKind.DELSET, MessageKind.DELOBJ, MessageKind.DELFLOWTABLE, MessageKind.DELCHAIN)
    )
    for user in (MessageKind.DELRULE, MessageKind.DELSET):
        assert kinds.index(user) < min(kinds.index(MessageKind.DELOBJ), kinds.index(MessageKind.DELFLOWTABLE))
    assert [planned[kinds.index(delete(each).kind)].attributes for each in (counter, flowtable)] == [
        counter.encode_key(),
        flowtable.encode_key(),
    ]
