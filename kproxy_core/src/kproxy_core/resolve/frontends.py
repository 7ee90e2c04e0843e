"""Expands a Service port into its frontends: cluster, external and load balancer addresses, and the NodePort."""

from collections.abc import Iterator, Mapping

from attrs import field, frozen

from kproxy_core.config.settings import Settings
from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.flows import FrontendKey
from kproxy_core.model.objects import Service, ServicePortSpec, ServiceType
from kproxy_core.model.state import Frontend, FrontendKind, NodeContext
from kproxy_core.resolve.guard import refusal

FIELDS: Mapping[FrontendKind, str] = {
    FrontendKind.CLUSTER_IP: "spec.clusterIPs",
    FrontendKind.EXTERNAL_IP: "spec.externalIPs",
    FrontendKind.LOAD_BALANCER: "status.loadBalancer.ingress",
    FrontendKind.NODE_PORT: "spec.ports.nodePort",
}
"""The field of a Service that a frontend of each kind comes from, for Diagnostics."""


@frozen(kw_only=True)
class Frontends:
    """The frontends of one Service port in one family; of equal addresses only the first kind's is there.

    ``load_balanced`` are those whose address is (also) a load balancer's: source ranges apply to them.
    """

    accepted: tuple[Frontend, ...]
    load_balanced: frozenset[Frontend] = field(factory=frozenset)

    @property
    def external(self) -> bool:
        """Whether anything but the cluster address leads here (kube-proxy's ``ExternallyAccessible``)."""
        return any(frontend.kind is not FrontendKind.CLUSTER_IP for frontend in self.accepted)


def is_proxied(service: Service) -> bool:
    """Whether a Service is this proxy's business.

    Not those that name another proxy, headless ones, those without a cluster address, and ExternalName even with a left-over one.
    """
    return (
        bool(service.cluster_ips)
        and service.proxy_name is None
        and not service.headless
        and service.type is not ServiceType.EXTERNAL_NAME
    )


def families(service: Service) -> tuple[Family, ...]:
    """The families a Service is served in, those of its cluster addresses, IPv4 first."""
    return tuple(sorted({address.family for address in service.cluster_ips}))


def load_balancer_addresses(service: Service, family: Family) -> Iterator[Address]:
    """The load balancer's addresses; those with ``ipMode: Proxy`` are left alone (KEP-1860)."""
    return (entry.address for entry in service.ingress if not entry.proxied and entry.address.family is family)


def expand(
    service: Service, port: ServicePortSpec, family: Family, node: NodeContext, settings: Settings
) -> tuple[Frontends, tuple[Diagnostic, ...]]:
    """Return the frontends of one Service port, dangerous ones left out and told.

    An address that the Service has twice is one frontend, of the first kind in the order ClusterIP, ExternalIP, LoadBalancer: the
    cluster address decides the policy, and whether it also is a load balancer's address is kept for the source ranges. What is
    refused as one kind may do as another: a node's address is no cluster address, but a fine external one.
    """
    accepted: dict[Address | None, Frontend] = {}
    balanced: set[Frontend] = set()
    refused: list[Diagnostic] = []
    for wanted in _candidates(service, port, family, settings):
        frontend = accepted.get(wanted.address)
        if frontend is None:
            key = FrontendKey(family, wanted.address, wanted.port, port.protocol)
            reason = refusal(service.name, wanted.kind, key, node, settings.protected_ports)
            if reason:
                refused.append(_refused(service, wanted, reason))
                continue
            frontend = accepted[wanted.address] = wanted
        if wanted.kind is FrontendKind.LOAD_BALANCER:
            balanced.add(frontend)
    return Frontends(accepted=tuple(sorted(accepted.values())), load_balanced=frozenset(balanced)), tuple(refused)


def _candidates(service: Service, port: ServicePortSpec, family: Family, settings: Settings) -> Iterator[Frontend]:
    for address in service.cluster_ips:
        if address.family is family:
            yield Frontend(kind=FrontendKind.CLUSTER_IP, address=address, port=port.port)
    if settings.external_ips_allowed:
        for address in service.external_ips:
            if address.family is family:
                yield Frontend(kind=FrontendKind.EXTERNAL_IP, address=address, port=port.port)
    for address in load_balancer_addresses(service, family):
        yield Frontend(kind=FrontendKind.LOAD_BALANCER, address=address, port=port.port)
    if port.node_port:
        yield Frontend(kind=FrontendKind.NODE_PORT, address=None, port=port.node_port)


def _refused(service: Service, frontend: Frontend, reason: str) -> Diagnostic:
    return Diagnostic(
        severity=Severity.ERROR,
        subject=service.subject,
        field=FIELDS[frontend.kind],
        message=f"frontend {frontend} is refused: {reason}",
        remedy=_REMEDIES[frontend.kind],
    )


_REMEDIES: Mapping[FrontendKind, str] = {
    FrontendKind.CLUSTER_IP: "let the API server choose a cluster address",
    FrontendKind.EXTERNAL_IP: "choose another external address or port",
    FrontendKind.LOAD_BALANCER: "let the load balancer announce another address, or change the Service's port",
    FrontendKind.NODE_PORT: "choose another node port, or change the protected ports of the node",
}


def stray_addresses(service: Service, settings: Settings) -> tuple[Diagnostic, ...]:
    """Tell of external and load balancer addresses in a family that the Service has no cluster address of: not served."""
    if not service.external_ips and not service.ingress:
        return ()
    served = {address.family for address in service.cluster_ips}
    external = service.external_ips if settings.external_ips_allowed else ()
    strays = [
        *((FrontendKind.EXTERNAL_IP, address) for address in external if address.family not in served),
        *(
            (FrontendKind.LOAD_BALANCER, entry.address)
            for entry in service.ingress
            if _is_stray(entry.address, entry.proxied, served)
        ),
    ]
    return tuple(
        Diagnostic(
            severity=Severity.WARNING,
            subject=service.subject,
            field=FIELDS[kind],
            message=f"{address} is left out: the Service has no {address.family.label} cluster address",
            remedy=f"add {address.family.label} to spec.ipFamilies",
        )
        for kind, address in strays
    )


def _is_stray(address: Address, proxied: bool, served: set[Family]) -> bool:
    return not proxied and address.family not in served
