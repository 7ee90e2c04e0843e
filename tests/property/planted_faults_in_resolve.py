"""The faults that are planted, one at a time, and that the oracle must find: some of them were made, by other proxies or here."""

from .planted_faults import Fault

FAULTS = (
    # Which objects are seen, and which endpoints there are.
    Fault(
        "a label of service-proxy-name without a value does not count",
        "frontends",
        "service.proxy_name is None",
        "not service.proxy_name",
    ),
    Fault("headless Services are served", "frontends", "and not service.headless", "and not None"),
    Fault(
        "ExternalName Services with a cluster address are served",
        "frontends",
        "service.type is not ServiceType.EXTERNAL_NAME",
        "True",
    ),
    Fault(
        "Services are served in families without a cluster address",
        "frontends",
        "return tuple(sorted({address.family for address in service.cluster_ips}))",
        "return tuple(Family)",
    ),
    Fault("two ports on one address are one endpoint", "slices", "place = (address, port)", "place = (address, 0)"),
    Fault("a terminating entry beats the address's new owner", "slices", "not endpoint.terminating,", "endpoint.terminating,"),
    Fault(
        "the first entry for an address and port wins",
        "slices",
        "if place not in bucket or _rank(endpoint) > _rank(bucket[place]):",
        "if place not in bucket:",
    ),
    Fault("an entry that is not ready beats a ready one", "slices", "        endpoint.ready,\n", "        not endpoint.ready,\n"),
    Fault(
        "endpoints without a node are local",
        "slices",
        'source.node_name == node_name and node_name != ""',
        'source.node_name in ("", node_name)',
    ),
    Fault(
        "ports are joined by number of the Service",
        "slices",
        "port.port, node_name, service.weights)",
        "service.ports[0].port, node_name, service.weights)",
    ),
    Fault(
        "endpoints of another family than their slice count",
        "guard",
        "all(length == size for length in set(map(len, addresses))) and ",
        "",
    ),
    Fault("endpoints on link-local addresses count", "guard", 'return "link-local" if address[1] == 254 else ""', 'return ""'),
    Fault(
        "endpoints on loopback addresses count",
        "guard",
        'return "loopback"\n    if address[0] == 169',
        'return ""\n    if address[0] == 169',
    ),
    # Which of them are usable.
    Fault(
        "no fallback to terminating endpoints in the cluster",
        "categorize",
        "usable = ready or _terminating(endpoints)",
        "usable = ready",
    ),
    Fault("no fallback to terminating endpoints on this node", "categorize", " or _terminating(here)", ""),
    Fault(
        "the fallback takes endpoints that do not serve",
        "categorize",
        "endpoint.serving and endpoint.terminating)",
        "endpoint.terminating)",
    ),
    Fault(
        "the fallback takes endpoints that do not terminate",
        "categorize",
        "endpoint.serving and endpoint.terminating)",
        "endpoint.serving)",
    ),
    Fault(
        "the fallback is not separate for this node",
        "categorize",
        " or _terminating(here)",
        " or (() if ready else _terminating(here))",
    ),
    Fault(
        "any entry at all counts as an endpoint in the cluster",
        "categorize",
        "any_in_cluster=bool(usable)",
        "any_in_cluster=bool(endpoints)",
    ),
    Fault("node hints are not read", "topology", "if by_node and all(", "if False and all("),
    Fault(
        "node hints need not be complete",
        "topology",
        "if by_node and all(kind.node_hints for kind in ready.distinct_kinds):",
        "if by_node:",
    ),
    Fault(
        "zone hints need not be complete",
        "topology",
        "if by_zone and all(kind.zone_hints for kind in ready.distinct_kinds):",
        "if by_zone:",
    ),
    Fault(
        "zones are tried though a node hint is there for all",
        "topology",
        "node_name in endpoint.node_hints) if node_name else ()",
        "zone in endpoint.zone_hints) if zone else ()",
    ),
    # What becomes of a packet.
    Fault(
        "no endpoint here is refused instead of dropped",
        "dispositions",
        "if sets.of(scope) else _DROP",
        "if sets.of(scope) else _REJECT",
    ),
    Fault(
        "external policy governs the cluster address",
        "resolve",
        "dispositions.internal(service.internal_policy,",
        "dispositions.internal(service.external_policy,",
    ),
    Fault(
        "internal policy governs external addresses",
        "resolve",
        "dispositions.external(service.external_policy,",
        "dispositions.external(service.internal_policy,",
    ),
    Fault(
        "local pods are held to this node by external policy Local",
        "dispositions",
        "if detects else outside",
        "if False else outside",
    ),
    Fault(
        "the node is held to itself by external policy Local",
        "dispositions",
        "return ByOrigin(pod, everywhere, outside)",
        "return ByOrigin(pod, outside, outside)",
    ),
    Fault(
        "the node is not masqueraded under external policy Local",
        "dispositions",
        "return ByOrigin(pod, everywhere, outside)",
        "return ByOrigin(pod, pod, outside)",
    ),
    Fault(
        "pods are masqueraded under external policy Local",
        "dispositions",
        "return ByOrigin(pod, everywhere, outside)",
        "return ByOrigin(everywhere, everywhere, outside)",
    ),
    Fault(
        "clients outside are masqueraded under external policy Local",
        "dispositions",
        "_forward(sets, EndpointScope.LOCAL, Masquerade.HAIRPIN_ONLY)",
        "_forward(sets, EndpointScope.LOCAL, Masquerade.ALWAYS)",
    ),
    Fault(
        "external traffic is not masqueraded under policy Cluster",
        "dispositions",
        "_forward(sets, EndpointScope.CLUSTER, Masquerade.ALWAYS)",
        "_forward(sets, EndpointScope.CLUSTER, Masquerade.HAIRPIN_ONLY)",
    ),
    Fault(
        "the node is not masqueraded to cluster addresses",
        "dispositions",
        "return ByOrigin(near, far, far)",
        "return ByOrigin(near, near, far)",
    ),
    Fault(
        "masqueradeAll leaves local pods out",
        "dispositions",
        "Masquerade.ALWAYS if masquerade_all else",
        "Masquerade.ALWAYS if False else",
    ),
    Fault("without detection everybody is masqueraded", "dispositions", "if masquerade_all or detects else", "if True else"),
    Fault(
        "detection by networks of the other family counts",
        "dispositions",
        "any(network.family is family for network in networks)",
        "bool(networks)",
    ),
    Fault(
        "no cluster endpoints for the short circuit under internal policy Local",
        "resolve",
        "use_cluster=not internal_local or external",
        "use_cluster=not internal_local",
    ),
    # Source ranges.
    Fault(
        "source ranges do not hold at an address that is an external one too",
        "dispositions",
        "frontend in frontends.load_balanced",
        "frontend.kind is FrontendKind.LOAD_BALANCER",
    ),
    Fault(
        "source ranges hold at all addresses", "dispositions", "restricted and frontend in frontends.load_balanced", "restricted"
    ),
    Fault(
        "no understandable source range lets everybody in",
        "source_ranges",
        "if not ranges and service.source_ranges:",
        "if not ranges:",
    ),
    Fault(
        "source ranges of the other family let nobody in",
        "source_ranges",
        "if not ranges and service.source_ranges:",
        "if False:",
    ),
    Fault(
        "the node may not come from the balancer's address",
        "source_ranges",
        "if any(address in network for network in ranges for address in node):",
        "if False:",
    ),
    Fault(
        "anybody may come from the balancer's address",
        "source_ranges",
        "if any(address in network for network in ranges for address in node):",
        "if True:",
    ),
    # Frontends and rivals.
    Fault(
        "balancer addresses with ipMode Proxy are served",
        "frontends",
        "if not entry.proxied and entry.address.family is family",
        "if entry.address.family is family",
    ),
    Fault("external addresses are served although forbidden", "frontends", "if settings.external_ips_allowed:", "if True:"),
    Fault("the youngest Service wins", "claims", "claim = Claim(created, port.key)", "claim = Claim(-created, port.key)"),
    Fault("age does not matter among rivals", "claims", "claim = Claim(created, port.key)", "claim = Claim(0.0, port.key)"),
    Fault(
        "TCP and UDP are rivals", "claims", "frontend.port, port.name.protocol)", "frontend.port, type(port.name.protocol).TCP)"
    ),
    # The guard.
    Fault(
        "NodePorts may take protected ports",
        "guard",
        "(address is None or address in node.addresses)",
        "address in node.addresses",
    ),
    Fault(
        "external addresses may take protected ports of the node",
        "guard",
        "(address is None or address in node.addresses)",
        "address is None",
    ),
    Fault("protected ports are protected everywhere", "guard", "(address is None or address in node.addresses)", "True"),
    Fault("UDP ports are protected", "guard", "if key.protocol is not Protocol.TCP:", "if False:"),
    Fault("the API server may be taken over", "guard", "if service != API_SERVER_SERVICE and any(", "if False and any("),
    Fault("the API server's own Service is refused", "guard", "if service != API_SERVER_SERVICE and any(", "if any("),
    Fault(
        "a host's address may be a cluster address",
        "guard",
        "if kind is FrontendKind.CLUSTER_IP and _is_host(",
        "if False and _is_host(",
    ),
    Fault(
        "NodePorts may be where an API server answers",
        "guard",
        "if key.address is not None else address in node.addresses",
        "if key.address is not None else False",
    ),
    Fault(
        "NodePorts may not be what any API server has",
        "guard",
        "if key.address is not None else address in node.addresses",
        "if key.address is not None else True",
    ),
    # The node.
    Fault(
        "external addresses of the Node come first",
        "node",
        "return (*node.internal_addresses, *node.external_addresses)",
        "return (*node.external_addresses, *node.internal_addresses)",
    ),
    Fault(
        "NodePorts answer everywhere by default",
        "node",
        "NodePortScope.ALL if node_ports_everywhere else NodePortScope.PRIMARY",
        "NodePortScope.ALL",
    ),
    Fault("bindAddress is not read", "node", "if bound is not None and any(bound):", "if False:"),
    Fault(
        "an unspecified bindAddress is the primary one", "node", "if bound is not None and any(bound):", "if bound is not None:"
    ),
    Fault(
        "mode NodeCIDR looks at the cluster's networks",
        "node",
        "LocalByNetwork(node.pod_cidrs) if node and node.pod_cidrs",
        "LocalByNetwork(settings.cluster_cidrs) if settings.cluster_cidrs",
    ),
    Fault(
        "an interface name prefix is a whole name",
        "node",
        "settings.interface_name_prefix, prefix=True)",
        "settings.interface_name_prefix)",
    ),
    Fault(
        "ServiceCIDRs are not read",
        "node",
        "for cidr in snapshot.service_cidrs.values() for network in cidr.cidrs",
        "for cidr in () for network in cidr.cidrs",
    ),
    Fault("the zone is not read", "node", 'zone=snapshot.node.zone if snapshot.node else ""', 'zone=""'),
)
