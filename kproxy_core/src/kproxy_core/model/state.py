"""NodeState: what must happen on this node with every connection, decided; a mode only renders it."""

import enum
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from kproxy_core.model.addresses import Address, Family, Network
from kproxy_core.model.diagnostics import Diagnostic
from kproxy_core.model.names import ObjectName, ServicePortKey, ServicePortName
from kproxy_core.model.packed import Addressed, Packed, packed


class Origin(enum.Enum):
    """Where a packet comes from, as the rules tell it.

    LOCAL_POD is what the node's :class:`LocalDetector` calls local; NODE is sent by a process in the node's own network
    namespace; OUTSIDE is everything else.
    """

    LOCAL_POD = "local pod"
    NODE = "node"
    OUTSIDE = "outside"


class FrontendKind(enum.Enum):
    """What sort of address a client dials."""

    CLUSTER_IP = "ClusterIP"
    EXTERNAL_IP = "ExternalIP"
    LOAD_BALANCER = "LoadBalancer"
    NODE_PORT = "NodePort"


@frozen(kw_only=True, order=True, cache_hash=True)
class Frontend:
    """An address and port that clients dial. ``address`` is None for NODE_PORT: the node's chosen addresses, all of them."""

    kind: FrontendKind = field(order=lambda kind: kind.value)
    address: Address | None = field(order=lambda address: address or b"")
    port: int

    def __str__(self) -> str:
        if self.address is None:
            return f"*:{self.port}"
        return f"[{self.address}]:{self.port}" if ":" in str(self.address) else f"{self.address}:{self.port}"


class Endpoint(Addressed, frozen=True, kw_only=True, gc=False, cache_hash=True):
    """An endpoint of one Service port: a pod's (or any host's) address and port.

    ``local`` is whether it runs on this node; ``nodeless``, that nobody says where it runs, so that it may be here all the same.
    ``weight`` is relative, 0 to 1000 and 1 unless the Service is annotated; 0 takes no new connections where a mode has the
    capability ``weights``.
    """

    port: int
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    local: bool = False
    nodeless: bool = False
    zone_hints: frozenset[str] = frozenset()
    node_hints: frozenset[str] = frozenset()
    weight: int = 1

    def __str__(self) -> str:
        host = f"[{self.address}]" if self.address.family is Family.IPV6 else str(self.address)
        return f"{host}:{self.port}"


Endpoints = Packed[Endpoint]
"""Endpoints of a Service port: a sequence of them, for all that it is to who reads it."""


def _packed(endpoints: Iterable[Endpoint]) -> Endpoints:
    return packed(endpoints)


class EndpointScope(enum.Enum):
    """Which set of a Service port's endpoints is meant."""

    CLUSTER = "cluster"
    LOCAL = "local"

    # Enum's own hash is Python code; members are singletons.
    __hash__ = object.__hash__


@frozen(kw_only=True)
class EndpointSets:
    """The endpoints of one Service port as seen from this node (kube-proxy's ``CategorizeEndpoints``), each set sorted.

    ``cluster`` serves traffic policy Cluster, topology hints applied; ``local`` serves policy Local. Each holds ready endpoints,
    or, when there is no ready one, those that terminate but still serve. ``reachable`` is their union without duplicates. A set
    that no frontend uses is empty, and adds nothing to the union.
    ``any_in_cluster`` may be true while ``reachable`` is empty: policy Local, endpoints on other nodes only (drop, not reject).
    """

    cluster: Endpoints = field(default=(), converter=_packed)
    local: Endpoints = field(default=(), converter=_packed)
    reachable: Endpoints = field(default=(), converter=_packed)
    any_in_cluster: bool = False

    def of(self, scope: EndpointScope) -> Endpoints:
        """The set that ``scope`` names."""
        return self.cluster if scope is EndpointScope.CLUSTER else self.local


class Masquerade(enum.Enum):
    """When the client's address is replaced by the node's: when the endpoint is the client itself, or always."""

    HAIRPIN_ONLY = "hairpin only"
    ALWAYS = "always"

    __hash__ = object.__hash__


@frozen(cache_hash=True)
class Forward:
    """Send the connection to an endpoint of ``scope``; that set is not empty."""

    scope: EndpointScope
    masquerade: Masquerade


@frozen(cache_hash=True)
class Drop:
    """Discard silently: there are endpoints, but none that this client may reach from here."""


