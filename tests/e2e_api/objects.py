"""API objects for the tests of this folder."""

from typing import Any

Object = dict[str, Any]


def service(
    name: str, port: int = 80, *, namespace: str = "default", labels: dict[str, str] | None = None, **spec: Any
) -> Object:
    """A Service with one port."""
    metadata: Object = {"name": name, "namespace": namespace, **({"labels": labels} if labels else {})}
    ports = [{"name": "p", "port": port, "protocol": "TCP", "targetPort": 8080}]
    return {"kind": "Service", "apiVersion": "v1", "metadata": metadata, "spec": {"ports": ports, **spec}}


def endpoint_slice(owner: str, *addresses: str, namespace: str = "default", labels: dict[str, str] | None = None) -> Object:
    """An EndpointSlice of a Service."""
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": f"{owner}-1",
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": owner, **(labels or {})},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}, "nodeName": "node"} for address in addresses],
        "ports": [{"name": "p", "port": 8080, "protocol": "TCP"}],
    }


def node(name: str, address: str = "192.168.100.1") -> Object:
    """A Node with an address."""
    status = {"addresses": [{"type": "InternalIP", "address": address}]}
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}, "status": status}
