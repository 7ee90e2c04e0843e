"""The oracle against verdicts that were written down by hand from the rules, packet by packet over one readable cluster."""

import pytest

from kproxy_core.model.packet import Dropped, Packet, Refused, Untouched, Verdict
from kproxy_core.testing.oracle import verdict

from .cluster import LOCAL, SETTINGS, SITE, endpoint, from_node, from_outside, from_pod, piece, service, snapshot, to

SERVICES = (
    # Everything by the defaults: endpoints on both nodes, both families, every kind of frontend.
    service(
        "shop/web", "10.96.0.10 fd00:96::10", "http=80@30080", external="203.0.113.20", balancer="203.0.113.10 2001:db8:b::10"
    ),
    # Outside traffic is held to the node; there is an endpoint here and one elsewhere.
    service("shop/local", "10.96.0.11", "80@30081", balancer="203.0.113.11", external_policy=LOCAL),
    # The same without an endpoint here.
    service("shop/remote", "10.96.0.12", "80@30082", balancer="203.0.113.12", external_policy=LOCAL),
    # Cluster traffic is held to the node, and there is no endpoint here.
    service("shop/inner", "10.96.0.13", "80@30083", internal_policy=LOCAL),
    # No endpoint at all, and a balancer that lets 198.18.1.0/24 in.
    service("shop/empty", "10.96.0.14", "80@30084", external="203.0.113.24", balancer="203.0.113.14", ranges="198.18.1.0/24"),
    # A balancer that lets in the clients outside and the node, but no pods.
    service("shop/picky", "10.96.0.15", "443", balancer="203.0.113.15", ranges="198.18.0.0/24 192.0.2.0/24"),
    # TCP and UDP on one port, one NodePort for both, different endpoints.
    service("kube-system/dns", "10.96.0.16", "dns=53/udp@30053 dns-tcp=53/tcp@30053"),
    # The API server.
    service("default/kubernetes", "10.96.0.1", "https=443"),
)
PIECES = (
    piece("shop/web", "http=8080", "10.244.1.11", "10.244.2.21"),
    piece("shop/web", "http=8080", "fd00:244:1::11", "fd00:244:2::21", suffix="6"),
    piece("shop/local", "8080", "10.244.1.12", "10.244.2.22"),
    piece("shop/remote", "8080", "10.244.2.23"),
    piece("shop/inner", "8080", "10.244.2.24"),
    piece("shop/picky", "8443", "10.244.2.25"),
    piece("kube-system/dns", "dns=5353/udp", "10.244.1.16"),
    piece("kube-system/dns", "dns-tcp=5353/tcp", "10.244.2.26", suffix="2"),
    piece("default/kubernetes", "https=6443", endpoint("192.0.2.8", node_name="n0")),
)
CLUSTER = snapshot(SERVICES, PIECES)

WEB = to("10.244.1.11:8080", "10.244.2.21:8080")
WEB_MASQUERADED = to("10.244.1.11:8080*", "10.244.2.21:8080*")
WEB6 = to("[fd00:244:1::11]:8080", "[fd00:244:2::21]:8080")
WEB6_MASQUERADED = to("[fd00:244:1::11]:8080*", "[fd00:244:2::21]:8080*")

