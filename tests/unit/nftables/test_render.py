"""Programs as text: what ``kproxy render`` prints, held against files. KPROXY_GOLDEN=write writes them anew, to be looked at."""

import os
from pathlib import Path

import pytest
from attrs import evolve

from kproxy_core.config.settings import DetectLocalMode, NodePortScope, Settings
from kproxy_core.model.addresses import parse_address, parse_network
from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.snapshot import ClusterSnapshot, Kind
from kproxy_core.testing.node import read_manifests
from kproxy_core.testing.oracle import Scene, Site

from .on_paper import BACKEND, compiled, resolved

FOLDER = Path(__file__).parent / "golden"
NODE = """
{kind: Node, apiVersion: v1, metadata: {name: n1}, spec: {podCIDRs: [10.244.1.0/24, "fd00:244:1::/64"]},
 status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: "2001:db8::1"}]}}
"""
PLAIN = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: NodePort
  clusterIPs: [10.96.0.10, "fd00:96::a"]
  ports: [{name: http, port: 80, nodePort: 30080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-4, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.244.1.5], nodeName: n1}
- {addresses: [10.244.2.5], nodeName: n2}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-6, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv6
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: ["fd00:244:1::5"], nodeName: n1}
"""
BALANCED = """
apiVersion: v1
kind: Service
metadata: {name: dns, namespace: kube-system}
spec:
  type: LoadBalancer
  clusterIPs: [10.96.0.11]
  externalIPs: [203.0.113.7]
  externalTrafficPolicy: Local
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 300}}
  loadBalancerSourceRanges: [198.51.100.0/24, 10.0.0.0/8]
  ports: [{name: dns, port: 53, protocol: UDP}]
status: {loadBalancer: {ingress: [{ip: 203.0.113.8}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: dns-4, namespace: kube-system, labels: {kubernetes.io/service-name: dns}}
addressType: IPv4
ports: [{name: dns, port: 5353, protocol: UDP}]
endpoints:
- {addresses: [10.244.1.6], nodeName: n1}
- {addresses: [10.244.2.6], nodeName: n2}
---
apiVersion: v1
kind: Service
metadata: {name: empty, namespace: shop}
spec: {clusterIPs: [10.96.0.12], ports: [{port: 9000, protocol: SCTP}]}
---
{kind: ServiceCIDR, apiVersion: networking.k8s.io/v1, metadata: {name: kubernetes}, spec: {cidrs: [10.96.0.0/16]}}
"""
POD_NETWORKS = (parse_network("10.244.0.0/16"), parse_network("fd00:244::/32"))
USUAL = Settings(node_name="n1", cluster_cidrs=POD_NETWORKS)
CASES: dict[str, tuple[str, Settings]] = {
    "nothing": ("", USUAL),
    "plain": (PLAIN + "---" + NODE, USUAL),
    "balanced": (BALANCED + "---" + NODE, USUAL),
    "bridge-everywhere": (
        PLAIN,
        evolve(
            USUAL,
            detect_local_mode=DetectLocalMode.BRIDGE_INTERFACE,
            bridge_interface="cni0",
            node_port_addresses=NodePortScope.ALL,
            masquerade_bit=3,
        ),
    ),
}


def scene_of(objects: tuple[WatchedObject, ...], settings: Settings) -> Scene:
    from kproxy_core.model.objects import EndpointSlice, Node, Service, ServiceCIDR

    slices: dict[object, dict[object, EndpointSlice]] = {}
    for each in objects:
        if isinstance(each, EndpointSlice):
            slices.setdefault(each.service, {})[each.name] = each
    snapshot = ClusterSnapshot(
        services={each.name: each for each in objects if isinstance(each, Service)},
        slices=slices,  # type: ignore[arg-type]
        node=next((each for each in objects if isinstance(each, Node)), None),
        service_cidrs={each.name: each for each in objects if isinstance(each, ServiceCIDR)},
        synced=frozenset(Kind),
    )
    return Scene(snapshot=snapshot, settings=settings, site=Site(name="n1", addresses=(parse_address("192.0.2.1"),)))


@pytest.mark.parametrize("name", CASES)
def test_programs_are_rendered_as_agreed(name: str) -> None:
    text, settings = CASES[name]
    program = compiled(resolved(scene_of(read_manifests(text), settings)))
    rendered = BACKEND.render(program)
    path = FOLDER / f"{name}.txt"
    if os.environ.get("KPROXY_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(rendered)
    assert rendered == path.read_text()
