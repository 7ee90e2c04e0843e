"""Slim copies of the API objects: what a service proxy reads of Service, EndpointSlice, Node and ServiceCIDR, and no more.

Field meanings follow the Kubernetes API reference (core/v1, discovery.k8s.io/v1, networking.k8s.io/v1). Addresses are parsed
already; what could not be understood has been left out and told as a Diagnostic by the decoder.
"""

import enum
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from kproxy_core.model.addresses import Address, Family, Network
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.packed import Addressed, Packed, packed

SERVICE_PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name"
HEADLESS_LABEL = "service.kubernetes.io/headless"
SERVICE_NAME_LABEL = "kubernetes.io/service-name"
TRIGGER_TIME_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time"
ZONE_LABEL = "topology.kubernetes.io/zone"
WEIGHTS_ANNOTATION = "kproxy.dev/weights"
SCHEDULER_ANNOTATION = "kproxy.dev/scheduler"

DEFAULT_AFFINITY_TIMEOUT = 10800
"""Seconds; what the API server fills in for ``sessionAffinityConfig.clientIP.timeoutSeconds``."""


class ServiceType(enum.Enum):
    """``spec.type``."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"
    EXTERNAL_NAME = "ExternalName"


class TrafficPolicy(enum.Enum):
    """``spec.internalTrafficPolicy`` and ``spec.externalTrafficPolicy``: all endpoints, or those of this node only."""

    CLUSTER = "Cluster"
    LOCAL = "Local"


@frozen(kw_only=True)
class ServicePortSpec:
    """One entry of ``spec.ports``. ``port`` 1 to 65535; ``node_port`` 0 when there is none."""

    name: str = ""
    protocol: Protocol = Protocol.TCP
    port: int
    node_port: int = 0


@frozen(kw_only=True)
class LoadBalancerIngress:
    """One entry of ``status.loadBalancer.ingress`` that has an address. ``proxied`` is ``ipMode: Proxy`` (KEP-1860)."""

    address: Address
    proxied: bool = False


@frozen(kw_only=True)
class Service:
    """What a proxy reads of a Service.

    ``cluster_ips`` holds at most one address a family and is empty for headless Services. ``created`` is the creation time in
    seconds since the epoch, infinite when unknown: rival claims go to the oldest. ``affinity_timeout`` is in seconds, None
    without session affinity. ``source_ranges`` is None when no range was given; an empty tuple means that ranges were given and
    none could be understood, which lets nobody in. ``weights`` maps an endpoint's address, or ``*``, to a weight of 0 to 1000.
    """

    name: ObjectName
    uid: str = ""
    created: float = float("inf")
    type: ServiceType = ServiceType.CLUSTER_IP
    cluster_ips: tuple[Address, ...] = ()
    external_ips: tuple[Address, ...] = ()
    ingress: tuple[LoadBalancerIngress, ...] = ()
    ports: tuple[ServicePortSpec, ...] = ()
    affinity_timeout: int | None = None
    internal_policy: TrafficPolicy = TrafficPolicy.CLUSTER
    external_policy: TrafficPolicy = TrafficPolicy.CLUSTER
    source_ranges: tuple[Network, ...] | None = None
    health_check_node_port: int = 0
    proxy_name: str | None = None
    headless: bool = False
    weights: Mapping[str, int] = field(factory=dict)
    scheduler: str = ""

    @property
    def subject(self) -> str:
        """How Diagnostics call it."""
        return f"Service {self.name}"

    @property
    def externally_accessible(self) -> bool:
        """Whether anything outside the cluster can address it (kube-proxy's ``ExternallyAccessible``)."""
        return bool(self.external_ips or self.ingress or any(p.node_port for p in self.ports)) or self.type in (
            ServiceType.NODE_PORT,
            ServiceType.LOAD_BALANCER,
        )


class SliceEndpoint(Addressed, frozen=True, kw_only=True, gc=False, cache_hash=True):
    """One entry of an EndpointSlice's ``endpoints``: its first address and its conditions, defaults filled in.

    A missing ``ready`` or ``serving`` is true, a missing ``terminating`` is false, as kube-proxy reads them.
    """

    ready: bool = True
    serving: bool = True
    terminating: bool = False
    node_name: str = ""
    zone_hints: frozenset[str] = frozenset()
    node_hints: frozenset[str] = frozenset()


def _packed(endpoints: Iterable[SliceEndpoint]) -> Packed[SliceEndpoint]:
    return packed(endpoints)


@frozen(kw_only=True)
class SlicePort:
    """One entry of an EndpointSlice's ``ports``; joined to a Service port by name and protocol, never by number."""

    name: str = ""
    protocol: Protocol = Protocol.TCP
    port: int


@frozen(kw_only=True)
class EndpointSlice:
    """What a proxy reads of an EndpointSlice of family IPv4 or IPv6.

    ``service`` is the owner (label ``kubernetes.io/service-name``). ``trigger_time`` is in seconds since the epoch, None when the
    annotation is missing: the start of the programming latency.
    """

    name: ObjectName
    service: ObjectName
    family: Family
    endpoints: Packed[SliceEndpoint] = field(default=(), converter=_packed)
    ports: tuple[SlicePort, ...] = ()
    trigger_time: float | None = None

    @property
    def subject(self) -> str:
        """How Diagnostics call it."""
        return f"EndpointSlice {self.name}"


@frozen(kw_only=True)
class Node:
    """What a proxy reads of its own Node.

    ``internal_addresses`` and ``external_addresses`` keep the API's order: the first internal one is the primary address.
    ``eligible`` is false once the Node is being deleted or bears the autoscaler's taint.
    """

    name: str
    internal_addresses: tuple[Address, ...] = ()
    external_addresses: tuple[Address, ...] = ()
    pod_cidrs: tuple[Network, ...] = ()
    zone: str = ""
    eligible: bool = True

    @property
    def subject(self) -> str:
        """How Diagnostics call it."""
        return f"Node {self.name}"


@frozen(kw_only=True)
class ServiceCIDR:
    """What a proxy reads of a ServiceCIDR: the ranges that cluster addresses are taken from."""

    name: str
    cidrs: tuple[Network, ...] = ()

    @property
    def subject(self) -> str:
        """How Diagnostics call it."""
        return f"ServiceCIDR {self.name}"
