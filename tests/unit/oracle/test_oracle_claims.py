"""The oracle on rival claims, on the addresses that answer NodePorts, and on the guard, by hand."""

import pytest
from attrs import evolve

from kproxy_core.config.settings import NodePortScope, Settings
from kproxy_core.model.addresses import parse_address, parse_network
from kproxy_core.model.objects import Service
from kproxy_core.model.packet import Dropped, Packet, Refused, Untouched, Verdict
from kproxy_core.testing.oracle import Scene, decide

from .cluster import NODE, SETTINGS, SITE, endpoint, from_node, from_outside, from_pod, piece, service, snapshot, to

ANN = to("10.244.1.11:8080*")
BOB = to("10.244.1.12:8080*")
PIECES = (piece("shop/ann", "8080", "10.244.1.11"), piece("shop/bob", "8080", "10.244.1.12"))
API_SERVER = (
    service("default/kubernetes", "10.96.0.1", "https=443"),
    piece("default/kubernetes", "https=6443", endpoint("192.0.2.1", node_name="n1")),
)


def scene(*services: Service, settings: Settings = SETTINGS) -> Scene:
    return Scene(snapshot=snapshot(services, PIECES), settings=settings, site=SITE)


def test_the_oldest_wins_an_address_and_the_heir_takes_over() -> None:
    ann = service("shop/ann", "10.96.0.10", "80", external="203.0.113.20", created=2.0)
    bob = service("shop/bob", "10.96.0.11", "80", balancer="203.0.113.20", created=1.0)
    assert decide(scene(ann, bob), from_outside("203.0.113.20:80")) == BOB
    assert decide(scene(ann), from_outside("203.0.113.20:80")) == ANN
    # Of one age, the name decides; an unknown age is young.
    assert decide(scene(evolve(ann, created=1.0), bob), from_outside("203.0.113.20:80")) == ANN
    assert decide(scene(ann, evolve(bob, created=float("inf"))), from_outside("203.0.113.20:80")) == ANN
    # A winner without endpoints is the winner all the same.
    nobody = evolve(bob, name=service("shop/nobody").name)
    assert decide(scene(ann, nobody), from_outside("203.0.113.20:80")) == Refused()


def test_rivals_for_one_port_keep_their_other_ports() -> None:
    ann = service("shop/ann", "10.96.0.10", "a=80 b=81", external="203.0.113.20", created=1.0)
    bob = service("shop/bob", "10.96.0.11", "80 c=82", external="203.0.113.20", created=2.0)
    at = scene(ann, bob)
    at = evolve(
        at, snapshot=snapshot([ann, bob], [piece("shop/ann", "a=1 b=2", "10.244.1.11"), piece("shop/bob", "c=3", "10.244.1.12")])
    )
    assert decide(at, from_outside("203.0.113.20:81")) == to("10.244.1.11:2*")
    assert decide(at, from_outside("203.0.113.20:82")) == to("10.244.1.12:3*")
    assert decide(at, from_outside("203.0.113.20:80")) == to("10.244.1.11:1*")


def test_an_older_external_address_takes_a_cluster_address() -> None:
    ann = service("shop/ann", "10.96.0.10", "80", created=2.0)
    bob = service("shop/bob", "10.96.0.11", "80", external="10.96.0.10", created=1.0)
    assert decide(scene(ann, bob), from_pod("10.96.0.10:80")) == BOB
    # Nothing of it is served as a cluster address any more, until there is another port.
    assert decide(scene(ann, bob), from_pod("10.96.0.10:81")) == Dropped()
    ann = service("shop/ann", "10.96.0.10", "a=80 b=82", created=2.0)
    assert decide(scene(ann, bob), from_pod("10.96.0.10:81")) == Refused()


def test_the_oldest_wins_a_nodeport() -> None:
    ann = service("shop/ann", "10.96.0.10", "80@30080", created=2.0)
    bob = service("shop/bob", "10.96.0.11", "80@30080", created=1.0)
    assert decide(scene(ann, bob), from_outside("192.0.2.1:30080")) == BOB


def test_an_address_beats_a_nodeport_there_whoever_is_older() -> None:
    ann = service("shop/ann", "10.96.0.10", "30080", external="192.0.2.1", created=2.0)
    bob = service("shop/bob", "10.96.0.11", "80@30080", created=1.0)
    at = scene(ann, bob, settings=evolve(SETTINGS, node_port_addresses=NodePortScope.ALL))
    assert decide(at, from_outside("192.0.2.1:30080")) == ANN
    assert decide(at, from_outside("192.0.2.101:30080")) == BOB


