"""A NodeState as JSON: what ``kproxy render --output json`` prints.

All keys are always there. The form, version 1::

    version         1
    mode            the mode it was resolved for
    node            name, zone, addresses, node_port_addresses, node_port_any, loopback_node_ports, local_pods, service_cidrs,
                    masquerade_bit, masquerade_all; local_pods is {"networks": [...]}, {"interface": NAME},
                    {"interface_prefix": PREFIX} or null
    service_ports   one object for each port of a Service and IP family, sorted:
        namespace, name, port (the port's name), protocol (TCP, UDP, SCTP), family (IPv4, IPv6)
        rules            frontend {kind, address (null: the node's), port}, restricted (by source_ranges), and what happens to
                         connections from_local_pod, from_node, from_outside: {"action": "forward", "endpoints": "cluster" or
                         "local", "masquerade": "hairpin only" or "always"}, {"action": "drop"} or {"action": "reject"}
        endpoints        cluster, local, reachable: lists of {address, port, ready, serving, terminating, local, nodeless, weight,
                         zone_hints, node_hints}; any_in_cluster
        serving          every endpoint whose replies are valid
        affinity_timeout seconds, null without session affinity
        source_ranges, scheduler
    health          one object for each healthCheckNodePort: service, port, local_ready
    without_local   by policy (internal, external), the Service ports with that policy Local and no endpoint here
    diagnostics     severity (note, warning, error), subject, field, message, remedy, place (file:line, or empty)
"""

from collections.abc import Iterable
from typing import Any, assert_never

from kproxy_core.model.diagnostics import Diagnostic
from kproxy_core.model.state import (
    Disposition,
    Drop,
    Endpoint,
    EndpointSets,
    Forward,
    FrontendRule,
    LocalByInterface,
    LocalByNetwork,
    LocalDetector,
    NodeContext,
    NodeState,
    Reject,
    ServicePort,
)

VERSION = 1


def state_document(state: NodeState, mode: str) -> dict[str, Any]:
    """Return the whole state."""
    return {
        "version": VERSION,
        "mode": mode,
        "node": _node(state.node),
        "service_ports": [_service_port(state.ports[key]) for key in sorted(state.ports)],
        "health": [
            {"service": str(health.service), "port": health.port, "local_ready": _texts(sorted(health.local_ready))}
            for _, health in sorted(state.health.items())
        ],
        "without_local": {policy: _texts(sorted(keys)) for policy, keys in sorted(state.without_local.items())},
        "diagnostics": [_diagnostic(diagnostic) for diagnostic in state.diagnostics],
    }


def _texts(things: Iterable[object]) -> list[str]:
    return [str(thing) for thing in things]


def _node(node: NodeContext) -> dict[str, Any]:
    return {
        "name": node.name,
        "zone": node.zone,
        "addresses": _texts(node.addresses),
        "node_port_addresses": _texts(node.node_port_addresses),
        "node_port_any": node.node_port_any,
        "loopback_node_ports": _texts(node.loopback_node_ports),
        "local_pods": _local_pods(node.local_detector),
        "service_cidrs": _texts(node.service_cidrs),
        "masquerade_bit": node.masquerade_bit,
        "masquerade_all": node.masquerade_all,
    }


def _local_pods(detector: LocalDetector) -> dict[str, Any] | None:
    match detector:
        case LocalByNetwork(networks):
            return {"networks": _texts(networks)}
        case LocalByInterface(name, prefix):
            return {"interface_prefix" if prefix else "interface": name}
        case None:
            return None
        case _:
            assert_never(detector)


def _service_port(port: ServicePort) -> dict[str, Any]:
    return {
        "namespace": port.name.namespace,
        "name": port.name.name,
        "port": port.name.port,
        "protocol": port.name.protocol.name,
        "family": port.family.label,
        "rules": [_rule(rule) for rule in port.rules],
        "endpoints": _endpoint_sets(port.endpoints),
        "serving": [_endpoint(endpoint) for endpoint in port.serving],
        "affinity_timeout": port.affinity_timeout,
        "source_ranges": _texts(port.source_ranges),
        "scheduler": port.scheduler,
    }


def _rule(rule: FrontendRule) -> dict[str, Any]:
    frontend = rule.frontend
    address = None if frontend.address is None else str(frontend.address)
    return {
        "frontend": {"kind": frontend.kind.value, "address": address, "port": frontend.port},
        "restricted": rule.restricted,
        "from_local_pod": _disposition(rule.from_local_pod),
        "from_node": _disposition(rule.from_node),
        "from_outside": _disposition(rule.from_outside),
    }


def _disposition(disposition: Disposition) -> dict[str, str]:
    match disposition:
        case Forward(scope, masquerade):
            return {"action": "forward", "endpoints": scope.value, "masquerade": masquerade.value}
        case Drop():
            return {"action": "drop"}
        case Reject():
            return {"action": "reject"}
        case _:
            assert_never(disposition)


def _endpoint_sets(sets: EndpointSets) -> dict[str, Any]:
    return {
        "cluster": [_endpoint(endpoint) for endpoint in sets.cluster],
        "local": [_endpoint(endpoint) for endpoint in sets.local],
        "reachable": [_endpoint(endpoint) for endpoint in sets.reachable],
        "any_in_cluster": sets.any_in_cluster,
    }


def _endpoint(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "address": str(endpoint.address),
        "port": endpoint.port,
        "ready": endpoint.ready,
        "serving": endpoint.serving,
        "terminating": endpoint.terminating,
        "local": endpoint.local,
        "nodeless": endpoint.nodeless,
        "weight": endpoint.weight,
        "zone_hints": sorted(endpoint.zone_hints),
        "node_hints": sorted(endpoint.node_hints),
    }


def _diagnostic(diagnostic: Diagnostic) -> dict[str, str]:
    return {
        "severity": diagnostic.severity.name.lower(),
        "subject": diagnostic.subject,
        "field": diagnostic.field,
        "message": diagnostic.message,
        "remedy": diagnostic.remedy,
        "place": diagnostic.place,
    }
