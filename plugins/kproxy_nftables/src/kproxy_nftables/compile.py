"""Renders Service ports into set elements.

A Service port has one id, and its frontends point to it. Its endpoints are numbered in slots under that id, the cluster's set
and the local set in maps of their own. A frontend's action says how many slots there are, which set is meant and what else to
do. So one endpoint more is one element more and another action for each frontend, whatever else is in the cluster.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import field, frozen

from kproxy_core.model.addresses import Family, Network, collapse
from kproxy_core.model.state import (
    Disposition,
    Drop,
    EndpointScope,
    Forward,
    FrontendKind,
    FrontendRule,
    Masquerade,
    NodeContext,
    Reject,
    ServicePort,
)
from kproxy_core.plugin.errors import ContractError
from kproxy_core.program.program import Fragment
from kproxy_core.program.slots import assign_slots, repetitions
from kproxy_nftables import sets
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
    number_pair,
    owner_text,
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


@frozen
class _Draft:
    """A fragment in the making."""

    port: ServicePort
    node: NodeContext
    id: int
    own: dict[Key, Value] = field(factory=dict)
    shared: dict[Key, Value] = field(factory=dict)
    counts: dict[EndpointScope, int] = field(factory=dict)


def compile_port(
    port: ServicePort, node: NodeContext, previous: Fragment[Key, Value] | None, fresh_id: int
) -> Fragment[Key, Value]:
    """Render one Service port; see ``Backend.compile``."""
    identity = previous.id if previous is not None and previous.id else fresh_id
    before: Mapping[Key, Value] = previous.own if previous is not None else {}
    draft = _Draft(port, node, identity)
    for scope in _scopes(port):
        wanted = _slots_of(port, scope)
        draft.counts[scope] = len(wanted)
        if port.affinity_timeout is None:
            _number_endpoints(draft, scope, wanted, before)
        else:
            _number_sticky(draft, scope, wanted, before)
    for rule in port.rules:
        _frontend(draft, rule)
    _source_ranges(draft)
    _hairpin(draft)
    return Fragment(id=identity, own=draft.own, shared=draft.shared)


# -- endpoints


def _scopes(port: ServicePort) -> list[EndpointScope]:
    """Return the endpoint sets that some frontend uses."""
    used = {
        disposition.scope
        for rule in port.rules
        for disposition in (rule.from_local_pod, rule.from_node, rule.from_outside)
        if isinstance(disposition, Forward)
    }
    return [scope for scope in EndpointScope if scope in used]


def _slots_of(port: ServicePort, scope: EndpointScope) -> list[bytes]:
    """Return the packed endpoints of a scope, each as often as its weight wants."""
    endpoints = port.endpoints.of(scope)
    packed = [address_and_port(endpoint.address, endpoint.port) for endpoint in endpoints]
    weights = [endpoint.weight for endpoint in endpoints]
    if min(weights) != max(weights):
        packed = [data for data, count in zip(packed, repetitions(weights), strict=True) for _ in range(count)]
    return packed if port.affinity_timeout is None else packed[:MAX_STICKY_SLOTS]


def _number_endpoints(draft: _Draft, scope: EndpointScope, wanted: Sequence[bytes], before: Mapping[Key, Value]) -> None:
    place = _PLACES[draft.port.family][_SLOT_MAPS[scope][0]]
    slots = assign_slots(_slots_before(before, place, draft.id, len(wanted)), wanted) if before else wanted
    identity = draft.id
    own = draft.own
    for slot, data in enumerate(slots):
        own[place, number_pair(identity, slot)] = data


def _slots_before(before: Mapping[Key, Value], place: str, identity: int, size: int) -> dict[int, bytes]:
    """Return what the slots below ``size`` hold now; higher ones are let go in any case."""
    found = ((slot, before.get((place, number_pair(identity, slot)))) for slot in range(size))
    return {slot: data for slot, data in found if isinstance(data, bytes)}


def _number_sticky(draft: _Draft, scope: EndpointScope, wanted: Sequence[bytes], before: Mapping[Key, Value]) -> None:
    """Number endpoints twice: slots are picked from, sticky numbers are what clients are remembered by."""
    _, slot_map, endpoint_map = _SLOT_MAPS[scope]
    places = _PLACES[draft.port.family]
    sticky = _sticky_numbers(wanted)
    numbers = [number(sticky[data]) for data in wanted]
    slots = assign_slots(_slots_before(before, places[slot_map], draft.id, len(wanted)), numbers)
    for slot, data in enumerate(slots):
        draft.own[places[slot_map], number_pair(draft.id, slot)] = data
    for data, value in sticky.items():
        draft.own[places[endpoint_map], number_pair(draft.id, value)] = data


def _sticky_numbers(endpoints: Sequence[bytes]) -> dict[bytes, int]:
    """Give each endpoint a number that depends on itself (and hardly ever on others), so that it is the same after a restart."""
    numbers: dict[bytes, int] = {}
    taken: set[int] = set()
    for data in sorted(set(endpoints)):
        value = zlib.crc32(data)
        while value in taken:
            value = (value + 1) & 0xFFFFFFFF
        taken.add(value)
        numbers[data] = value
    return numbers


# -- frontends


def _frontend(draft: _Draft, rule: FrontendRule) -> None:
    port, frontend = draft.port, rule.frontend
    tail = protocol_and_port(port.name.protocol, frontend.port)
    if frontend.address is None:
        key, node_port = tail, True
        services, inside, outside = sets.NODE_PORT_SERVICES, sets.NODE_PORT_ACTIONS, sets.OUTSIDE_NODE_PORT_ACTIONS
    else:
        key, node_port = frontend.address + tail, False
        services, inside, outside = sets.SERVICES, sets.ACTIONS, sets.OUTSIDE_ACTIONS
    places = _PLACES[port.family]
    draft.own[places[services], key] = Owned(number(draft.id), owner_text(port.name))
    action, action_outside = _actions(draft, rule)
    draft.own[places[inside], key] = _use(draft, action, node_port)
    if action_outside is not None:
        draft.own[places[outside], key] = _use(draft, action_outside, node_port)
    if frontend.address is not None and frontend.kind is FrontendKind.CLUSTER_IP:
        draft.shared[places[sets.CLUSTER_IPS], bytes(frontend.address)] = b""


def _use(draft: _Draft, action: Action, node_port: bool) -> bytes:
    """Make sure that the action can be dispatched to, and return its packed number."""
    family, node = draft.port.family, draft.node
    dispatch = sets.NODE_PORT_DISPATCH if node_port else sets.DISPATCH
    packed = number(action_number(action))
    key = (_PLACES[family][dispatch], packed)
    if key not in draft.shared:
        draft.shared[key] = action_verdict(action, node_port)
        site = Site(family=family, node_port=node_port, detector=node.local_detector, masquerade_bit=node.masquerade_bit)
        chain = action_chain(action, site)
        if chain is not None:
            draft.shared[f"{FAMILY_NAMES[family]} chain", chain_name(action, node_port)] = chain
    return packed


def _actions(draft: _Draft, rule: FrontendRule) -> tuple[Action, Action | None]:
    """Return the action for everybody, and another one for outside traffic where that one is not right for it.

    Traffic from local pods and from the node goes to the same endpoints always; at most the masquerading differs, and the rules
    of an action can tell the two apart.
    """
    detected = detects(draft.port.family, draft.node.local_detector)
    # Where local pods cannot be told from others, they are outside traffic.
    pod = rule.from_local_pod if detected else rule.from_node
    general = _action(draft, rule, (pod, rule.from_node))
    if _serves_outside(general, rule.from_outside):
        return general, None
    return general, _action(draft, rule, (rule.from_outside, rule.from_outside))


def _action(draft: _Draft, rule: FrontendRule, dispositions: tuple[Disposition, Disposition]) -> Action:
    match dispositions:
        case Drop(), Drop():
            return Ending.DROP
        case Reject(), Reject():
            return Ending.REJECT_RESTRICTED if rule.restricted else Ending.REJECT
        case Forward(scope=scope, masquerade=of_pod), Forward(scope=same, masquerade=of_others) if scope is same:
            return Pick(
                count=draft.counts[scope],
                scope=scope,
                mark=_mark(draft, of_pod, of_others),
                restricted=rule.restricted,
                timeout=draft.port.affinity_timeout or 0,
            )
        case _:
            raise ContractError(f"{draft.port.key}: local pods and the node are to reach different endpoints at {rule.frontend}")


def _mark(draft: _Draft, of_pod: Masquerade, of_others: Masquerade) -> Mark:
    match of_pod, of_others:
        case Masquerade.HAIRPIN_ONLY, Masquerade.HAIRPIN_ONLY:
            return Mark.NEVER
        case Masquerade.HAIRPIN_ONLY, Masquerade.ALWAYS:
            return Mark.UNLESS_LOCAL_POD
        case Masquerade.ALWAYS, Masquerade.ALWAYS:
            return Mark.ALWAYS
        case _:
            raise ContractError(f"{draft.port.key}: only local pods are to be masqueraded")


def _serves_outside(general: Action, outside: Disposition) -> bool:
    match outside:
        case Drop():
            return general is Ending.DROP
        case Reject():
            return general in (Ending.REJECT, Ending.REJECT_RESTRICTED)
        case Forward(scope=scope, masquerade=masquerade):
            return (
                isinstance(general, Pick)
                and general.scope is scope
                and (general.mark is Mark.NEVER) == (masquerade is Masquerade.HAIRPIN_ONLY)
            )


# -- sources


def _source_ranges(draft: _Draft) -> None:
    port = draft.port
    if not any(rule.restricted for rule in port.rules):
        return
    place = _PLACES[port.family][sets.SOURCE_RANGES]
    identity = number(draft.id)
    for network in _collapsed(port.source_ranges, port.family):
        draft.own[place, identity + network.address + identity + network.last] = b""


def _collapsed(networks: tuple[Network, ...], family: Family) -> tuple[Network, ...]:
    """Return the ranges of one family without overlaps, which an interval set would refuse."""
    return collapse([network for network in networks if network.family is family])


def _hairpin(draft: _Draft) -> None:
    """Note each local endpoint: only those can be sent back to themselves through this node."""
    place = _PLACES[draft.port.family][sets.HAIRPIN]
    for scope in draft.counts:
        for endpoint in draft.port.endpoints.of(scope):
            if endpoint.local:
                draft.shared[place, endpoint.address + endpoint.address] = b""