@pytest.mark.parametrize(
    ("chosen", "answering"),
    [
        (None, {"192.0.2.1", "2001:db8::1"}),
        (NodePortScope.PRIMARY, {"192.0.2.1", "2001:db8::1"}),
        (NodePortScope.ALL, {"192.0.2.1", "192.0.2.101", "2001:db8::1", "fe80::1"}),
        ("192.0.2.100/30", {"192.0.2.101"}),
        ("0.0.0.0/0", {"192.0.2.1", "192.0.2.101"}),
        ("127.0.0.0/8 ::/0", {"2001:db8::1"}),
        ("", set()),
    ],
)
def test_addresses_that_answer_nodeports(chosen: NodePortScope | str | None, answering: set[str]) -> None:
    ann = service("shop/ann", "10.96.0.10 fd00:96::10", "80@30080")
    selection = tuple(map(parse_network, chosen.split())) if isinstance(chosen, str) else chosen
    at = scene(ann, settings=evolve(SETTINGS, node_port_addresses=selection))
    told = {str(address) for address in (*SITE.addresses, *NODE.external_addresses, *map(parse_address, ["192.0.2.2"]))}
    assert {address for address in told if decide(at, _node_port(address)) != Untouched()} == answering


def _node_port(address: str) -> Packet:
    return from_outside(f"[{address}]:30080" if ":" in address else f"{address}:30080")


def test_the_primary_address_is_bound_or_the_nodes_first_internal_before_external() -> None:
    at = scene(service("shop/ann", "10.96.0.10", "80@30080"))
    bound = evolve(at, settings=evolve(SETTINGS, bind_address=parse_address("192.0.2.101")))
    assert decide(bound, _node_port("192.0.2.101")) == ANN
    assert decide(bound, _node_port("192.0.2.1")) == Untouched()
    unbound = evolve(at, settings=evolve(SETTINGS, bind_address=parse_address("0.0.0.0")))
    assert decide(unbound, _node_port("192.0.2.1")) == ANN
    external = evolve(at, snapshot=evolve(at.snapshot, node=evolve(NODE, internal_addresses=())))
    assert decide(external, _node_port("203.0.113.1")) == ANN
    addressless = evolve(at, snapshot=evolve(at.snapshot, node=evolve(NODE, internal_addresses=(), external_addresses=())))
    assert decide(addressless, _node_port("192.0.2.1")) == Untouched()
    # Without a Node object, as when there is no cluster, the interfaces tell.
    nodeless = evolve(at, snapshot=evolve(at.snapshot, node=None))
    assert decide(nodeless, _node_port("192.0.2.1")) == ANN
    assert decide(nodeless, _node_port("192.0.2.101")) == Untouched()
    everywhere = evolve(at, site=evolve(SITE, node_ports_everywhere=True))
    assert decide(everywhere, _node_port("192.0.2.101")) == ANN


