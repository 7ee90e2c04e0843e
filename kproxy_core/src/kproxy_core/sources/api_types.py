"""The fields of API objects that a proxy reads, as msgspec decodes them; everything else in an object is skipped unread.

All fields are optional here, so that one odd field does not cost the object; items of lists may be None where a malformed one has
been taken out. What the values mean is decided in the ``decode_*`` modules.
"""

from datetime import datetime

import msgspec


def api_name(attribute: str) -> str:
    """The API's spelling of an attribute: ``cluster_ips`` is ``clusterIPs``."""
    first, *rest = attribute.split("_")
    return first + "".join(_ABBREVIATIONS.get(word, word.capitalize()) for word in rest)


_ABBREVIATIONS = {"ip": "IP", "ips": "IPs", "cidr": "CIDR", "cidrs": "CIDRs"}


class Wire(msgspec.Struct, frozen=True, gc=False, rename=api_name):
    """What all of them have in common: immutable, and never part of a reference cycle."""


class WireMeta(Wire, frozen=True):
    """``metadata``."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class WireServicePort(Wire, frozen=True):
    """``spec.ports[]`` of a Service."""

    port: int
    name: str | None = None
    protocol: str | None = None
    node_port: int | None = None


class WireClientIP(Wire, frozen=True):
    """``spec.sessionAffinityConfig.clientIP``."""

    timeout_seconds: int | None = None


class WireAffinityConfig(Wire, frozen=True):
    """``spec.sessionAffinityConfig``."""

    client_ip: WireClientIP | None = None


class WireServiceSpec(Wire, frozen=True):
    """``spec`` of a Service."""

    type: str | None = None
    cluster_ip: str | None = None
    cluster_ips: list[str | None] | None = None
    ip_families: list[str | None] | None = None
    ports: list[WireServicePort | None] | None = None
    external_ips: list[str | None] | None = None
    session_affinity: str | None = None
    session_affinity_config: WireAffinityConfig | None = None
    external_traffic_policy: str | None = None
    internal_traffic_policy: str | None = None
    load_balancer_source_ranges: list[str | None] | None = None
    health_check_node_port: int | None = None


class WireIngress(Wire, frozen=True):
    """``status.loadBalancer.ingress[]``."""

    ip: str | None = None
    ip_mode: str | None = None


class WireLoadBalancer(Wire, frozen=True):
    """``status.loadBalancer``."""

    ingress: list[WireIngress | None] | None = None


class WireServiceStatus(Wire, frozen=True):
    """``status`` of a Service."""

    load_balancer: WireLoadBalancer | None = None


class WireService(Wire, frozen=True):
    """A Service (core/v1)."""

    metadata: WireMeta
    spec: WireServiceSpec | None = None
    status: WireServiceStatus | None = None


class WireConditions(Wire, frozen=True):
    """``endpoints[].conditions``."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class WireHint(Wire, frozen=True):
    """``endpoints[].hints.forZones[]`` and ``forNodes[]``."""

    name: str


class WireHints(Wire, frozen=True):
    """``endpoints[].hints``."""

    for_zones: list[WireHint | None] | None = None
    for_nodes: list[WireHint | None] | None = None


class WireEndpoint(Wire, frozen=True):
    """``endpoints[]`` of an EndpointSlice."""

    addresses: list[str | None]
    conditions: WireConditions | None = None
    node_name: str | None = None
    hints: WireHints | None = None


class WirePort(Wire, frozen=True):
    """``ports[]`` of an EndpointSlice and of Endpoints' subsets. A missing port means all ports, which no Service can use."""

    name: str | None = None
    protocol: str | None = None
    port: int | None = None


class WireEndpointSlice(Wire, frozen=True):
    """An EndpointSlice (discovery.k8s.io/v1)."""

    metadata: WireMeta
    address_type: str = ""
    endpoints: list[WireEndpoint | None] | None = None
    ports: list[WirePort | None] | None = None


class WireEndpointAddress(Wire, frozen=True):
    """``subsets[].addresses[]`` and ``notReadyAddresses[]`` of Endpoints."""

    ip: str
    node_name: str | None = None


class WireSubset(Wire, frozen=True):
    """``subsets[]`` of Endpoints."""

    addresses: list[WireEndpointAddress | None] | None = None
    not_ready_addresses: list[WireEndpointAddress | None] | None = None
    ports: list[WirePort | None] | None = None


class WireEndpoints(Wire, frozen=True):
    """Endpoints (core/v1), the predecessor of EndpointSlices."""

    metadata: WireMeta
    subsets: list[WireSubset | None] | None = None


class WireTaint(Wire, frozen=True):
    """``spec.taints[]`` of a Node."""

    key: str = ""


class WireNodeSpec(Wire, frozen=True):
    """``spec`` of a Node."""

    pod_cidr: str | None = None
    pod_cidrs: list[str | None] | None = None
    taints: list[WireTaint | None] | None = None


class WireNodeAddress(Wire, frozen=True):
    """``status.addresses[]`` of a Node."""

    type: str
    address: str


class WireNodeStatus(Wire, frozen=True):
    """``status`` of a Node."""

    addresses: list[WireNodeAddress | None] | None = None


class WireNode(Wire, frozen=True):
    """A Node (core/v1)."""

    metadata: WireMeta
    spec: WireNodeSpec | None = None
    status: WireNodeStatus | None = None


class WireServiceCIDRSpec(Wire, frozen=True):
    """``spec`` of a ServiceCIDR."""

    cidrs: list[str | None] | None = None


class WireServiceCIDR(Wire, frozen=True):
    """A ServiceCIDR (networking.k8s.io/v1)."""

    metadata: WireMeta
    spec: WireServiceCIDRSpec | None = None


WireObject = WireService | WireEndpointSlice | WireEndpoints | WireNode | WireServiceCIDR