BY_HAND: tuple[tuple[str, Packet, Verdict], ...] = (
    # Cluster addresses: pods as they are, everybody else masqueraded.
    ("cluster address from a pod", from_pod("10.96.0.10:80"), WEB),
    ("cluster address from the node", from_node("10.96.0.10:80"), WEB_MASQUERADED),
    ("cluster address from outside", from_outside("10.96.0.10:80"), WEB_MASQUERADED),
    ("cluster address from a pod of another node", from_outside("10.96.0.10:80", "10.244.2.9"), WEB),
    ("cluster address from the node with a pod address", from_node("10.96.0.10:80", "10.244.1.1"), WEB),
    ("hairpin", from_pod("10.96.0.10:80", "10.244.1.11"), to("10.244.1.11:8080*", "10.244.2.21:8080")),
    ("cluster address in IPv6 from a pod", from_pod("[fd00:96::10]:80"), WEB6),
    ("cluster address in IPv6 from the node", from_node("[fd00:96::10]:80"), WEB6_MASQUERADED),
    ("another port of a cluster address", from_pod("10.96.0.10:81"), Refused()),
    ("another protocol of a cluster address", from_pod("10.96.0.10:80/udp"), Refused()),
    ("the endpoints' port at a cluster address", from_pod("10.96.0.10:8080"), Refused()),
    ("the NodePort at a cluster address", from_outside("10.96.0.10:30080"), Refused()),
    ("an unallocated cluster address", from_pod("10.96.0.200:80"), Dropped()),
    ("an unallocated cluster address in IPv6", from_node("[fd00:96::200]:80"), Dropped()),
    ("an address beside the ServiceCIDR", from_pod("10.96.1.10:80"), Untouched()),
    ("an endpoint itself", from_pod("10.244.2.21:8080"), Untouched()),
    # External frontends with policy Cluster: always masqueraded.
    ("external address from outside", from_outside("203.0.113.20:80"), WEB_MASQUERADED),
    ("external address from a pod", from_pod("203.0.113.20:80"), WEB_MASQUERADED),
    ("balancer address from the node", from_node("203.0.113.10:80"), WEB_MASQUERADED),
    ("balancer address in IPv6", from_outside("[2001:db8:b::10]:80"), WEB6_MASQUERADED),
    ("another port of an external address", from_outside("203.0.113.20:81"), Untouched()),
    ("another protocol of a balancer address", from_outside("203.0.113.10:80/udp"), Untouched()),
    # NodePorts: on the primary addresses.
    ("NodePort from outside", from_outside("192.0.2.1:30080"), WEB_MASQUERADED),
    ("NodePort from a pod", from_pod("192.0.2.1:30080"), WEB_MASQUERADED),
    ("NodePort from the node", from_node("192.0.2.1:30080"), WEB_MASQUERADED),
    ("NodePort in IPv6", from_outside("[2001:db8::1]:30080"), WEB6_MASQUERADED),
    ("NodePort at a second address", from_outside("192.0.2.101:30080"), Untouched()),
    ("NodePort at loopback", from_node("127.0.0.1:30080", "127.0.0.1"), Untouched()),
    ("NodePort at the Node's external address", from_outside("203.0.113.1:30080"), Untouched()),
    ("NodePort at another node", from_pod("192.0.2.2:30080"), Untouched()),
    ("NodePort of a Service without IPv6, in IPv6", from_outside("[2001:db8::1]:30081"), Untouched()),
    ("the Service's port at the node", from_outside("192.0.2.1:80"), Untouched()),
    # Policy Local for outside traffic.
    ("policy Local from outside", from_outside("203.0.113.11:80"), to("10.244.1.12:8080")),
    ("policy Local, NodePort from outside", from_outside("192.0.2.1:30081"), to("10.244.1.12:8080")),
    ("policy Local from a pod", from_pod("203.0.113.11:80"), to("10.244.1.12:8080", "10.244.2.22:8080")),
    ("policy Local from the node", from_node("203.0.113.11:80"), to("10.244.1.12:8080*", "10.244.2.22:8080*")),
    ("policy Local, hairpin", from_pod("203.0.113.11:80", "10.244.1.12"), to("10.244.1.12:8080*", "10.244.2.22:8080")),
    ("policy Local, elsewhere only, from outside", from_outside("203.0.113.12:80"), Dropped()),
    ("policy Local, elsewhere only, NodePort from outside", from_outside("192.0.2.1:30082"), Dropped()),
    ("policy Local, elsewhere only, from a pod", from_pod("192.0.2.1:30082"), to("10.244.2.23:8080")),
    ("policy Local, elsewhere only, from the node", from_node("203.0.113.12:80"), to("10.244.2.23:8080*")),
    ("policy Local, cluster address", from_pod("10.96.0.12:80"), to("10.244.2.23:8080")),
    # Policy Local for traffic within the cluster.
    ("internal policy Local, elsewhere only", from_pod("10.96.0.13:80"), Dropped()),
    ("internal policy Local from the node", from_node("10.96.0.13:80"), Dropped()),
    ("internal policy Local, NodePort", from_outside("192.0.2.1:30083"), to("10.244.2.24:8080*")),
    # Nobody there.
    ("no endpoints, cluster address", from_pod("10.96.0.14:80"), Refused()),
    ("no endpoints, NodePort", from_outside("192.0.2.1:30084"), Refused()),
    ("no endpoints, external address", from_outside("203.0.113.24:80"), Refused()),
    ("no endpoints, balancer, source allowed", from_outside("203.0.113.14:80", "198.18.1.7"), Refused()),
    ("no endpoints, balancer, source not allowed", from_outside("203.0.113.14:80"), Dropped()),
    # Source ranges.
    ("source allowed", from_outside("203.0.113.15:443"), to("10.244.2.25:8443*")),
    ("source not allowed", from_outside("203.0.113.15:443", "198.18.1.7"), Dropped()),
    ("a pod is not allowed", from_pod("203.0.113.15:443"), Dropped()),
    ("the node is allowed", from_node("203.0.113.15:443"), to("10.244.2.25:8443*")),
    ("the node with the balancer's address is allowed", from_node("203.0.113.15:443", "203.0.113.15"), to("10.244.2.25:8443*")),
    ("source ranges leave the cluster address alone", from_pod("10.96.0.15:443"), to("10.244.2.25:8443")),
    # Protocols.
    ("DNS by UDP", from_pod("10.96.0.16:53/udp"), to("10.244.1.16:5353")),
    ("DNS by TCP", from_pod("10.96.0.16:53/tcp"), to("10.244.2.26:5353")),
    ("DNS by SCTP", from_pod("10.96.0.16:53/sctp"), Refused()),
    ("one NodePort by UDP", from_outside("192.0.2.1:30053/udp"), to("10.244.1.16:5353*")),
    ("one NodePort by TCP", from_outside("192.0.2.1:30053/tcp"), to("10.244.2.26:5353*")),
    ("the API server", from_pod("10.96.0.1:443"), to("192.0.2.8:6443")),
)


@pytest.mark.parametrize(("packet", "expected"), [row[1:] for row in BY_HAND], ids=[row[0] for row in BY_HAND])
def test_verdict(packet: Packet, expected: Verdict) -> None:
    assert verdict(CLUSTER, SETTINGS, SITE, packet) == expected


def test_the_table_is_long_enough_and_names_are_unique() -> None:
    assert len({row[0] for row in BY_HAND}) == len(BY_HAND) >= 40