@pytest.mark.parametrize("odd", ["127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "::1", "fe80::1", "ff02::1", "::"])
def test_the_guard_leaves_out_impossible_addresses(odd: str) -> None:
    """k/k#102106: an endpoint on loopback would lead outsiders to the node's own daemons."""
    ann = service("shop/ann", "10.96.0.10 fd00:96::10", "80", external=odd, balancer=odd)
    at = scene(ann)
    destination = f"[{odd}]:80" if ":" in odd else f"{odd}:80"
    assert decide(at, from_node(destination)) == Untouched()
    at = evolve(at, snapshot=snapshot([ann], [piece("shop/ann", "8080", odd)]))
    assert decide(at, from_pod("[fd00:96::10]:80" if ":" in odd else "10.96.0.10:80")) == Refused()


def test_the_guard_lets_addresses_be_that_are_merely_unusual() -> None:
    ann = service("shop/ann", "10.96.0.10", "80", external="240.0.0.7")
    at = evolve(scene(ann), snapshot=snapshot([ann], [piece("shop/ann", "8080", "240.0.0.1", "0.1.2.3", "169.255.0.1")]))
    assert decide(at, from_outside("240.0.0.7:80")) == to("240.0.0.1:8080*", "0.1.2.3:8080*", "169.255.0.1:8080*")


@pytest.mark.parametrize(
    ("destination", "expected"),
    [
        ("192.0.2.1:22", Untouched()),  # SSH by NodePort
        ("192.0.2.1:22/udp", ANN),  # is TCP
        ("192.0.2.101:22", Untouched()),  # SSH by external address
        ("203.0.113.1:10250", Untouched()),  # the kubelet, by the balancer's address
        ("203.0.113.1:80", ANN),
        ("203.0.113.20:22", ANN),  # not an address of the node
    ],
)
def test_the_guard_keeps_the_nodes_own_ports(destination: str, expected: Verdict) -> None:
    ann = service(
        "shop/ann",
        "10.96.0.10",
        "ssh=22@22 ssh-udp=22/udp@22 kubelet=10250 http=80",
        external="192.0.2.101 203.0.113.20",
        balancer="203.0.113.1",
    )
    at = scene(ann)
    at = evolve(
        at, snapshot=snapshot([ann], [piece("shop/ann", "ssh=8080 ssh-udp=8080/udp kubelet=8080 http=8080", "10.244.1.11")])
    )
    assert decide(at, from_outside(destination)) == expected
    unprotected = evolve(at, settings=evolve(SETTINGS, protected_ports=frozenset()))
    assert decide(unprotected, from_outside(destination)) == ANN


@pytest.mark.parametrize(
    ("service_made", "destination", "expected"),
    [
        (service("shop/ann", "10.96.0.10", "80@6443"), "192.0.2.1:6443", Untouched()),
        (service("shop/ann", "10.96.0.10", "6443", external="192.0.2.1"), "192.0.2.1:6443", Untouched()),
        (service("shop/ann", "10.96.0.10", "6443", balancer="192.0.2.1"), "192.0.2.1:6443", Untouched()),
        (service("shop/ann", "192.0.2.1", "6443"), "192.0.2.1:6443", Untouched()),
        (service("shop/ann", "10.96.0.10", "443", external="192.0.2.1"), "192.0.2.1:443", ANN),
        (service("shop/ann", "10.96.0.10", "6443/udp@6443", external="192.0.2.1"), "192.0.2.1:6443/udp", Refused()),
        (service("shop/ann", "10.96.0.10 fd00:96::10", "80@6443"), "[2001:db8::1]:6443", Refused()),
        (service("default/kubernetes", "10.96.0.1", "https=6443", external="192.0.2.1"), "192.0.2.1:6443", to("192.0.2.1:6443*")),
    ],
)
def test_the_guard_keeps_the_api_server(service_made: Service, destination: str, expected: Verdict) -> None:
    kubernetes, endpoints = API_SERVER
    at = Scene(snapshot=snapshot([kubernetes, service_made], [*PIECES, endpoints]), settings=SETTINGS, site=SITE)
    assert decide(at, from_node(destination)) == expected


def test_the_guard_leaves_out_a_cluster_address_that_is_the_nodes_or_an_api_servers() -> None:
    """Its other ports would be refused, SSH and the API server among them."""
    kubernetes, endpoints = API_SERVER
    far = piece("default/kubernetes", "https=6443", endpoint("192.0.2.8", node_name="n0"), suffix="2")
    for taken in ("192.0.2.101", "192.0.2.8"):
        services = [kubernetes, service("shop/ann", taken, "80")]
        at = Scene(snapshot=snapshot(services, [*PIECES, endpoints, far]), settings=SETTINGS, site=SITE)
        for port in (80, 22, 6443):
            assert decide(at, from_outside(f"{taken}:{port}")) == Untouched()


def test_a_claim_that_the_guard_refuses_leaves_the_frontend_to_the_next() -> None:
    ann = service("shop/ann", "10.96.0.10", "6443", balancer="203.0.113.9", created=1.0)
    kubernetes = service("default/kubernetes", "10.96.0.1", "https=6443", external="203.0.113.9", created=2.0)
    pieces = [*PIECES, piece("default/kubernetes", "https=6443", endpoint("203.0.113.9", node_name="n0"))]
    at = Scene(snapshot=snapshot([ann, kubernetes], pieces), settings=SETTINGS, site=SITE)
    assert decide(at, from_outside("203.0.113.9:6443")) == to("203.0.113.9:6443*")
