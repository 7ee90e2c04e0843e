"""The Services of the demo and their pods: what each is there to show."""

from attrs import frozen

from kproxy_core.model.names import Protocol
from kproxy_core.testing.lab import AddressPair

NAMESPACE = "demo"
NODE, NODE2 = "node", "node2"


@frozen(kw_only=True)
class DemoPod:
    """A pod: its name, its node, and whether it is a port of the node's bridge or has a route of its own."""

    name: str
    node: str = NODE
    bridged: bool = False


@frozen(kw_only=True)
class DemoService:
    """A Service in both IP families with one port. ``shows`` is why it is there.

    ``load_balancer`` are its load balancer addresses; ``local`` is external traffic policy Local, ``sticky`` session affinity
    ClientIP. ``rate`` is how many connections a second the demo makes to it.
    """

    name: str
    type: str = "ClusterIP"
    shows: str
    protocol: Protocol = Protocol.TCP
    port: int
    target_port: int
    node_port: int = 0
    cluster: AddressPair
    load_balancer: AddressPair | None = None
    local: bool = False
    sticky: bool = False
    pods: tuple[DemoPod, ...]
    rate: float = 30.0


WEB = DemoService(
    name="web",
    shows="asked by a pod and the node; its pods get replaced",
    port=80,
    target_port=8080,
    cluster=AddressPair(ipv4="10.96.0.10", ipv6="fd00:96::10"),
    pods=(DemoPod(name="web-1"), DemoPod(name="web-2", node=NODE2), DemoPod(name="web-3", bridged=True)),
    rate=200.0,
)
DNS = DemoService(
    name="dns",
    shows="UDP, asked by a pod",
    protocol=Protocol.UDP,
    port=53,
    target_port=5353,
    cluster=AddressPair(ipv4="10.96.0.53", ipv6="fd00:96::53"),
    pods=(DemoPod(name="dns-1"), DemoPod(name="dns-2", node=NODE2)),
)
API = DemoService(
    name="api",
    type="NodePort",
    shows="asked from outside, at the node's own address",
    port=443,
    target_port=8443,
    node_port=30443,
    cluster=AddressPair(ipv4="10.96.0.20", ipv6="fd00:96::20"),
    pods=(DemoPod(name="api-1"), DemoPod(name="api-2", node=NODE2)),
)
MAIL = DemoService(
    name="mail",
    type="LoadBalancer",
    shows="policy Local: this node's pods, which see who asks",
    port=25,
    target_port=2525,
    node_port=30025,
    cluster=AddressPair(ipv4="10.96.0.25", ipv6="fd00:96::25"),
    load_balancer=AddressPair(ipv4="198.51.100.25", ipv6="2001:db8:1b::25"),
    local=True,
    pods=(DemoPod(name="mail-1"), DemoPod(name="mail-2", bridged=True), DemoPod(name="mail-3", node=NODE2)),
)
CART = DemoService(
    name="cart",
    type="LoadBalancer",
    shows="session affinity: each client stays with its pod",
    port=8000,
    target_port=8000,
    node_port=30800,
    cluster=AddressPair(ipv4="10.96.0.80", ipv6="fd00:96::80"),
    load_balancer=AddressPair(ipv4="198.51.100.80", ipv6="2001:db8:1b::80"),
    sticky=True,
    pods=(DemoPod(name="cart-1"), DemoPod(name="cart-2"), DemoPod(name="cart-3", node=NODE2)),
)

SERVICES = (WEB, DNS, API, MAIL, CART)
CLIENT = DemoPod(name="client")
