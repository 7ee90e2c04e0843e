"""Renders Service ports into set elements.

A Service port has one id, and its frontends point to it. Its endpoints are numbered in slots under that id, the cluster's set
and the local set in maps of their own. A frontend's action says how many slots there are, which set is meant and what else to
do. So one endpoint more is one element more and another action for each frontend, whatever else is in the cluster.
"""

import sys
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from attrs import frozen

from kproxy_core.model.addresses import Family, collapse
from kproxy_core.model.state import (
    Disposition,
    Drop,
    Endpoints,
    EndpointScope,
    Forward,
    FrontendKind,
    FrontendRule,
    LocalDetector,
    Masquerade,
    NodeContext,
    Reject,
    ServicePort,
)
from kproxy_core.plugin.errors import ContractError
from kproxy_core.program.program import Fragment
from kproxy_core.program.slots import MAX_WEIGHTED_SLOTS, assign_slots, repetitions
from kproxy_nftables import numbered, sets
from kproxy_nftables.actions import (
    MAX_STICKY_SLOTS,
    Action,
    Ending,
    Mark,
    Pick,
    Site,
    action_chain,
    action_number,
    action_verdict,
    chain_name,
)
from kproxy_nftables.objects import (
    FAMILY_NAMES,
    Key,
    Owned,
    Value,
    address_and_port,
    number,
    owner_text,
    packed_port,
    protocol_and_port,
)
from kproxy_nftables.registers import detects

_PLACES: Final = {
    family: {shape.name: f"{name} {shape.name}" for shape in sets.shapes(family).values()}
    for family, name in FAMILY_NAMES.items()
}
_SLOT_MAPS: Final = {
    EndpointScope.CLUSTER: (sets.ENDPOINTS, sets.STICKY_SLOTS, sets.STICKY_ENDPOINTS),
    EndpointScope.LOCAL: (sets.LOCAL_ENDPOINTS, sets.LOCAL_STICKY_SLOTS, sets.LOCAL_STICKY_ENDPOINTS),
}


_ADDRESS_MAPS: Final = (sets.SERVICES, sets.ACTIONS, sets.OUTSIDE_ACTIONS)
_NODE_PORT_MAPS: Final = (sets.NODE_PORT_SERVICES, sets.NODE_PORT_ACTIONS, sets.OUTSIDE_NODE_PORT_ACTIONS)

Objects = dict[Key, Value]


@frozen(cache_hash=True)
class _Terms:
    """All that the action of a frontend depends on. Few distinct ones occur, so what follows from them is remembered."""

    from_local_pod: Disposition
    from_node: Disposition
    from_outside: Disposition
    restricted: bool
    cluster: int
    local: int
    timeout: int
    site: Site


@frozen
class _Outcome:
    """Packed action numbers (for outside traffic only where another one is needed), and what must be there for them."""

    inside: bytes
    outside: bytes | None
    shared: Mapping[Key, Value]


def compile_port(
    port: ServicePort, node: NodeContext, previous: Fragment[Key, Value] | None, fresh_id: int
) -> Fragment[Key, Value]:
    """Render one Service port; see ``Backend.compile``."""
    identity = previous.id if previous is not None and previous.id else fresh_id
    before: Mapping[Key, Value] = previous.own if previous is not None else {}
    own: Objects = {}
    shared: Objects = {}
    counts = {EndpointScope.CLUSTER: 0, EndpointScope.LOCAL: 0}
    for scope in _scopes(port):
        wanted = _slots_of(port, scope)
        counts[scope] = len(wanted)
        if port.affinity_timeout is None:
            place = _PLACES[port.family][_SLOT_MAPS[scope][0]]
            own[place, number(identity)] = _in_slots(place, identity, wanted, before)
        else:
            own.update(_sticky(port, scope, identity, wanted, before))
        _hairpin(port, scope, node, shared)
    owned = Owned(number(identity), owner_text(port.name))
    for rule in port.rules:
        node_port = rule.frontend.address is None
        outcome = _outcome(_terms(port, rule, node, counts))
        own.update(_frontend(port, rule, owned, outcome))
        shared.update(outcome.shared)
        if rule.frontend.kind is FrontendKind.CLUSTER_IP and not node_port:
            shared[_PLACES[port.family][sets.CLUSTER_IPS], bytes(rule.frontend.address or b"")] = b""
    own.update(_source_ranges(port, identity))
    return Fragment(id=identity, own=own, shared=shared)


# -- endpoints


def _scopes(port: ServicePort) -> list[EndpointScope]:
    """Return the endpoint sets that some frontend uses."""
    used = {
        disposition.scope
        for rule in port.rules
        for disposition in (rule.from_local_pod, rule.from_node, rule.from_outside)
        if type(disposition) is Forward
    }
    return [scope for scope in _SLOT_MAPS if scope in used]


