"""Renders Service ports into chains, rules of the dispatch tree, and elements of sets.

A Service port has a chain for each endpoint set that is used, with one rule for each endpoint. Its frontends lead there, cluster
addresses straight from the tree. So one endpoint more is one chain written anew, whatever else is in the cluster.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from kproxy_core.model.addresses import collapse
from kproxy_core.model.names import ServicePortName
from kproxy_core.model.state import (
    Drop,
    Endpoint,
    EndpointScope,
    Forward,
    FrontendKind,
    FrontendRule,
    NodeContext,
    Reject,
    ServicePort,
)
from kproxy_core.program.program import Fragment
from kproxy_iptables import sets, tree
from kproxy_iptables.objects import (
    ENDPOINT_CHAIN,
    FRONTEND_CHAIN,
    LOCAL_CHAIN,
    SERVICE_CHAIN,
    VERSIONS,
    Key,
    Value,
    comment,
    endpoint_text,
    hashed,
    protocol_word,
)
from kproxy_iptables.origins import joined, local_pod_matches
from kproxy_iptables.ways import STOP, Leading, Way, way

Objects = dict[Key, Value]

_CHAINS = {EndpointScope.CLUSTER: SERVICE_CHAIN, EndpointScope.LOCAL: LOCAL_CHAIN}
_PRECISION = 1 << 31
"""The kernel compares 31 random bits with the probability of a rule (linux/netfilter/xt_statistic.h)."""


def compile_port(port: ServicePort, node: NodeContext) -> Fragment[Key, Value]:
    """Render one Service port; see ``Backend.compile``. It needs no id: names tell whose a thing is."""
    own: Objects = {}
    shared: Objects = {}
    place = f"{VERSIONS[port.family]} nat chain"
    picking = {scope: hashed(prefix, str(port.name)) for scope, prefix in _CHAINS.items()}
    for scope in _scopes(port):
        endpoints = _weighted(port.endpoints.of(scope))
        if port.affinity_timeout is None:
            own[place, picking[scope]] = tuple(_picks(port.name, endpoints))
        else:
            own[place, picking[scope]] = tuple(_sticky_picks(port, endpoints, own))
        _hairpin(port, scope, node, shared)
    for rule in port.rules:
        found = way(rule, node, port.family)
        _lead_to(port, rule, _target(port.name, found, picking, own, place), own, shared)
        _refuse(port, rule, own)
        _admit_itself(port, rule, own)
        if rule.frontend.kind is FrontendKind.CLUSTER_IP and rule.frontend.address is not None:
            shared[sets.set_name(port.family, sets.CLUSTER_IPS), bytes(rule.frontend.address)] = b""
        if rule.restricted:
            _restrict(port, rule, own)
    return Fragment(own=own, shared=shared)


# -- endpoints


def _scopes(port: ServicePort) -> list[EndpointScope]:
    """Return the endpoint sets that some frontend uses."""
    used = {
        disposition.scope
        for rule in port.rules
        for disposition in (rule.from_local_pod, rule.from_node, rule.from_outside)
        if type(disposition) is Forward
    }
    return [scope for scope in _CHAINS if scope in used]


def _weighted(endpoints: Sequence[Endpoint]) -> list[tuple[Endpoint, str]]:
    """Return the endpoints that take connections, each with the match by which one rule after the other picks it."""
    taking = [endpoint for endpoint in endpoints if endpoint.weight]
    left = sum(endpoint.weight for endpoint in taking)
    result: list[tuple[Endpoint, str]] = []
    for endpoint in taking:
        result.append((endpoint, _chance(endpoint.weight, left)))
        left -= endpoint.weight
    return result


@lru_cache(maxsize=4096)
def _chance(weight: int, left: int) -> str:
    """The match of a share of what is left, as iptables-save prints what the kernel keeps of it; empty for all of it."""
    if weight == left:
        return ""
    share = round(_PRECISION * weight / left) / _PRECISION
    return f"-m statistic --mode random --probability {share:.11f}"


def _picks(name: ServicePortName, endpoints: Sequence[tuple[Endpoint, str]]) -> Iterator[str]:
    match = f"-p {protocol_word(name.protocol)}"
    first = f"{match} {comment(name)}"
    for endpoint, chance in endpoints:
        yield f"{joined(first, chance)} -j DNAT --to-destination {endpoint_text(endpoint.address, endpoint.port)}"
        first = match


def _sticky_picks(port: ServicePort, endpoints: Sequence[tuple[Endpoint, str]], own: Objects) -> Iterator[str]:
    """Lead clients that an endpoint remembers there, then all others to some endpoint, which remembers them from now on."""
    place = f"{VERSIONS[port.family]} nat chain"
    named = comment(port.name)
    chains: list[tuple[str, str]] = []
    for endpoint, _ in endpoints:
        target = endpoint_text(endpoint.address, endpoint.port)
        chain = hashed(ENDPOINT_CHAIN, f"{port.name} {target}")
        clients = sets.clients_of(port.family, str(port.name), target)
        own[sets.place(port.family), clients.name] = clients
        own[place, chain] = (
            f"{named} -j SET --add-set {clients.name} src --exist --timeout {port.affinity_timeout}",
            f"-p {protocol_word(port.name.protocol)} -j DNAT --to-destination {target}",
        )
        chains.append((chain, clients.name))
    for chain, clients_name in chains:
        yield joined(f"-m set --match-set {clients_name} src", named, f"-j {chain}")
        named = ""
    for (chain, _), (_, chance) in zip(chains, endpoints, strict=True):
        yield joined(chance, f"-j {chain}")


def _hairpin(port: ServicePort, scope: EndpointScope, node: NodeContext, shared: Objects) -> None:
    """Note who may be sent back to themselves through this node without being masqueraded anyway.

    These are the local endpoints, and those that nobody gave a node; all of them where no detector tells pods from strangers,
    whom it would have masqueraded. A pod of another node that a network range calls local does not come by this node.
    """
    name = sets.set_name(port.family, sets.HAIRPIN)
    everybody = not local_pod_matches(port.family, node.local_detector)
    for endpoint in port.endpoints.of(scope):
        if endpoint.local or endpoint.nodeless or everybody:
            key = sets.frontend_key(endpoint.address, port.name.protocol, endpoint.port)
            shared[name, key + endpoint.address] = b""


# -- frontends


def _target(name: ServicePortName, found: Way, picking: Mapping[EndpointScope, str], own: Objects, place: str) -> str:
    """The end of the rule in the tree; adds the chain that it leads to, if that is one for frontends alone."""
    if found is None:
        return f"{comment(name)} {STOP}"
    if isinstance(found, EndpointScope):
        return f"-j {picking[found]}"
    rules = [joined(rule.match, f"-j {picking[rule.scope]}") if isinstance(rule, Leading) else rule for rule in found]
    chain = hashed(FRONTEND_CHAIN, "\n".join((str(name), *rules)))
    match, _, target = rules[0].rpartition("-j ")
    own[place, chain] = (joined(match.rstrip(), comment(name), f"-j {target}"), *rules[1:])
    return f"-j {chain}"


def _lead_to(port: ServicePort, rule: FrontendRule, target: str, own: Objects, shared: Objects) -> None:
    address = rule.frontend.address
    if address is None:
        text, branches = tree.node_port_rule(port.family, port.name.protocol, rule.frontend.port)
    else:
        text, branches = tree.address_rule(port.family, address, port.name.protocol, rule.frontend.port)
    own[f"{VERSIONS[port.family]} nat rule", text] = target
    shared.update(branches)


def _refuse(port: ServicePort, rule: FrontendRule, own: Objects) -> None:
    """Have the filter table refuse or drop whoever is not forwarded."""
    dispositions = (rule.from_local_pod, rule.from_node, rule.from_outside)
    rejects = any(isinstance(each, Reject) for each in dispositions)
    if not rejects and not any(isinstance(each, Drop) for each in dispositions):
        return
    address, protocol = rule.frontend.address, port.name.protocol
    if address is None:
        name = sets.set_name(port.family, sets.NODE_PORT_REJECT if rejects else sets.NODE_PORT_DROP)
        for key in sets.node_port_keys(port.family, protocol, rule.frontend.port):
            own[name, key] = b""
    else:
        name = sets.set_name(port.family, sets.REJECT if rejects else sets.DROP)
        own[name, sets.frontend_key(address, protocol, rule.frontend.port)] = b""


def _admit_itself(port: ServicePort, rule: FrontendRule, own: Objects) -> None:
    """Note a frontend that may be translated to itself, lest it be refused or dropped for those who are forwarded."""
    forwards = any(isinstance(each, Forward) for each in (rule.from_local_pod, rule.from_node, rule.from_outside))
    address, number = rule.frontend.address, rule.frontend.port
    name = sets.set_name(port.family, sets.NODE_PORT_SELF if address is None else sets.SELF)
    for endpoint in port.endpoints.reachable if forwards else ():
        if endpoint.port == number and address in (None, endpoint.address):
            own[name, sets.frontend_key(endpoint.address, port.name.protocol, number)] = b""


def _restrict(port: ServicePort, rule: FrontendRule, own: Objects) -> None:
    if rule.frontend.address is None:
        return
    frontend = sets.frontend_key(rule.frontend.address, port.name.protocol, rule.frontend.port)
    own[sets.set_name(port.family, sets.RESTRICTED), frontend] = b""
    sources = sets.set_name(port.family, sets.SOURCES)
    for network in collapse([network for network in port.source_ranges if network.family is port.family]):
        own[sources, sets.source_key(frontend, network.address, network.length)] = b""
