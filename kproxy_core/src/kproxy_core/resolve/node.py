"""Works out what is the same for all Services on this node: its addresses, NodePort addresses, and how local pods are told."""

from collections.abc import Iterable, Iterator, Sequence

from kproxy_core.config.settings import DetectLocalMode, NodePortScope, Settings
from kproxy_core.model.addresses import Address, Family, Network, collapse, host_network, parse_network
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.objects import Node
from kproxy_core.model.snapshot import ClusterSnapshot, Kind
from kproxy_core.model.state import LocalByInterface, LocalByNetwork, LocalDetector, NodeContext
from kproxy_core.resolve.guard import API_SERVER_SERVICE, special_use

CONFIGURATION = "configuration"
"""The subject of Diagnostics about the operator's settings."""


_LOOPBACK = (parse_network("127.0.0.0/8"), parse_network("::1/128"))


def node_context(
    snapshot: ClusterSnapshot, interface_addresses: Iterable[Address], settings: Settings, *, node_ports_everywhere: bool
) -> NodeContext:
    """Make the NodeContext of the node that ``settings`` names.

    ``interface_addresses`` are those of the node's interfaces, in the order of the interfaces; ``node_ports_everywhere`` is the
    mode's default for ``nodePortAddresses``. Loopback and IPv6 link-local addresses never count: the former cannot be reached,
    the latter come and go with every pod. Works without a Node object; :func:`node_diagnostics` tells what is then amiss.
    """
    interfaces = tuple(dict.fromkeys(address for address in interface_addresses if _counts(address)))
    primary = primary_addresses(snapshot.node, interfaces, settings)
    everywhere, answering = _node_port_addresses(interfaces, primary, settings, node_ports_everywhere)
    addresses = {*interfaces, *primary, *(address for address in _reported(snapshot.node) if _counts(address))}
    return NodeContext(
        name=settings.node_name,
        zone=snapshot.node.zone if snapshot.node else "",
        addresses=tuple(sorted(addresses)),
        node_port_addresses=tuple(sorted(set(answering))),
        node_port_any=everywhere,
        loopback_node_ports=_loopback_node_ports(snapshot.node, settings, node_ports_everywhere),
        local_detector=_local_detector(snapshot.node, settings),
        service_cidrs=collapse([network for cidr in snapshot.service_cidrs.values() for network in cidr.cidrs]),
        masquerade_bit=settings.masquerade_bit,
        masquerade_all=settings.masquerade_all,
        api_servers=_api_servers(snapshot),
    )


def primary_addresses(node: Node | None, interfaces: Sequence[Address], settings: Settings) -> tuple[Address, ...]:
    """Return the node's primary address of each family that has one.

    It is the first of the Node's internal, then external addresses, as kube-proxy has it; ``bind_address``, unless unspecified,
    overrides that of its family. Without a Node object the first interface address stands in.
    """
    return tuple(address for address in _first_addresses(node, interfaces, settings) if _counts(address))


def _first_addresses(node: Node | None, interfaces: Sequence[Address], settings: Settings) -> Iterator[Address]:
    """The same with such addresses as nobody reaches, loopback ones for example."""
    candidates: Iterable[Address] = _reported(node) if node else interfaces
    first: dict[Family, Address] = {}
    bound = settings.bind_address
    if bound is not None and any(bound):
        first[bound.family] = bound
    for address in candidates:
        first.setdefault(address.family, address)
    yield from (address for _, address in sorted(first.items()))


def _reported(node: Node | None) -> tuple[Address, ...]:
    return (*node.internal_addresses, *node.external_addresses) if node else ()


def _counts(address: Address) -> bool:
    use = special_use(address)
    return not use or (use == "link-local" and address.family is Family.IPV4)


def _scope(settings: Settings, node_ports_everywhere: bool) -> NodePortScope | None:
    """The word that governs NodePort addresses; None where ranges do."""
    match settings.node_port_addresses:
        case None:
            return NodePortScope.ALL if node_ports_everywhere else NodePortScope.PRIMARY
        case NodePortScope() as scope:
            return scope
        case _:
            return None


def _node_port_addresses(
    interfaces: Sequence[Address], primary: Sequence[Address], settings: Settings, node_ports_everywhere: bool
) -> tuple[bool, Sequence[Address]]:
    """Whether every local address answers on NodePorts, and which addresses are known to do so now."""
    match _scope(settings, node_ports_everywhere):
        case NodePortScope.ALL:
            return True, (*interfaces, *primary)
        case NodePortScope.PRIMARY:
            return False, primary
        case _:
            ranges = settings.node_port_addresses
            assert isinstance(ranges, tuple)
            return False, [address for address in interfaces if any(address in network for network in ranges)]