def without_traffic(port: ServicePort) -> int:
    """Return how many endpoints get no connections, because a sticky Service port has too many of them."""
    if port.affinity_timeout is None:
        return 0
    few = MAX_STICKY_SLOTS - MAX_WEIGHTED_SLOTS
    wanted = (_all_slots_of(port, scope) for scope in _scopes(port) if len(port.endpoints.of(scope)) > few)
    return max((len(set(slots)) - len(set(slots[:MAX_STICKY_SLOTS])) for slots in wanted), default=0)


def _slots_of(port: ServicePort, scope: EndpointScope) -> list[bytes]:
    """Return what is put into slots: not more than a sticky Service port may have."""
    slots = _all_slots_of(port, scope)
    return slots if port.affinity_timeout is None else slots[:MAX_STICKY_SLOTS]


def _all_slots_of(port: ServicePort, scope: EndpointScope) -> list[bytes]:
    """Return the packed endpoints of a scope, each as often as its weight wants."""
    endpoints = port.endpoints.of(scope)
    packed = _places(endpoints)
    if len({kind.weight for kind in endpoints.distinct_kinds}) > 1:
        weights = [kind.weight for kind in endpoints.kinds]
        packed = [data for data, count in zip(packed, repetitions(weights), strict=True) for _ in range(count)]
    return packed


def _places(endpoints: Endpoints) -> list[bytes]:
    ports = {kind.port for kind in endpoints.distinct_kinds}
    if len(ports) > 1:
        return [address_and_port(address, kind.port) for address, kind in endpoints.pairs()]
    port = packed_port(ports.pop())
    return [address + port for address in endpoints.addresses]


def _in_slots(place: str, identity: int, wanted: Sequence[bytes], before: Mapping[Key, Value]) -> bytes:
    """Put things into slots under the id: where they were if they were there."""
    found = before.get((place, number(identity)))
    if isinstance(found, bytes):
        previous = {int.from_bytes(slot, sys.byteorder): data for slot, data in numbered.unpack(place, found)}
        wanted = assign_slots(previous, wanted)
    return numbered.pack(list(zip(_slot_numbers(len(wanted)), wanted, strict=True)))


@lru_cache(maxsize=1024)
def _slot_numbers(size: int) -> tuple[bytes, ...]:
    return tuple(number(slot) for slot in range(size))


def _sticky(
    port: ServicePort, scope: EndpointScope, identity: int, wanted: Sequence[bytes], before: Mapping[Key, Value]
) -> Objects:
    """Number endpoints twice: slots are picked from, sticky numbers are what clients are remembered by."""
    _, slot_map, endpoint_map = _SLOT_MAPS[scope]
    places = _PLACES[port.family]
    numbers = _sticky_numbers(wanted, owner_text(port.name))
    packed_id = number(identity)
    return {
        (places[slot_map], packed_id): _in_slots(places[slot_map], identity, [number(numbers[data]) for data in wanted], before),
        (places[endpoint_map], packed_id): numbered.pack((number(value), data) for data, value in numbers.items()),
    }


def _sticky_numbers(endpoints: Sequence[bytes], owner: str) -> dict[bytes, int]:
    """Give each endpoint a number that depends on itself (and hardly ever on others), so that it is the same after a restart.

    It depends on the owner, too: clients are remembered by ids, and for longer than ids may be somebody's. Whoever has the id of
    a Service port that is gone must not take its clients for known.
    """
    numbers: dict[bytes, int] = {}
    taken: set[int] = set()
    seed = zlib.crc32(owner.encode())
    for data in sorted(set(endpoints)):
        value = zlib.crc32(data, seed)
        while value in taken:
            value = (value + 1) & 0xFFFFFFFF
        taken.add(value)
        numbers[data] = value
    return numbers


def _hairpin(port: ServicePort, scope: EndpointScope, node: NodeContext, shared: Objects) -> None:
    """Note who may be sent back to themselves through this node without being masqueraded anyway.

    These are the local endpoints, and those that nobody gave a node; all of them where no detector tells pods from strangers,
    whom it would have masqueraded. A pod of another node that a network range calls local does not come by this node.
    """
    place = _PLACES[port.family][sets.HAIRPIN]
    everybody = not detects(port.family, node.local_detector)
    endpoints = port.endpoints.of(scope)
    near = endpoints if everybody else endpoints.where(lambda endpoint: endpoint.local or endpoint.nodeless)
    shared.update(((place, address + address), b"") for address in near.addresses)


# -- frontends


