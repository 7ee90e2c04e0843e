"""Faults that a mode may have whatever its mechanism: it renders something else than what was decided.

Each is planted in front of the mode's compiler, which gets a Service port, or a node, that is not the one it should be.
"""

from collections.abc import Callable

import msgspec
from attrs import evolve, frozen

from kproxy_core.model.addresses import Address, Family, Network
from kproxy_core.model.names import Protocol, ServicePortKey
from kproxy_core.model.state import (
    Disposition,
    Drop,
    Endpoint,
    EndpointScope,
    EndpointSets,
    Forward,
    Frontend,
    FrontendKind,
    FrontendRule,
    LocalByNetwork,
    LocalDetector,
    Masquerade,
    NodeContext,
    Reject,
    ServicePort,
)

PortFault = Callable[[ServicePort], ServicePort]
NodeFault = Callable[[NodeContext], NodeContext]


def _same_port(port: ServicePort) -> ServicePort:
    return port


def _same_node(node: NodeContext) -> NodeContext:
    return node


@frozen(kw_only=True)
class Fault:
    """A fault by name. ``port`` and ``node`` make what the compiler gets of what it should get.

    ``remembering`` makes the fault of a Service port anew for each process, which may keep what it has seen. ``shown_by`` are
    scenarios that show it, where no single packet's verdict does.
    """

    what: str
    port: PortFault = _same_port
    node: NodeFault = _same_node
    remembering: Callable[[], PortFault] | None = None
    shown_by: tuple[str, ...] = ()


# -- changes of one part


def _endpoints(change: Callable[[tuple[Endpoint, ...]], tuple[Endpoint, ...]]) -> PortFault:
    """Change both sets of endpoints, never to nothing."""

    def fault(port: ServicePort) -> ServicePort:
        sets = port.endpoints
        cluster, local = (change(tuple(these)) or these for these in (sets.cluster, sets.local))
        return evolve(port, endpoints=evolve(sets, cluster=cluster, local=local))

    return fault


def _rules(change: Callable[[FrontendRule], FrontendRule | None]) -> PortFault:
    """Change each rule, or leave it out."""

    def fault(port: ServicePort) -> ServicePort:
        return evolve(port, rules=tuple(rule for each in port.rules if (rule := change(each)) is not None))

    return fault


def _dispositions(change: Callable[[Disposition], Disposition]) -> PortFault:
    """Change what happens, whatever the origin."""
    return _rules(
        lambda rule: evolve(
            rule,
            from_local_pod=change(rule.from_local_pod),
            from_node=change(rule.from_node),
            from_outside=change(rule.from_outside),
        )
    )


def _frontends(change: Callable[[Frontend], Frontend | None]) -> PortFault:
    def changed(rule: FrontendRule) -> FrontendRule | None:
        frontend = change(rule.frontend)
        return None if frontend is None else evolve(rule, frontend=frontend)

    return _rules(changed)


def _without(kind: FrontendKind) -> PortFault:
    return _frontends(lambda frontend: None if frontend.kind is kind else frontend)


def _only(family: Family, fault: PortFault) -> PortFault:
    return lambda port: fault(port) if port.family is family else port


# -- dispositions


def _masquerade(wanted: Masquerade) -> Callable[[Disposition], Disposition]:
    return lambda each: evolve(each, masquerade=wanted) if isinstance(each, Forward) else each


def _scope(port: ServicePort, wanted: EndpointScope) -> ServicePort:
    if not port.endpoints.of(wanted):
        return port
    return _dispositions(lambda each: evolve(each, scope=wanted) if isinstance(each, Forward) else each)(port)


def _swapped(rule: FrontendRule) -> FrontendRule:
    return evolve(rule, from_outside=rule.from_local_pod, from_local_pod=rule.from_outside)


def _as_outside(rule: FrontendRule) -> FrontendRule:
    return evolve(rule, from_node=rule.from_outside, from_local_pod=rule.from_outside)


def _masquerade_for_pods_too(rule: FrontendRule) -> FrontendRule:
    return evolve(rule, from_local_pod=_masquerade(Masquerade.ALWAYS)(rule.from_local_pod))


# -- other parts


def _next_port(endpoint: Endpoint) -> Endpoint:
    return msgspec.structs.replace(endpoint, port=endpoint.port + 1)


def _draining_too(port: ServicePort) -> ServicePort:
    """Endpoints that terminate get connections while others are ready."""
    cluster = tuple(sorted({*port.endpoints.cluster, *port.serving}, key=lambda each: (each.address, each.port)))
    return evolve(port, endpoints=evolve(port.endpoints, cluster=cluster)) if port.endpoints.cluster else port