def _loopback_node_ports(node: Node | None, settings: Settings, node_ports_everywhere: bool) -> tuple[Network, ...]:
    """Which of the loopback addresses, every one of which is the node's own, are chosen for NodePorts."""
    match _scope(settings, node_ports_everywhere):
        case NodePortScope.ALL:
            return _LOOPBACK
        case NodePortScope.PRIMARY:
            ranges: Iterable[Network] = map(host_network, _first_addresses(node, (), settings))
        case _:
            assert isinstance(settings.node_port_addresses, tuple)
            ranges = settings.node_port_addresses
    return collapse([common for chosen in ranges for network in _LOOPBACK if (common := _common(chosen, network))])


def _common(one: Network, other: Network) -> Network | None:
    """What is in both networks: the narrower one if it lies in the wider."""
    wide, narrow = sorted((one, other), key=lambda network: network.length)
    return narrow if narrow.address in wide else None


def _local_detector(node: Node | None, settings: Settings) -> LocalDetector:
    match settings.detect_local_mode:
        case DetectLocalMode.CLUSTER_CIDR:
            return LocalByNetwork(settings.cluster_cidrs) if settings.cluster_cidrs else None
        case DetectLocalMode.NODE_CIDR:
            return LocalByNetwork(node.pod_cidrs) if node and node.pod_cidrs else None
        case DetectLocalMode.BRIDGE_INTERFACE:
            return LocalByInterface(settings.bridge_interface) if settings.bridge_interface else None
        case DetectLocalMode.INTERFACE_NAME_PREFIX:
            return LocalByInterface(settings.interface_name_prefix, prefix=True) if settings.interface_name_prefix else None


def _api_servers(snapshot: ClusterSnapshot) -> frozenset[tuple[Address, int]]:
    """Where the API server answers: the endpoints of its Service, ready or not."""
    parts = snapshot.slices.get(API_SERVER_SERVICE, {}).values()
    return frozenset((e.address, port.port) for part in parts for port in part.ports for e in part.endpoints)


def node_diagnostics(snapshot: ClusterSnapshot, node: NodeContext, settings: Settings) -> tuple[Diagnostic, ...]:
    """Tell what is amiss with the node itself, sorted."""
    return tuple(sorted((*_identity(snapshot, settings), *_detection(node, settings), *_answering(node))))


def _identity(snapshot: ClusterSnapshot, settings: Settings) -> Iterator[Diagnostic]:
    if snapshot.node is None and Kind.NODE in snapshot.synced:
        yield Diagnostic(
            severity=Severity.WARNING,
            subject=f"Node {settings.node_name}",
            message="there is no such Node: no endpoint may count as local, and its addresses are taken from the interfaces",
            remedy="set the node's name to that of its Node object (hostnameOverride)",
        )


_DETECTION_FIELDS = {
    DetectLocalMode.CLUSTER_CIDR: "clusterCIDR",
    DetectLocalMode.NODE_CIDR: "spec.podCIDRs",
    DetectLocalMode.BRIDGE_INTERFACE: "detectLocal.bridgeInterface",
    DetectLocalMode.INTERFACE_NAME_PREFIX: "detectLocal.interfaceNamePrefix",
}


def _detection(node: NodeContext, settings: Settings) -> Iterator[Diagnostic]:
    if node.local_detector is not None:
        return
    mode = settings.detect_local_mode
    field = _DETECTION_FIELDS[mode]
    yield Diagnostic(
        severity=Severity.WARNING,
        subject=f"Node {settings.node_name}" if mode is DetectLocalMode.NODE_CIDR else CONFIGURATION,
        field=field,
        message=f"detectLocalMode {mode.value} needs it, and it is empty: local pods cannot be told from other clients, so"
        " nothing extra is masqueraded and traffic policy Local binds pods of this node too",
        remedy=f"set {field}, or another detectLocalMode",
    )


def _answering(node: NodeContext) -> Iterator[Diagnostic]:
    if node.node_port_any or node.node_port_addresses:
        return
    yield Diagnostic(
        severity=Severity.WARNING,
        subject=CONFIGURATION,
        field="nodePortAddresses",
        message="no address of this node is chosen, so NodePorts do not answer",
        remedy="name ranges that hold one of its addresses, primary, or all (loopback addresses never answer)",
    )
