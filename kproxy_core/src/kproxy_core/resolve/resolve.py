"""Resolves Services, one by one or all from scratch, into the state that a node must be in."""

from collections.abc import Iterable, Mapping
from typing import Final

from attrs import evolve, frozen

from kproxy_core.config.settings import Settings
from kproxy_core.model.addresses import Family
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.names import ObjectName, ServicePortKey, ServicePortName
from kproxy_core.model.objects import EndpointSlice, Service, ServicePortSpec, TrafficPolicy
from kproxy_core.model.packed import Packed
from kproxy_core.model.snapshot import ClusterSnapshot
from kproxy_core.model.state import Endpoints, EndpointSets, NodeContext, NodeState, ServiceHealth, ServicePort
from kproxy_core.resolve import dispositions
from kproxy_core.resolve.categorize import categorize, level_zero_weights
from kproxy_core.resolve.claims import ClaimBook, claims_of, overlaps, settle
from kproxy_core.resolve.endpointless import why_no_endpoints
from kproxy_core.resolve.frontends import Frontends, expand, families, is_proxied, load_balancer_addresses, stray_addresses
from kproxy_core.resolve.health import service_health
from kproxy_core.resolve.node import node_diagnostics
from kproxy_core.resolve.slices import join_slices
from kproxy_core.resolve.source_ranges import source_ranges

_NO_ENDPOINTS: Final[Endpoints] = Packed()

INTERNAL, EXTERNAL = "internal", "external"
"""The traffic policies, as the label of kube-proxy's metrics has them."""


@frozen(kw_only=True)
class ResolvedService:
    """One Service decided on its own: what it wants, before rival claims of other Services.

    ``without_local`` names, by policy, the ports that have endpoints, but none here, and a policy that asks for local ones.
    """

    name: ObjectName
    created: float = float("inf")
    ports: tuple[ServicePort, ...] = ()
    health: ServiceHealth | None = None
    without_local: frozenset[tuple[str, ServicePortKey]] = frozenset()
    diagnostics: tuple[Diagnostic, ...] = ()


def resolve_service(service: Service, slices: Iterable[EndpointSlice], node: NodeContext, settings: Settings) -> ResolvedService:
    """Decide one Service; ``slices`` are its EndpointSlices in any order. Pure; nothing for Services of no concern.

    Of ``node`` only what :func:`relevant` keeps is read, of ``settings`` only ``external_ips_allowed`` and ``protected_ports``.
    """
    if not is_proxied(service):
        return ResolvedService(name=service.name)
    diagnostics: list[Diagnostic] = []
    parts = tuple(slices)
    joined = join_slices(service, parts, node.name, diagnostics)
    diagnostics.extend(stray_addresses(service, settings))
    ports: list[ServicePort] = []
    without_local: list[tuple[str, ServicePortKey]] = []
    lacking: list[tuple[ServicePortSpec, Family]] = []
    for family in families(service):
        for spec in service.ports:
            frontends, refused = expand(service, spec, family, node, settings)
            diagnostics.extend(refused)
            endpoints = joined.get((family, spec.name, spec.protocol), _NO_ENDPOINTS)
            port = _service_port(_PortInput(service, spec, family, frontends, endpoints), node, diagnostics)
            ports.append(port)
            if not port.endpoints.any_in_cluster:
                lacking.append((spec, family))
            without_local.extend((policy, port.key) for policy in _lacking(service, frontends, port.endpoints))
    if lacking:
        diagnostics.extend(why_no_endpoints(service, parts, joined, lacking))
    return ResolvedService(
        name=service.name,
        created=service.created,
        ports=tuple(ports),
        health=service_health(service, joined),
        without_local=frozenset(without_local),
        diagnostics=tuple(sorted(set(diagnostics))) if diagnostics else (),
    )


@frozen
class _PortInput:
    service: Service
    spec: ServicePortSpec
    family: Family
    frontends: Frontends
    endpoints: Endpoints


