"""Turns the short notation of scenarios into the Kubernetes objects that it stands for."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kproxy_core.model.addresses import Family
from kproxy_core.model.objects import SERVICE_NAME_LABEL, ZONE_LABEL
from kproxy_core.testing.conformance.places import Places, either
from kproxy_core.testing.conformance.scenario import (
    FRONTENDS,
    NODE_PORT,
    EndpointsNote,
    NodeNote,
    Note,
    ObjectNote,
    RangesNote,
    ServiceNote,
)
from kproxy_core.testing.lab.plan import NODES
from kproxy_core.testing.lab_cluster import name_of, ports

Object = dict[str, Any]

CONDITIONS: Mapping[str, Mapping[str, bool]] = {
    "": {"ready": True, "serving": True, "terminating": False},
    "unready": {"ready": False, "serving": False, "terminating": False},
    "terminating": {"ready": False, "serving": True, "terminating": True},
    "gone": {"ready": False, "serving": False, "terminating": True},
    "nil": {},
}
"""What an endpoint's conditions are called."""

POLICIES = ("Cluster", "Local")
ALREADY_THERE: tuple[Note, ...] = (NodeNote(), RangesNote(ranges=("{services ipv4}", "{services ipv6}")))
"""What a cluster has before a scenario begins."""


def key_of(obj: Mapping[str, Any]) -> tuple[str, str, str]:
    """Kind, namespace and name of an object."""
    metadata = obj.get("metadata") or {}
    return str(obj.get("kind", "")), str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def objects_of(note: Note, places: Places) -> list[Object]:
    """The objects that a note stands for. Raises ``ValueError`` for what it does not say well."""
    match note:
        case ServiceNote():
            return [_service(note, places), *_own_slices(note, places)]
        case EndpointsNote():
            return list(_slices(note, places))
        case NodeNote():
            return [_node(note, places)]
        case RangesNote():
            spec = {"cidrs": [places.expand(each) for each in note.ranges]}
            return [
                {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"}, "spec": spec}
            ]
        case ObjectNote():
            return [_expanded(dict(note.object), places)]


def named(text: str) -> list[tuple[str, str, str]]:
    """What a name to delete stands for: kinds, namespaces and names. Raises ``ValueError``."""
    match text.split():
        case ["service", name]:
            owner = name_of(name)
            return [("Service", owner.namespace, owner.name)]
        case ["endpoints", name, *suffix] if len(suffix) <= 1:
            owner = name_of(name)
            return [("EndpointSlice", owner.namespace, _slice_name(owner.name, family, *suffix)) for family in Family]
        case ["node"]:
            return [("Node", "", NODES[0])]
        case ["ranges"]:
            return [("ServiceCIDR", "", "kubernetes")]
        case ["object", kind, name]:
            namespace, _, own = name.rpartition("/")
            return [(kind, namespace, own)]
    raise ValueError(f"{text!r}: write service NAME, endpoints NAME [SUFFIX], node, ranges or object KIND [NAMESPACE/]NAME")


def _service(note: ServiceNote, places: Places) -> Object:
    owner = name_of(note.service)
    cluster = places.frontend("cluster", note.number)
    unknown = set(note.at) - set(FRONTENDS)
    if unknown:
        raise ValueError(f"at: no kind of address is called {', '.join(sorted(unknown))} (there are: {', '.join(FRONTENDS)})")
    kind = "LoadBalancer" if "balancer" in note.at else "NodePort" if "nodePort" in note.at else "ClusterIP"
    spec: Object = {
        "type": kind,
        "clusterIP": cluster.ipv4,
        "clusterIPs": [cluster.ipv4, cluster.ipv6],
        "ipFamilies": ["IPv4", "IPv6"],
        "ipFamilyPolicy": "RequireDualStack",
        "ports": list(_service_ports(note)),
    }
    if "nodePort" not in note.at:
        spec |= {"allocateLoadBalancerNodePorts": False} if kind == "LoadBalancer" else {}
    if "external" in note.at:
        external = places.frontend("external", note.number)
        spec["externalIPs"] = [external.ipv4, external.ipv6]
    spec |= {
        name: value
        for name, value in (("externalTrafficPolicy", note.external_policy), ("internalTrafficPolicy", note.internal_policy))
        if value
    }
    if note.affinity:
        spec |= {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": note.affinity}}}
    if note.ranges is not None:
        spec["loadBalancerSourceRanges"] = [places.expand(each) for each in note.ranges]
    metadata = {
        "namespace": owner.namespace,
        "name": owner.name,
        **({"labels": dict(note.labels)} if note.labels else {}),
        **({"annotations": _expanded(dict(note.annotations), places)} if note.annotations else {}),
        **({"creationTimestamp": note.created} if note.created else {}),
    }
    made: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": spec | _expanded(dict(note.spec), places),
    }
    if "balancer" in note.at:
        balancer = places.frontend("balancer", note.number)
        mode = {"ipMode": note.ip_mode} if note.ip_mode else {}
        made["status"] = {"loadBalancer": {"ingress": [{"ip": balancer.ipv4, **mode}, {"ip": balancer.ipv6, **mode}]}}
    return made


def _service_ports(note: ServiceNote) -> Iterator[Object]:
    wanted = "nodePort" in note.at
    first = None
    for port in ports(note.ports):
        made: Object = {"name": port.name, "protocol": port.protocol.name, "port": port.port}
        first = port.port if first is None else first
        number = port.node_port or (NODE_PORT + note.number if wanted and port.port == first else 0)
        yield made | ({"nodePort": number} if number else {})


def _own_slices(note: ServiceNote, places: Places) -> Iterator[Object]:
    if note.endpoints is not None:
        yield from _slices(EndpointsNote(endpoints=note.service, hosts=note.endpoints, ports=note.behind), places)


def _slice_name(service: str, family: Family, suffix: str = "") -> str:
    return f"{service}-{family.label.lower()}{suffix}"


def _slices(note: EndpointsNote, places: Places) -> Iterator[Object]:
    owner = name_of(note.endpoints)
    for family in Family:
        yield {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "namespace": owner.namespace,
                "name": _slice_name(owner.name, family, note.suffix),
                "labels": {SERVICE_NAME_LABEL: owner.name, **note.labels},
            },
            "addressType": family.label,
            "ports": [{"name": port.name, "protocol": port.protocol.name, "port": port.port} for port in ports(note.ports)],
            "endpoints": [_endpoint(entry, family, places) for entry in note.hosts.split()],
        }


