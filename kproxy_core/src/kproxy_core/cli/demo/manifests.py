"""The manifests of the demo: pure functions that make Kubernetes objects, and the folder that they are written to."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from attrs import frozen

from kproxy_core.cli.demo.services import NAMESPACE, DemoService
from kproxy_core.testing.lab import AddressPair

Manifest = Mapping[str, Any]


@frozen(kw_only=True)
class DemoEndpoint:
    """An endpoint as the slice controller of a cluster would write it; terminating ones still serve, and are not ready."""

    pod: str
    node: str
    addresses: AddressPair
    terminating: bool = False


def service_manifest(service: DemoService) -> Manifest:
    """The Service object, as the API server would return it."""
    port: dict[str, Any] = {"name": service.name, "protocol": service.protocol.name, "port": service.port}
    if service.node_port:
        port["nodePort"] = service.node_port
    spec: dict[str, Any] = {
        "type": service.type,
        "clusterIP": service.cluster.ipv4,
        "clusterIPs": [service.cluster.ipv4, service.cluster.ipv6],
        "ipFamilies": ["IPv4", "IPv6"],
        "ipFamilyPolicy": "RequireDualStack",
        "internalTrafficPolicy": "Cluster",
        "ports": [port],
        "sessionAffinity": "ClientIP" if service.sticky else "None",
    }
    if service.sticky:
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 600}}
    if service.type != "ClusterIP":
        spec["externalTrafficPolicy"] = "Local" if service.local else "Cluster"
    manifest: dict[str, Any] = {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(service.name), "spec": spec}
    if service.load_balancer:
        addresses = (service.load_balancer.ipv4, service.load_balancer.ipv6)
        manifest["status"] = {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"} for address in addresses]}}
    return manifest


def slice_manifests(service: DemoService, endpoints: Iterable[DemoEndpoint]) -> tuple[Manifest, Manifest]:
    """The two EndpointSlices of a Service, one for each IP family."""
    every = tuple(endpoints)
    return _slice(service, every, ipv6=False), _slice(service, every, ipv6=True)


def _slice(service: DemoService, endpoints: Iterable[DemoEndpoint], ipv6: bool) -> Manifest:
    family = "IPv6" if ipv6 else "IPv4"
    metadata = _metadata(f"{service.name}-{family.lower()}")
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": {"kubernetes.io/service-name": service.name}},
        "addressType": family,
        "ports": [{"name": service.name, "protocol": service.protocol.name, "port": service.target_port}],
        "endpoints": [
            {
                "addresses": [endpoint.addresses.ipv6 if ipv6 else endpoint.addresses.ipv4],
                "nodeName": endpoint.node,
                "conditions": {"ready": not endpoint.terminating, "serving": True, "terminating": endpoint.terminating},
                "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": endpoint.pod},
            }
            for endpoint in endpoints
        ],
    }


def _metadata(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE}


def node_manifest(name: str, addresses: AddressPair, pod_ranges: Iterable[object]) -> Manifest:
    """The Node object."""
    ranges = [str(pod_range) for pod_range in pod_ranges]
    internal = [{"type": "InternalIP", "address": address} for address in (addresses.ipv4, addresses.ipv6)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"podCIDR": ranges[0], "podCIDRs": ranges},
        "status": {"addresses": internal},
    }


def service_cidr_manifest(ranges: Iterable[object]) -> Manifest:
    """The ServiceCIDR object: the ranges of cluster addresses."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": [str(one) for one in ranges]},
    }


class ManifestFolder:
    """A folder of manifests; each file is replaced in one step, so that no half-written one is ever read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, manifests: Iterable[Manifest]) -> None:
        """Write NAME.yaml."""
        # By way of JSON: YAML would abbreviate what appears twice by anchors, and people are to read and edit this.
        documents = [json.loads(json.dumps(manifest)) for manifest in manifests]
        text = "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents)
        unfinished = self.path / f".{name}.unfinished"
        unfinished.write_text(text)
        os.replace(unfinished, self.path / f"{name}.yaml")  # noqa: PTH105 - says that it is one step
