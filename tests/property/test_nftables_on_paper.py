"""The nftables mode's rules on paper: what they do to packets at rest, when a plan is cut short, and in the midst of commits."""

from collections.abc import Collection, Iterable, Iterator

from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy_core.model.addresses import Address
from kproxy_core.model.names import ServicePortKey
from kproxy_core.model.packet import Packet, Refused
from kproxy_core.model.state import EndpointScope, LocalByNetwork, NodeState, ServicePort
from kproxy_core.program.program import Program, objects
from kproxy_core.testing.interpret import interpret
from kproxy_core.testing.oracle import Scene, decide
from kproxy_core.testing.strategies import packets, scenes, snapshots
from kproxy_core.wire.nft_operations import Operation
from kproxy_nftables.attribution import attribute
from kproxy_nftables.objects import Key, Value
from kproxy_nftables.plan import phases

from ..unit.nftables.on_paper import BACKEND, applied, compiled, loaded, meant, plan_between, read, resolved
from ..unit.nftables.paper_kernel import Tables, commit
from ..unit.nftables.paper_packets import Discarded, Outcome, Passed, Translated, always, committed_at, outcomes

HALF = max(1, settings().max_examples // 2)
FEW_PACKETS = 6
MOST_LOOKS = 14


def at_rest(tables: Tables, scene: Scene, packet: Packet) -> frozenset[Outcome]:
    return outcomes(always(tables), packet, frozenset(scene.site.addresses))


def comparable(found: frozenset[Outcome], state: NodeState, packet: Packet) -> frozenset[Outcome]:
    """Without what the mode does not promise: to masquerade another node's pod that comes back to itself by way of this node."""
    detector = state.node.local_detector
    by_network = isinstance(detector, LocalByNetwork) and any(packet.source in network for network in detector.networks)
    return frozenset(
        evolve(each, masqueraded=False) if by_network and isinstance(each, Translated) and each.address == packet.source else each
        for each in found
    )


@given(st.data(), scenes())
def test_the_rules_do_what_the_state_says(data: st.DataObject, scene: Scene) -> None:
    state = resolved(scene)
    tables = loaded(compiled(state))
    weighted = any(service.weights for service in scene.snapshot.services.values())
    for packet in data.draw(st.lists(packets(scene), min_size=1, max_size=20)):
        found = comparable(at_rest(tables, scene, packet), state, packet)
        for verdict in (interpret(state, packet, local_addresses=scene.site.addresses), decide(scene, packet)):
            wanted = comparable(meant(verdict, packet), state, packet)
            assert found, packet
            # Of differently weighted endpoints some may have no share.
            assert found <= wanted if weighted else found == wanted, packet


@st.composite
def two_scenes(draw: st.DrawFn) -> tuple[Scene, Scene]:
    """The same node before and after changes in the cluster, rarely with other settings, too."""
    first = draw(scenes())
    second = draw(scenes()) if draw(st.integers(0, 3)) == 0 else evolve(first, snapshot=draw(snapshots()))
    return first, second


@given(two_scenes())
def test_a_plan_leads_from_one_program_to_the_other(pair: tuple[Scene, Scene]) -> None:
    first = compiled(resolved(pair[0]))
    second = compiled(resolved(pair[1]), first)
    tables = loaded(first)
    assert read(tables) == objects(first)
    assert read(applied(tables, plan_between(first, second))) == objects(second)
    assert plan_between(second, second) == []


@given(two_scenes())
def test_what_is_read_back_is_attributed_to_its_owners(pair: tuple[Scene, Scene]) -> None:
    first = compiled(resolved(pair[0]))
    program = compiled(resolved(pair[1]), first)
    found = attribute(read(loaded(program)))
    assert objects(found) == objects(program)
    assert {port: (each.id, each.own) for port, each in found.fragments.items()} == {
        port: (each.id, each.own) for port, each in program.fragments.items() if each.own
    }
    assert BACKEND.canonical(found) == BACKEND.canonical(program)
    # Whoever starts from what was read makes the same again.
    assert objects(compiled(resolved(pair[1]), found)) == objects(program)


def cuts(tables: Tables, plan: list[Operation]) -> Iterator[Tables]:
    """Every state in which a kernel may be left when the plan was cut into transactions and one of them failed."""
    start = 0
    for index in range(1, len(plan) + 1):
        if index == len(plan) or plan[index].cut:
            tables = commit(tables, plan[start:index])
            start = index
            yield tables


def same_chains(first: Program[Key, Value], second: Program[Key, Value]) -> bool:
    """Whether packets begin in the same chains."""
    return all(second.common.get(key) == value for key, value in first.common.items() if key[1] in ("prerouting", "output"))


def lasting(first: Program[Key, Value], second: Program[Key, Value]) -> bool:
    """Whether no address changes hands, nor anything that all Services share."""
    before, after = objects(first), objects(second)
    owners = [{key: value for key, value in program.items() if key[0].endswith("services")} for program in (before, after)]
    return same_chains(first, second) and all(owners[1].get(key, owner) == owner for key, owner in owners[0].items())


def hairpinned(ways: frozenset[Outcome], packet: Packet) -> frozenset[Outcome]:
    """With hairpins masqueraded that need not have been: an endpoint's node may become known to be this one."""
    return ways | {evolve(e, masqueraded=True) for e in ways if isinstance(e, Translated) and e.address == packet.source}


def old_or_new(before: Tables, after: Tables, pair: tuple[Scene, Scene], packet: Packet) -> frozenset[Outcome]:
    """What becomes of a packet before and after; an address of the node may have come, or gone, before the rules follow."""
    old = frozenset[Outcome]().union(*(at_rest(before, scene, packet) for scene in pair))
    return hairpinned(old | at_rest(after, pair[1], packet), packet)


def places(found: Iterable[object]) -> frozenset[object]:
    """Outcomes without whose address is seen."""
    return frozenset((each.address, each.port) if isinstance(each, Translated) else each for each in found)


def endpoints(state: NodeState, packet: Packet, local: Collection[Address]) -> dict[ServicePortKey, frozenset[object]]:
    """The endpoints of the Service ports that a packet is for: more than one if a NodePort is also somebody's address."""
    return {
        key: all_endpoints(port)
        for key, port in state.ports.items()
        if key.family is packet.destination.family and key.name.protocol is packet.protocol
        for frontend in (rule.frontend for rule in port.rules)
        if frontend.port == packet.port
        and (packet.destination in local if frontend.address is None else frontend.address == packet.destination)
    }


def own(states: tuple[NodeState, NodeState], packet: Packet, local: Collection[Address], detected: bool) -> frozenset[object]:
    """The endpoints, old and new, of the Service ports that have a packet's frontend before and after: they are right meanwhile.

    Their policies may change, too; a packet is then treated by those of one time and may meet the endpoints of the other. A
    frontend that is somebody's at one time only is right with the endpoints of that time alone, and only where clients are
    ``detected`` in another way it may be needed at all: by the detection of the other time, that is.
    """
    before, after = (endpoints(state, packet, local) for state in states)
    if not (before and after):
        return frozenset[object]().union(*([*before.values(), *after.values()] if detected else ()))
    owners = [state.ports[key] for state in states for key in before.keys() | after.keys() if key in state.ports]
    return frozenset().union(*map(all_endpoints, owners))


def all_endpoints(port: ServicePort) -> frozenset[object]:
    return frozenset((each.address, each.port) for scope in EndpointScope for each in port.endpoints.of(scope))


@settings(max_examples=HALF)
@given(st.data(), two_scenes())
def test_wherever_a_plan_is_cut_packets_go_an_old_or_a_new_way(data: st.DataObject, pair: tuple[Scene, Scene]) -> None:
    states = resolved(pair[0]), resolved(pair[1])
    first = compiled(states[0])
    second = compiled(states[1], first)
    tables, plan = loaded(first), plan_between(first, second)
    drawn = data.draw(st.lists(st.one_of(*map(packets, pair)), min_size=1, max_size=FEW_PACKETS))
    # Where NodePorts are told in another way, new Services may answer on the old addresses for a moment.
    moving = frozenset() if same_chains(first, second) else frozenset(pair[1].site.addresses)
    asked = [packet for packet in drawn if packet.destination not in moving]
    after = applied(tables, plan)
    allowed = [old_or_new(tables, after, pair, packet) for packet in asked]
    # Where local pods are told in another way, too, who is masqueraded may be told in the new way with an old frontend.
    same = pair[0].settings == pair[1].settings and pair[0].site == pair[1].site and same_chains(first, second)
    for cut in cuts(tables, plan):
        for packet, ways in zip(asked, allowed, strict=True):
            found, right = at_rest(cut, pair[1], packet), _unserved(ways, packet)
            odd = found - right if same else places(found) - places(right)
            assert places(odd) <= own(states, packet, pair[1].site.addresses, not same), (packet, right)


@settings(max_examples=HALF)
@given(st.data(), two_scenes())
def test_a_packet_may_meet_a_commit_at_any_point_of_its_way(data: st.DataObject, pair: tuple[Scene, Scene]) -> None:
    first = compiled(resolved(pair[0]))
    second = compiled(resolved(pair[1]), first)
    if not lasting(first, second):
        return
    before, local = loaded(first), frozenset(pair[1].site.addresses)
    asked = data.draw(st.lists(packets(pair[0]), min_size=1, max_size=FEW_PACKETS))
    after = applied(before, plan_between(first, second))
    allowed = [old_or_new(before, after, pair, packet) for packet in asked]
    for phase in phases(plan_between(first, second)):
        after = commit(before, phase)
        for packet, ways in zip(asked, allowed, strict=True):
            for look in range(MOST_LOOKS):
                found = outcomes(committed_at(before, after, look), packet, local)
                assert not found - _unserved(ways, packet), (packet, look, ways)
        before = after


@settings(max_examples=HALF)
@given(st.data(), two_scenes())
def test_a_packet_that_meets_a_change_of_owners_goes_to_either_or_is_lost(data: st.DataObject, pair: tuple[Scene, Scene]) -> None:
    """It may have found the old action and then the new id: it is treated by the policies of one of them, and never passes."""
    states = resolved(pair[0]), resolved(pair[1])
    first = compiled(states[0])
    second = compiled(states[1], first)
    if lasting(first, second) or not same_chains(first, second):
        return
    before, local = loaded(first), frozenset(pair[1].site.addresses)
    asked = data.draw(st.lists(st.one_of(*map(packets, pair)), min_size=1, max_size=FEW_PACKETS))
    after = applied(before, plan_between(first, second))
    right = [
        places(_unserved(old_or_new(before, after, pair, packet), packet))
        | own(states, packet, local, detected=True)
        | {Discarded()}
        for packet in asked
    ]
    for phase in phases(plan_between(first, second)):
        after = commit(before, phase)
        for packet, ways in zip(asked, right, strict=True):
            for look in range(MOST_LOOKS):
                found = outcomes(committed_at(before, after, look), packet, local)
                assert places(found) <= ways, (packet, look, ways)
        before = after


def _unserved(ways: frozenset[Outcome], packet: Packet) -> frozenset[Outcome]:
    """Where a Service is about to appear or to vanish, nobody is served yet or any more, in whatever way."""
    if not ways & {Passed(), Discarded()}:
        return ways
    return ways | meant(Refused(), packet) | frozenset[Outcome]({Passed(), Discarded()})
