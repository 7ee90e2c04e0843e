"""What the API server does to an object before it is stored: defaults, allocation of addresses and ports, a few refusals."""

import ipaddress
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from kproxy_core.testing.fake_api.answers import invalid
from kproxy_core.testing.fake_api.resources import ENDPOINT_SLICES, NODES, SERVICE_CIDRS, SERVICES, Object, Resource
from kproxy_core.testing.fake_api.store import Store

SERVICE_RANGES = ("10.96.0.0/12", "fd00:10:96::/112")
"""What cluster addresses are allocated from; also the cidrs of the ServiceCIDR ``kubernetes``."""

NODE_PORTS = range(30000, 32768)


class Admission:
    """Fills in Services as the API server does; a value that the writer gave is kept."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._addresses = {f"IPv{network.version}": network.hosts() for network in map(ipaddress.ip_network, SERVICE_RANGES)}
        for addresses in self._addresses.values():
            next(addresses)  # the API server keeps the first for its own Service, kubernetes
        self._ports = itertools.cycle(NODE_PORTS)

    def admit(self, resource: Resource, obj: Object) -> Object:
        """Return the object as it is to be stored. Raises ApiError when it is not valid.

        What was allocated for a Service stays with it, also when a writer leaves it out.
        """
        if resource is SERVICES:
            metadata = obj["metadata"]
            old = self._store.get(resource, (metadata.get("namespace", ""), metadata.get("name", "")))
            if old is not None:
                obj = {**obj, "spec": _with_allocated(obj.get("spec") or {}, old.object["spec"])}
            return {**obj, "spec": self._service(obj), "status": {"loadBalancer": {}, **(obj.get("status") or {})}}
        if resource is ENDPOINT_SLICES:
            return _slice(obj)
        if resource in (NODES, SERVICE_CIDRS):
            return {**obj, "spec": obj.get("spec") or {}, "status": obj.get("status") or {}}
        return obj

    def _service(self, obj: Object) -> dict[str, Any]:
        spec = dict(obj.get("spec") or {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        if spec["sessionAffinity"] == "ClientIP":
            spec.setdefault("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": 10800}})
        if spec["type"] == "ExternalName":
            return spec
        if not spec.get("ports") and spec.get("clusterIP") != "None":
            raise invalid("Service", obj["metadata"]["name"], [("FieldValueRequired", "Required value", "spec.ports")])
        self._allocate_addresses(spec)
        spec.setdefault("internalTrafficPolicy", "Cluster")
        external = spec["type"] in ("NodePort", "LoadBalancer")
        if external or spec.get("externalIPs"):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        allocates = external and (spec["type"] == "NodePort" or spec.setdefault("allocateLoadBalancerNodePorts", True))
        spec["ports"] = [self._port(port, with_node_port=allocates) for port in spec.get("ports") or ()]
        if spec["type"] == "LoadBalancer" and spec["externalTrafficPolicy"] == "Local":
            spec.setdefault("healthCheckNodePort", next(self._ports))
        return spec

    def _allocate_addresses(self, spec: dict[str, Any]) -> None:
        given = spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
        policy = spec.setdefault("ipFamilyPolicy", "RequireDualStack" if len(given) > 1 else "SingleStack")
        if given == ["None"]:
            spec["clusterIP"], spec["clusterIPs"] = "None", ["None"]
            spec.setdefault("ipFamilies", ["IPv4"])
            return
        families = spec.get("ipFamilies") or [f"IPv{ipaddress.ip_address(address).version}" for address in given] or ["IPv4"]
        if policy != "SingleStack" and len(families) == 1:
            families = [*families, "IPv6" if families == ["IPv4"] else "IPv4"]
        missing = families[len(given) :]
        spec["clusterIPs"] = [*given, *(str(next(self._addresses[family])) for family in missing)]
        spec["clusterIP"] = spec["clusterIPs"][0]
        spec["ipFamilies"] = families

    def _port(self, port: Mapping[str, Any], *, with_node_port: bool) -> dict[str, Any]:
        filled = {"protocol": "TCP", **port}
        filled.setdefault("targetPort", filled["port"])
        if with_node_port and not filled.get("nodePort"):
            taken = set(self._node_ports_in_use())
            filled["nodePort"] = next(number for number in self._ports if number not in taken)
        return filled

    def _node_ports_in_use(self) -> Iterator[int]:
        for stored in self._store[SERVICES].objects.values():
            for port in stored.object["spec"].get("ports") or ():
                yield port.get("nodePort", 0)


def _with_allocated(spec: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Carry addresses and node ports over from the version before."""
    merged = dict(spec)
    if merged.get("type") == "ExternalName":
        return merged
    if not merged.get("clusterIP") and not merged.get("clusterIPs") and old.get("clusterIP"):
        merged.update({name: old[name] for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy") if name in old})
    if merged.get("type") in ("NodePort", "LoadBalancer"):
        allocated = {(port.get("name"), port["protocol"]): port.get("nodePort") for port in old.get("ports") or ()}
        merged["ports"] = [
            {**port, "nodePort": port.get("nodePort") or allocated.get((port.get("name"), port.get("protocol", "TCP")))}
            for port in merged.get("ports") or ()
        ]
        if merged.get("externalTrafficPolicy") == "Local" and old.get("healthCheckNodePort"):
            merged.setdefault("healthCheckNodePort", old["healthCheckNodePort"])
    return merged


def _slice(obj: Object) -> Object:
    if obj.get("addressType") not in ("IPv4", "IPv6", "FQDN"):
        cause = ("FieldValueRequired", "Required value", "addressType")
        raise invalid("EndpointSlice", obj["metadata"]["name"], [cause], group="discovery.k8s.io")
    ports = [{"name": "", "protocol": "TCP", **port} for port in obj.get("ports") or ()]
    return {**obj, "endpoints": obj.get("endpoints") or [], "ports": ports}


def check_name(resource: Resource, obj: Object) -> None:
    """Raise ApiError for an object without a name."""
    if not isinstance(obj.get("metadata"), Mapping) or not obj["metadata"].get("name"):
        cause = ("FieldValueRequired", "Required value: name or generateName is required", "metadata.name")
        raise invalid(resource.kind, "", [cause], group=resource.group)