def _endpoint(entry: str, family: Family, places: Places) -> Object:
    host, *said = entry.split("/")
    made: Object = {"addresses": [either(places.host(host), family)], "conditions": dict(CONDITIONS[""])}
    if host in places.on:
        made["nodeName"] = places.on[host]
    hints: dict[str, list[dict[str, str]]] = {}
    for word in said:
        name, equals, value = word.partition("=")
        if equals and name in ("zone", "node"):
            hints.setdefault("forZones" if name == "zone" else "forNodes", []).append({"name": value})
        elif word and word in CONDITIONS:
            made["conditions"] = dict(CONDITIONS[word])
        else:
            known = [*filter(None, CONDITIONS), "zone=NAME", "node=NAME"]
            raise ValueError(f"{entry}: {word!r} is nothing that can be said of an endpoint (there are: {', '.join(known)})")
    return made | ({"hints": hints} if hints else {})


def _node(note: NodeNote, places: Places) -> Object:
    name = NODES[0]
    pair = places.host(name)
    labels = {"labels": {ZONE_LABEL: note.zone}} if note.zone else {}
    ranges = [str(network) for network in places.plan.pod_ranges(name)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **labels},
        "spec": {"podCIDR": ranges[0], "podCIDRs": ranges},
        "status": {"addresses": [{"type": "InternalIP", "address": address} for address in (pair.ipv4, pair.ipv6)]},
    }


def _expanded(value: Any, places: Places) -> Any:
    """Plain data with placeholders in texts replaced, those of keys too."""
    if isinstance(value, str):
        return places.expand(value)
    if isinstance(value, Mapping):
        return {places.expand(str(name)): _expanded(inner, places) for name, inner in value.items()}
    return [_expanded(inner, places) for inner in value] if isinstance(value, list | tuple) else value


def expanded(settings: Mapping[str, Any], places: Places) -> dict[str, Any]:
    """Settings with placeholders replaced."""
    made: dict[str, Any] = _expanded(settings, places)
    return made


def fill(notes: Iterable[Note], places: Places) -> list[Object]:
    """The objects of several notes."""
    return [made for note in notes for made in objects_of(note, places)]
