"""Programs on paper: a cluster's state compiled, committed to a paper kernel, and read off it again."""

from collections.abc import Iterable, Iterator

from kproxy_core.engine.compile import compile_ports
from kproxy_core.model.addresses import Family
from kproxy_core.model.names import Protocol
from kproxy_core.model.packet import Delivered, Dropped, Packet, Refused, Verdict
from kproxy_core.model.state import NodeState
from kproxy_core.program.delta import diff_programs
from kproxy_core.program.program import Program, link
from kproxy_core.resolve.node import node_context
from kproxy_core.resolve.resolve import resolve
from kproxy_core.testing.oracle import Scene
from kproxy_core.wire.nft_constants import ICMP_PORT_UNREACHABLE, ICMPV6_PORT_UNREACHABLE, RejectType, SetFlag
from kproxy_core.wire.nft_data import Verdict as Leads
from kproxy_core.wire.nft_elements import Element
from kproxy_core.wire.nft_operations import Operation
from kproxy_nftables import numbered, sets
from kproxy_nftables.backend import NftablesBackend
from kproxy_nftables.objects import FAMILY_NAMES, Chain, Hook, Key, Owned, Rule, Value
from kproxy_nftables.plan import phases

from .paper_kernel import PaperTable, Tables, commit
from .paper_packets import Discarded, Outcome, Passed, Rejected, Translated

BACKEND = NftablesBackend()
Objects = dict[Key, Value]


def resolved(scene: Scene) -> NodeState:
    """What the core decides for a scene."""
    node = node_context(
        scene.snapshot, scene.site.addresses, scene.settings, node_ports_everywhere=scene.site.node_ports_everywhere
    )
    return resolve(scene.snapshot, node, scene.settings)


def compiled(state: NodeState, previous: Program[Key, Value] | None = None) -> Program[Key, Value]:
    """The program of a state, ids and slots as in a previous one."""
    before = previous or Program()
    made = compile_ports(BACKEND, state, state.ports, before.fragments, before.highest_id + 1)
    assert not made.broken, made.broken
    return link({port: fragment for port, fragment in made.updates.items() if fragment}, BACKEND.scaffold(state.node))


def plan_between(before: Program[Key, Value], after: Program[Key, Value]) -> list[Operation]:
    """What leads from one program to another."""
    return BACKEND.plan(before, diff_programs(before, after))


def applied(tables: Tables, plan: Iterable[Operation]) -> Tables:
    """The kernel after a plan, phase by phase."""
    for phase in phases(list(plan)):
        tables = commit(tables, phase)
    return tables


def loaded(program: Program[Key, Value]) -> Tables:
    """A kernel that holds a program."""
    return applied({}, plan_between(Program(), program))


def read(tables: Tables) -> Objects:
    """The objects in a kernel, as the dataplane would read them."""
    found: Objects = {}
    for number, table in tables.items():
        name = FAMILY_NAMES[Family(number)]
        found[name, "table"] = b""
        found.update(_chains(name, table))
        for each in table.sets.values():
            found[f"{name} set", each.shape.name] = each.shape
            place = f"{name} {each.shape.name}"
            if place in numbered.PLACES:
                pairs = ((element.key, bytes(element.data)) for element in each.elements.values())  # type: ignore[arg-type]
                found.update({(place, identity): packed for identity, packed in numbered.gathered(pairs).items()})
                continue
            for element in each.elements.values():
                key = element.key + (element.key_end or b"") if each.shape.flags & SetFlag.INTERVAL else element.key
                found[place, key] = _value(each.shape.name, element)
    return found


def _chains(name: str, table: PaperTable) -> Iterator[tuple[Key, Value]]:
    for each in table.chains.values():
        base = each.chain.base
        hook = None if base is None else Hook(number=base.hook, priority=base.priority, type=base.type, policy=base.policy)
        rules = tuple(Rule(expressions=expressions, comment=comment) for expressions, comment in each.rules)
        yield (f"{name} chain", each.chain.name), Chain(rules=rules, hook=hook)


def _value(set_name: str, element: Element) -> Value:
    if set_name in (sets.SERVICES, sets.NODE_PORT_SERVICES):
        assert isinstance(element.data, bytes)
        return Owned(element.data, element.comment or "")
    return element.data if isinstance(element.data, Leads) else element.data or b""


def meant(verdict: Verdict, packet: Packet) -> frozenset[Outcome]:
    """What packets on paper must show for a verdict."""
    match verdict:
        case Delivered(targets):
            return frozenset(Translated(target.address, target.port, target.masqueraded) for target in targets)
        case Dropped():
            return frozenset({Discarded()})
        case Refused() if packet.protocol is Protocol.TCP:
            return frozenset({Rejected(RejectType.TCP_RST, None)})
        case Refused():
            code = ICMP_PORT_UNREACHABLE if packet.destination.family is Family.IPV4 else ICMPV6_PORT_UNREACHABLE
            return frozenset({Rejected(RejectType.ICMP_UNREACH, code)})
        case _:
            return frozenset({Passed()})
