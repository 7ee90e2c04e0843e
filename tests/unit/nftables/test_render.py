"""Programs as text: what ``kproxy render`` prints, held against files. KPROXY_GOLDEN=write writes them anew, to be looked at."""

import os
import re
from pathlib import Path

import pytest
from attrs import evolve

from kproxy_core.config.settings import DetectLocalMode, NodePortScope, Settings
from kproxy_core.model.addresses import Family, parse_address, parse_network
from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.names import Protocol
from kproxy_core.model.snapshot import ClusterSnapshot, Kind
from kproxy_core.program.program import Program, objects
from kproxy_core.testing.node import read_manifests
from kproxy_core.testing.oracle import Scene, Site
from kproxy_nftables import numbered, sets
from kproxy_nftables.attribution import attribute
from kproxy_nftables.objects import Key, Owned, Value, address_and_port, number, protocol_and_port
from kproxy_nftables.scaffold import scaffold

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


def program_of(name: str) -> Program[Key, Value]:
    """The program of one of the cases."""
    text, settings = CASES[name]
    return compiled(resolved(scene_of(read_manifests(text), settings)))


@pytest.mark.parametrize("name", CASES)
def test_programs_are_rendered_as_agreed(name: str) -> None:
    rendered = BACKEND.render(program_of(name))
    path = FOLDER / f"{name}.txt"
    if os.environ.get("KPROXY_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(rendered)
    assert rendered == path.read_text()


@pytest.mark.parametrize("name", CASES)
def test_each_element_is_told_once(name: str) -> None:
    """With its Service, or where it is."""
    program = program_of(name)
    elements = [(place, key) for place, key in numbered.spread(objects(program)) if isinstance(key, bytes)]
    rendered = BACKEND.render(program)
    told = sum(int(count) for count in re.findall(r"# (\d+) elements?, told", rendered))
    assert told + len(re.findall(r"^\t\t\t.*,$", rendered, re.MULTILINE)) == len(elements)


def test_what_is_nobodys_or_leads_nowhere_is_shown_as_it_is() -> None:
    """A program may have been read from a kernel in which others have been at work."""
    ip, port = parse_address("10.96.0.10"), protocol_and_port(Protocol.TCP, 80)
    address, endpoint = ip + port, address_and_port(parse_address("10.1.0.2"), 8080)
    found: dict[Key, Value] = {
        **scaffold(resolved(scene_of((), USUAL)).node, [Family.IPV4]),
        (f"ip {sets.SERVICES}", address): Owned(number(7), "default/web/TCP"),
        (f"ip {sets.ACTIONS}", address): number(5),
        (f"ip {sets.OUTSIDE_ACTIONS}", address[:-4] + b"\0\x51\0\0"): number(2),
        (f"ip {sets.ENDPOINTS}", number(8)): number(0) + endpoint,
        (f"ip {sets.STICKY_SLOTS}", number(7)): number(0) + number(99),
    }
    rendered = BACKEND.render(attribute(found))
    assert "service default/web/TCP { # id 7" in rendered
    assert "tcp 10.96.0.10:80 -> action 5" in rendered
    assert "endpoints: nothing (number 99)" in rendered
    assert "10.96.0.10 . tcp . 81 : 2," in rendered
    assert "8 . 0 : 10.1.0.2 . 8080," in rendered


def test_weights_are_told() -> None:
    weights = 'annotations: {kproxy.dev/weights: "10.244.1.5=3"}'
    text = PLAIN.replace("{name: web, namespace: shop}", f"{{name: web, namespace: shop, {weights}}}")
    rendered = BACKEND.render(compiled(resolved(scene_of(read_manifests(text), USUAL))))
    assert "choose among 4" in rendered
    assert "endpoints: 10.244.1.5:8080 x3, 10.244.2.5:8080 x1" in rendered