def _wider(network: Network) -> Network:
    """Twice as many addresses, the ones below or above."""
    if not network.length:
        return network
    bits = len(network.address) * 8
    host = bits - network.length + 1
    base = int.from_bytes(network.address, "big") >> host << host
    return Network(Address(base.to_bytes(bits // 8, "big")), network.length - 1)


def _stale() -> PortFault:
    """An endpoint that is gone is kept."""
    seen: dict[ServicePortKey, EndpointSets] = {}

    def fault(port: ServicePort) -> ServicePort:
        now, before = port.endpoints, seen.get(port.key, EndpointSets())
        cluster = tuple(sorted({*now.cluster, *before.cluster}, key=lambda each: (each.address, each.port)))
        seen[port.key] = evolve(now, cluster=cluster) if now.cluster else now
        return evolve(port, endpoints=seen[port.key])

    return fault


def _first_only() -> PortFault:
    """What a Service port was at first is what it stays."""
    seen: dict[ServicePortKey, ServicePort] = {}
    return lambda port: seen.setdefault(port.key, port)


def _everybody(node: NodeContext) -> LocalDetector:
    networks = (Network(Address(bytes(4)), 0), Network(Address(bytes(16)), 0))
    return LocalByNetwork(networks) if node.local_detector is not None else None


_ALWAYS, _HAIRPIN_ONLY = Masquerade.ALWAYS, Masquerade.HAIRPIN_ONLY

CATALOGUE: tuple[Fault, ...] = (
    # Endpoints.
    Fault(what="the last endpoint is left out", port=_endpoints(lambda these: these[:-1]), shown_by=("spread", "matrix-ready")),
    Fault(what="an endpoint's port is the next one", port=_endpoints(lambda these: tuple(map(_next_port, these)))),
    Fault(what="endpoints that terminate get connections all the same", port=_draining_too),
    Fault(what="an endpoint that is gone is kept", remembering=_stale, shown_by=("endpoints-come-and-go", "udp-endpoint-gone")),
    Fault(what="changes of a Service are not seen", remembering=_first_only, shown_by=("policies-change", "frontends-change")),
    Fault(
        what="weights do not count",
        port=_endpoints(lambda these: tuple(msgspec.structs.replace(each, weight=1) for each in these)),
        shown_by=("weights",),
    ),
    # Who goes where.
    Fault(what="policy Local is taken for Cluster", port=lambda port: _scope(port, EndpointScope.CLUSTER)),
    Fault(what="policy Cluster is taken for Local", port=lambda port: _scope(port, EndpointScope.LOCAL)),
    Fault(what="local pods and the outside are mixed up", port=_rules(_swapped)),
    Fault(what="pods and the node are held to policy Local", port=_rules(_as_outside)),
    Fault(what="refused is dropped", port=_dispositions(lambda each: Drop() if isinstance(each, Reject) else each)),
    Fault(what="dropped is refused", port=_dispositions(lambda each: Reject() if isinstance(each, Drop) else each)),
    # Whom the endpoint sees.
    Fault(what="nobody is masqueraded", port=_dispositions(_masquerade(_HAIRPIN_ONLY))),
    Fault(what="everybody is masqueraded", port=_dispositions(_masquerade(_ALWAYS))),
    Fault(what="local pods are masqueraded", port=_rules(_masquerade_for_pods_too)),
    Fault(what="nobody is masqueraded over IPv6", port=_only(Family.IPV6, _dispositions(_masquerade(_HAIRPIN_ONLY)))),
    Fault(what="local pods are not told from others", node=lambda node: evolve(node, local_detector=None)),
    Fault(what="everybody is a local pod", node=lambda node: evolve(node, local_detector=_everybody(node))),
    # Frontends.
    Fault(what="a frontend's port is the next one", port=_frontends(lambda each: evolve(each, port=each.port + 1))),
    Fault(what="external addresses are not served", port=_without(FrontendKind.EXTERNAL_IP)),
    Fault(what="addresses of load balancers are not served", port=_without(FrontendKind.LOAD_BALANCER)),
    Fault(what="NodePorts are not served", port=_without(FrontendKind.NODE_PORT)),
    Fault(what="cluster addresses are not served over IPv6", port=_only(Family.IPV6, _without(FrontendKind.CLUSTER_IP))),
    Fault(
        what="UDP is not served",
        port=lambda port: evolve(port, rules=()) if port.name.protocol is Protocol.UDP else port,
    ),
    Fault(what="NodePorts answer on every address", node=lambda node: evolve(node, node_port_any=True)),
    Fault(
        what="NodePorts answer over IPv4 only",
        node=lambda node: evolve(
            node,
            node_port_addresses=tuple(each for each in node.node_port_addresses if each.family is Family.IPV4),
        ),
    ),
    Fault(what="cluster addresses that nobody has are let go", node=lambda node: evolve(node, service_cidrs=())),
    # Source ranges and affinity.
    Fault(what="source ranges do not count", port=_rules(lambda rule: evolve(rule, restricted=False))),
    Fault(
        what="source ranges are twice as wide",
        port=lambda port: evolve(port, source_ranges=tuple(map(_wider, port.source_ranges))),
    ),
    Fault(
        what="the first source range is left out",
        port=lambda port: evolve(port, source_ranges=port.source_ranges[1:] or port.source_ranges),
    ),
    Fault(
        what="clients are not remembered",
        port=lambda port: evolve(port, affinity_timeout=None),
        shown_by=("affinity", "affinity-local"),
    ),
    Fault(
        what="clients are remembered for too long",
        port=lambda port: evolve(port, affinity_timeout=None if port.affinity_timeout is None else 10800),
        shown_by=("affinity-timeout",),
    ),
)
"""All of them."""
