"""Writes model objects as the manifests that would decode to them, to be read by a daemon or to reproduce a failure."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from math import isinf
from typing import Any

import yaml

from kproxy_core.model.addresses import Address
from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import (
    HEADLESS_LABEL,
    SCHEDULER_ANNOTATION,
    SERVICE_NAME_LABEL,
    SERVICE_PROXY_NAME_LABEL,
    TRIGGER_TIME_ANNOTATION,
    WEIGHTS_ANNOTATION,
    ZONE_LABEL,
    EndpointSlice,
    Node,
    Service,
    ServiceCIDR,
    SliceEndpoint,
)
from kproxy_core.model.snapshot import ClusterSnapshot

_Manifest = dict[str, Any]


def manifests(objects: Iterable[WatchedObject]) -> str:
    """Return YAML documents that decode to these objects (source ranges that let nobody in become one that nobody can read)."""
    return "---\n".join(yaml.safe_dump(manifest(each), sort_keys=False) for each in objects)


def objects_in(snapshot: ClusterSnapshot) -> tuple[WatchedObject, ...]:
    """Return all objects of a snapshot."""
    slices = [piece for owned in snapshot.slices.values() for piece in owned.values()]
    node = () if snapshot.node is None else (snapshot.node,)
    return (*snapshot.services.values(), *slices, *node, *snapshot.service_cidrs.values())


def manifest(thing: WatchedObject) -> _Manifest:
    """Return one object as the API server would give it, without what is empty."""
    match thing:
        case Service():
            return _service(thing)
        case EndpointSlice():
            return _slice(thing)
        case Node():
            return _node(thing)
        case ServiceCIDR():
            spec = {"cidrs": [str(network) for network in thing.cidrs]}
            return {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": thing.name}, "spec": spec}


def _filled(**fields: Any) -> _Manifest:
    return {name: value for name, value in fields.items() if value not in (None, "", [], {}, 0)}


def _metadata(name: ObjectName, labels: Mapping[str, str], annotations: Mapping[str, str], **fields: Any) -> _Manifest:
    named = {"namespace": name.namespace} if name.namespace else {}
    return {**named, "name": name.name, **_filled(labels=dict(labels), annotations=dict(annotations), **fields)}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _service(service: Service) -> _Manifest:
    labels = {} if service.proxy_name is None else {SERVICE_PROXY_NAME_LABEL: service.proxy_name}
    labels |= {HEADLESS_LABEL: ""} if service.headless else {}
    weights = ", ".join(f"{who}={weight}" for who, weight in service.weights.items())
    annotations = ({WEIGHTS_ANNOTATION: weights} if weights else {}) | (
        {SCHEDULER_ANNOTATION: service.scheduler} if service.scheduler else {}
    )
    created = None if isinf(service.created) else _time(service.created)
    ranges = service.source_ranges
    affinity = service.affinity_timeout
    spec = _filled(
        type=service.type.value,
        clusterIP=str(service.cluster_ips[0]) if service.cluster_ips else "",
        clusterIPs=_texts(service.cluster_ips),
        ipFamilies=[address.family.label for address in service.cluster_ips],
        externalIPs=_texts(service.external_ips),
        ports=[
            _filled(name=port.name, protocol=port.protocol.name, port=port.port, nodePort=port.node_port)
            for port in service.ports
        ],
        sessionAffinity="None" if affinity is None else "ClientIP",
        sessionAffinityConfig=None if affinity is None else {"clientIP": {"timeoutSeconds": affinity}},
        internalTrafficPolicy=service.internal_policy.value,
        externalTrafficPolicy=service.external_policy.value,
        loadBalancerSourceRanges=None if ranges is None else [str(network) for network in ranges] or ["nobody"],
        healthCheckNodePort=service.health_check_node_port,
    )
    ingress = [{"ip": str(entry.address), "ipMode": "Proxy" if entry.proxied else "VIP"} for entry in service.ingress]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(service.name, labels, annotations, uid=service.uid, creationTimestamp=created),
        "spec": spec,
        **({"status": {"loadBalancer": {"ingress": ingress}}} if ingress else {}),
    }


def _texts(addresses: Iterable[Address]) -> list[str]:
    return [str(address) for address in addresses]


def _slice(piece: EndpointSlice) -> _Manifest:
    annotations = {} if piece.trigger_time is None else {TRIGGER_TIME_ANNOTATION: _time(piece.trigger_time)}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": _metadata(piece.name, {SERVICE_NAME_LABEL: piece.service.name}, annotations),
        "addressType": piece.family.label,
        "ports": [_filled(name=port.name, protocol=port.protocol.name, port=port.port) for port in piece.ports],
        "endpoints": [_endpoint(entry) for entry in piece.endpoints],
    }


def _endpoint(entry: SliceEndpoint) -> _Manifest:
    hints = _filled(
        forZones=[{"name": zone} for zone in sorted(entry.zone_hints)],
        forNodes=[{"name": node} for node in sorted(entry.node_hints)],
    )
    conditions = {"ready": entry.ready, "serving": entry.serving, "terminating": entry.terminating}
    return {"addresses": [str(entry.address)], "conditions": conditions, **_filled(nodeName=entry.node_name, hints=hints)}


def _node(node: Node) -> _Manifest:
    taints = [] if node.eligible else [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
    labels = {ZONE_LABEL: node.zone} if node.zone else {}
    addresses = [{"type": "InternalIP", "address": str(address)} for address in node.internal_addresses]
    addresses += [{"type": "ExternalIP", "address": str(address)} for address in node.external_addresses]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(ObjectName("", node.name), labels, {}),
        "spec": _filled(podCIDRs=[str(network) for network in node.pod_cidrs], taints=taints),
        "status": {"addresses": addresses},
    }