@frozen(cache_hash=True)
class Reject:
    """Refuse at once: RST for TCP, ICMP port unreachable for all else."""


Disposition = Forward | Drop | Reject


@frozen(kw_only=True, cache_hash=True)
class FrontendRule:
    """What happens to connections to one frontend, by the origin of the traffic.

    ``restricted`` says that the Service port's ``source_ranges`` are asked first, whatever the origin: others are dropped.
    """

    frontend: Frontend
    from_local_pod: Disposition
    from_node: Disposition
    from_outside: Disposition
    restricted: bool = False

    def disposition(self, origin: Origin) -> Disposition:
        """The disposition for traffic of ``origin``."""
        match origin:
            case Origin.LOCAL_POD:
                return self.from_local_pod
            case Origin.NODE:
                return self.from_node
            case Origin.OUTSIDE:
                return self.from_outside


@frozen(kw_only=True)
class ServicePort:
    """One port of one Service in one IP family, ready to be rendered.

    ``rules`` are sorted by frontend; frontends lost to an older rival are not among them. ``serving`` holds every endpoint that
    serves, whatever the scope: whose replies are valid. ``affinity_timeout`` is in seconds, None without affinity.
    ``source_ranges`` are collapsed and apply to the rules marked ``restricted``.
    """

    name: ServicePortName
    family: Family
    rules: tuple[FrontendRule, ...] = ()
    endpoints: EndpointSets = EndpointSets()
    serving: Endpoints = field(default=(), converter=_packed)
    affinity_timeout: int | None = None
    source_ranges: tuple[Network, ...] = ()
    scheduler: str = ""

    @property
    def key(self) -> ServicePortKey:
        """Its key in a NodeState."""
        return ServicePortKey(self.family, self.name)


@frozen(cache_hash=True)
class LocalByNetwork:
    """Local pods are told by their source address (detectLocalMode ClusterCIDR or NodeCIDR)."""

    networks: tuple[Network, ...]


@frozen(cache_hash=True)
class LocalByInterface:
    """Local pods are told by the interface they come in on: its exact name, or a prefix of it.

    detectLocalMode BridgeInterface or InterfaceNamePrefix.
    """

    name: str
    prefix: bool = False


LocalDetector = LocalByNetwork | LocalByInterface | None
"""None: local pods cannot be told from others; nothing extra is masqueraded and no traffic is short-circuited."""


@frozen(kw_only=True)
class NodeContext:
    """What is the same for all Services on this node.

    ``addresses`` are those of the node's interfaces and of its Node object. ``node_port_addresses`` answer on NodePorts; with
    ``node_port_any`` every local address does, loopback aside. ``loopback_node_ports`` are loopback addresses that the operator
    has chosen for NodePorts: a mode with the capability ``localhost_node_ports`` answers there, too. ``masquerade_bit`` is 0
    to 31. ``api_servers`` are the endpoints of the API server, which no Service may take over.
    """

    name: str = ""
    zone: str = ""
    addresses: tuple[Address, ...] = ()
    node_port_addresses: tuple[Address, ...] = ()
    node_port_any: bool = False
    loopback_node_ports: tuple[Network, ...] = ()
    local_detector: LocalDetector = None
    service_cidrs: tuple[Network, ...] = ()
    masquerade_bit: int = 14
    masquerade_all: bool = False
    api_servers: frozenset[tuple[Address, int]] = frozenset()


@frozen(kw_only=True)
class ServiceHealth:
    """What one healthCheckNodePort knows: the local addresses that are ready (KEP-3836: the server adds the node's health)."""

    service: ObjectName
    port: int
    local_ready: frozenset[Address] = frozenset()


@frozen(kw_only=True)
class NodeState:
    """Everything this node must do. Mappings are never mutated.

    ``health`` is keyed by Service. ``without_local`` names the Service ports with a Local policy and no endpoint here, by policy
    (``internal``, ``external``); kube-proxy's metric ``sync_proxy_rules_no_local_endpoints_total`` counts them.
    """

    node: NodeContext
    ports: Mapping[ServicePortKey, ServicePort] = field(factory=dict)
    health: Mapping[ObjectName, ServiceHealth] = field(factory=dict)
    without_local: Mapping[str, frozenset[ServicePortKey]] = field(factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