def _frontend(port: ServicePort, rule: FrontendRule, owned: Owned, outcome: _Outcome) -> Objects:
    places = _PLACES[port.family]
    key = protocol_and_port(port.name.protocol, rule.frontend.port)
    names = _NODE_PORT_MAPS
    if rule.frontend.address is not None:
        key = rule.frontend.address + key
        names = _ADDRESS_MAPS
    services, inside, outside = names
    result: Objects = {(places[services], key): owned, (places[inside], key): outcome.inside}
    if outcome.outside is not None:
        result[places[outside], key] = outcome.outside
    return result


def _terms(port: ServicePort, rule: FrontendRule, node: NodeContext, counts: Mapping[EndpointScope, int]) -> _Terms:
    return _Terms(
        rule.from_local_pod,
        rule.from_node,
        rule.from_outside,
        rule.restricted,
        counts[EndpointScope.CLUSTER],
        counts[EndpointScope.LOCAL],
        port.affinity_timeout or 0,
        _site(port.family, rule.frontend.address is None, node.local_detector, node.masquerade_bit),
    )


@lru_cache(maxsize=64)
def _site(family: Family, node_port: bool, detector: LocalDetector, masquerade_bit: int) -> Site:
    return Site(family=family, node_port=node_port, detector=detector, masquerade_bit=masquerade_bit)


@lru_cache(maxsize=4096)
def _outcome(terms: _Terms) -> _Outcome:
    """Tell the action for everybody, and another one for outside traffic where that one is not right for it.

    Traffic from local pods and from the node goes to the same endpoints always; at most the masquerading differs, and the rules
    of an action can tell the two apart.
    """
    shared: Objects = {}
    # Where local pods cannot be told from others, they are outside traffic.
    pod = terms.from_local_pod if detects(terms.site.family, terms.site.detector) else terms.from_node
    inside = _action(terms, pod, terms.from_node)
    outside = None if _serves_outside(inside, terms.from_outside) else _action(terms, terms.from_outside, terms.from_outside)
    return _Outcome(_use(inside, terms.site, shared), None if outside is None else _use(outside, terms.site, shared), shared)


def _use(action: Action, site: Site, shared: Objects) -> bytes:
    """Make sure that the action can be dispatched to, and return its packed number."""
    packed = number(action_number(action))
    dispatch = sets.NODE_PORT_DISPATCH if site.node_port else sets.DISPATCH
    shared[_PLACES[site.family][dispatch], packed] = action_verdict(action, site.node_port)
    chain = action_chain(action, site)
    if chain is not None:
        shared[f"{FAMILY_NAMES[site.family]} chain", chain_name(action, site.node_port)] = chain
    return packed


def _action(terms: _Terms, of_pod: Disposition, of_others: Disposition) -> Action:
    match of_pod, of_others:
        case Drop(), Drop():
            return Ending.DROP
        case Reject(), Reject():
            return Ending.REJECT_RESTRICTED if terms.restricted else Ending.REJECT
        case Forward(scope=scope, masquerade=pod_masquerade), Forward(scope=same, masquerade=masquerade) if scope is same:
            return Pick(
                count=terms.cluster if scope is EndpointScope.CLUSTER else terms.local,
                scope=scope,
                mark=_mark(pod_masquerade, masquerade),
                restricted=terms.restricted,
                timeout=terms.timeout,
            )
        case _:
            raise ContractError("a frontend's dispositions send local pods and the node to different endpoints")


def _mark(of_pod: Masquerade, of_others: Masquerade) -> Mark:
    match of_pod, of_others:
        case Masquerade.HAIRPIN_ONLY, Masquerade.HAIRPIN_ONLY:
            return Mark.NEVER
        case Masquerade.HAIRPIN_ONLY, Masquerade.ALWAYS:
            return Mark.UNLESS_LOCAL_POD
        case Masquerade.ALWAYS, Masquerade.ALWAYS:
            return Mark.ALWAYS
        case _:
            raise ContractError("a frontend's dispositions masquerade local pods alone")


def _serves_outside(inside: Action, outside: Disposition) -> bool:
    match outside:
        case Drop():
            return inside is Ending.DROP
        case Reject():
            return inside in (Ending.REJECT, Ending.REJECT_RESTRICTED)
        case Forward(scope=scope, masquerade=masquerade):
            return (
                isinstance(inside, Pick)
                and inside.scope is scope
                and (inside.mark is Mark.NEVER) == (masquerade is Masquerade.HAIRPIN_ONLY)
            )


# -- sources


def _source_ranges(port: ServicePort, identity: int) -> Objects:
    if not any(rule.restricted for rule in port.rules):
        return {}
    place = _PLACES[port.family][sets.SOURCE_RANGES]
    prefix = number(identity)
    # Overlaps would be refused by an interval set.
    networks = collapse([network for network in port.source_ranges if network.family is port.family])
    return {(place, prefix + network.address + prefix + network.last): b"" for network in networks}