def _service_port(given: _PortInput, node: NodeContext, diagnostics: list[Diagnostic]) -> ServicePort:
    service, family, frontends = given.service, given.family, given.frontends
    sets = _endpoint_sets(given, node, diagnostics)
    detects = dispositions.detects_local_pods(node, family)
    ranges = source_ranges(service, family, load_balancer_addresses(service, family), node.addresses)
    return ServicePort(
        name=ServicePortName(service.name.namespace, service.name.name, given.spec.name, given.spec.protocol),
        family=family,
        rules=dispositions.rules(
            frontends,
            dispositions.internal(service.internal_policy, sets, detects=detects, masquerade_all=node.masquerade_all),
            dispositions.external(service.external_policy, sets, detects=detects),
            restricted=ranges is not None,
        ),
        endpoints=sets,
        # A Service that publishes addresses which are not ready has endpoints that are ready without serving.
        serving=given.endpoints.where(lambda endpoint: endpoint.serving or endpoint.ready),
        affinity_timeout=service.affinity_timeout,
        source_ranges=ranges or () if frontends.load_balanced else (),
        scheduler=service.scheduler,
    )


def _endpoint_sets(given: _PortInput, node: NodeContext, diagnostics: list[Diagnostic]) -> EndpointSets:
    service, external = given.service, given.frontends.external
    internal_local = service.internal_policy is TrafficPolicy.LOCAL
    external_local = external and service.external_policy is TrafficPolicy.LOCAL
    sets = categorize(
        given.endpoints, node, use_cluster=not internal_local or external, use_local=internal_local or external_local
    )
    levelled = level_zero_weights(sets) if service.weights else None
    if levelled is None:
        return sets
    diagnostics.append(
        Diagnostic(
            severity=Severity.WARNING,
            subject=service.subject,
            field="metadata.annotations",
            message=f"all usable endpoints of port {given.spec.name or given.spec.port} have weight 0; each counts as 1",
            remedy="give one of them a weight above 0",
        )
    )
    return levelled


def _lacking(service: Service, frontends: Frontends, sets: EndpointSets) -> Iterable[str]:
    """The policies by which a Service port has endpoints, but none for this node's share (kube-proxy counts these)."""
    if sets.local or not sets.any_in_cluster:
        return
    if service.internal_policy is TrafficPolicy.LOCAL:
        yield INTERNAL
    if frontends.external and service.external_policy is TrafficPolicy.LOCAL:
        yield EXTERNAL


def relevant(node: NodeContext) -> NodeContext:
    """The part of a NodeContext that single Services depend on; as long as it stays equal, no Service needs a new decision."""
    return evolve(node, node_port_addresses=(), node_port_any=False, loopback_node_ports=(), service_cidrs=(), masquerade_bit=0)


def resolve(snapshot: ClusterSnapshot, node: NodeContext, settings: Settings) -> NodeState:
    """Decide everything from scratch. ``node`` is what :func:`~kproxy_core.resolve.node.node_context` made of the snapshot."""
    services = {
        name: resolve_service(service, snapshot.slices.get(name, {}).values(), node, settings)
        for name, service in snapshot.services.items()
    }
    book = ClaimBook(node)
    for service in services.values():
        book.enter(claims_of(service.ports, service.created))
    ports: dict[ServicePortKey, ServicePort] = {}
    found: list[Diagnostic] = [*snapshot.diagnostics, *node_diagnostics(snapshot, node, settings), *overlaps(book)]
    for service in services.values():
        found.extend(service.diagnostics)
        for port in service.ports:
            ports[port.key], lost = settle(port, book)
            found.extend(lost)
    return NodeState(
        node=node,
        ports=ports,
        health={name: service.health for name, service in services.items() if service.health is not None},
        without_local=without_local(services),
        diagnostics=tuple(sorted(found)),
    )


def without_local(services: Mapping[ObjectName, ResolvedService]) -> dict[str, frozenset[ServicePortKey]]:
    """Collect, by policy, the Service ports without an endpoint here; both policies are always present."""
    pairs = [pair for service in services.values() for pair in service.without_local]
    return {policy: frozenset(key for found, key in pairs if found == policy) for policy in (INTERNAL, EXTERNAL)}
