"""The oracle against cases that users reported to Kubernetes and to other proxies, each by its number and in its own cluster."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from attrs import evolve

from kproxy_core.config.settings import DetectLocalMode, NodePortScope, Settings
from kproxy_core.model.addresses import Family, parse_address, parse_network
from kproxy_core.model.objects import EndpointSlice, LoadBalancerIngress, Service, ServiceType
from kproxy_core.model.packet import Dropped, Packet, Refused, Untouched, Verdict
from kproxy_core.testing.oracle import Scene, Site, decide

from .cluster import LOCAL, NODE, SETTINGS, SITE, endpoint, from_node, from_outside, from_pod, piece, service, snapshot, to

WEB = service("shop/web", "10.96.0.10", "80@30080", external="203.0.113.20", balancer="203.0.113.10")

Client = Callable[..., Packet]
Fields = dict[str, Any]


def scene(*services: Service, pieces: Iterable[EndpointSlice] = (), settings: Settings = SETTINGS, site: Site = SITE) -> Scene:
    return Scene(snapshot=snapshot(services, pieces), settings=settings, site=site)


def verdicts(at: Scene, *packets: Packet) -> list[Verdict]:
    return [decide(at, packet) for packet in packets]


FRONTENDS = ("10.96.0.10:80", "203.0.113.20:80", "203.0.113.10:80", "192.0.2.1:30080")


@pytest.mark.parametrize("destination", FRONTENDS)
@pytest.mark.parametrize("client", [from_pod, from_node, from_outside])
@pytest.mark.parametrize("entries", [(), ("10.244.2.21 -r",), ("10.244.1.11 -r -s +t", "10.244.2.21 -r -s")])
def test_s1_without_usable_endpoints_every_frontend_refuses(destination: str, client: Client, entries: tuple[str, ...]) -> None:
    at = scene(WEB, pieces=[piece("shop/web", "8080", *entries)])
    assert decide(at, client(destination)) == Refused()
    local = evolve(WEB, internal_policy=LOCAL, external_policy=LOCAL)
    at = scene(local, pieces=[piece("shop/web", "8080", *entries)])
    assert decide(at, client(destination)) == Refused()


def test_s2_endpoints_elsewhere_only_drop_where_the_policy_is_local() -> None:
    local = evolve(WEB, internal_policy=LOCAL, external_policy=LOCAL)
    at = scene(local, pieces=[piece("shop/web", "8080", "10.244.2.21")])
    assert verdicts(at, *map(from_outside, FRONTENDS)) == [Dropped()] * 4
    assert decide(at, from_pod("10.96.0.10:80")) == Dropped()
    # The last one elsewhere terminates but serves: it is an endpoint still.
    at = scene(local, pieces=[piece("shop/web", "8080", "10.244.2.21 -r +t")])
    assert decide(at, from_outside("203.0.113.10:80")) == Dropped()


def test_s3_a_nodeport_without_endpoints_shadows_a_daemon_of_the_host_on_the_chosen_addresses_only() -> None:
    at = scene(WEB)
    assert decide(at, from_outside("192.0.2.1:30080")) == Refused()
    assert decide(at, from_outside("192.0.2.101:30080")) == Untouched()
    chosen = evolve(SETTINGS, node_port_addresses=(parse_network("192.0.2.101/32"),))
    at = scene(WEB, settings=chosen)
    assert decide(at, from_outside("192.0.2.1:30080")) == Untouched()
    assert decide(at, from_outside("192.0.2.101:30080")) == Refused()


def test_s4_ports_that_a_service_address_does_not_serve() -> None:
    at = scene(WEB, pieces=[piece("shop/web", "8080", "10.244.2.21")])
    unused = [from_pod("10.96.0.10:443"), from_node("10.96.0.10:80/udp"), from_outside("10.96.0.10:22")]
    assert verdicts(at, *unused) == [Refused()] * 3
    assert verdicts(at, from_pod("10.96.0.77:80"), from_outside("[fd00:96::77]:1/sctp")) == [Dropped()] * 2
    assert verdicts(at, from_pod("203.0.113.10:443"), from_pod("10.97.0.1:80")) == [Untouched()] * 2


def test_s6_s7_a_pod_reaches_remote_endpoints_by_external_frontends_with_policy_local() -> None:
    local = evolve(WEB, external_policy=LOCAL)
    at = scene(local, pieces=[piece("shop/web", "8080", "10.244.2.21")])
    for destination in FRONTENDS[1:]:
        assert decide(at, from_pod(destination)) == to("10.244.2.21:8080")
        assert decide(at, from_node(destination)) == to("10.244.2.21:8080*")
        assert decide(at, from_outside(destination)) == Dropped()


def test_s6_s7_without_a_way_to_tell_pods_only_the_node_is_short_circuited() -> None:
    local = evolve(WEB, external_policy=LOCAL)
    at = scene(local, pieces=[piece("shop/web", "8080", "10.244.2.21")], settings=Settings(node_name="n1"))
    assert decide(at, from_pod("203.0.113.10:80")) == Dropped()
    assert decide(at, from_node("203.0.113.10:80")) == to("10.244.2.21:8080*")


def test_s10_external_addresses_follow_the_external_policy() -> None:
    local = evolve(WEB, external_policy=LOCAL)
    at = scene(local, pieces=[piece("shop/web", "8080", "10.244.1.11", "10.244.2.21")])
    assert decide(at, from_outside("203.0.113.20:80")) == to("10.244.1.11:8080")


def test_s12_a_cluster_address_is_unaffected_by_the_external_policy() -> None:
    local = evolve(WEB, external_policy=LOCAL)
    at = scene(local, pieces=[piece("shop/web", "8080", "10.244.2.21")])
    assert decide(at, from_pod("10.96.0.10:80")) == to("10.244.2.21:8080")
    assert decide(at, from_outside("10.96.0.10:80")) == to("10.244.2.21:8080*")


def test_s13_the_only_local_pod_terminates_but_serves() -> None:
    local = evolve(WEB, external_policy=LOCAL)
    at = scene(local, pieces=[piece("shop/web", "8080", "10.244.1.11 -r +t", "10.244.2.21")])
    assert decide(at, from_outside("203.0.113.10:80")) == to("10.244.1.11:8080")
    # Separately for the two sets: the cluster has a ready one.
    assert decide(at, from_pod("203.0.113.10:80")) == to("10.244.2.21:8080")
    # A ready one here ends it.
    at = scene(local, pieces=[piece("shop/web", "8080", "10.244.1.11 -r +t", "10.244.1.12")])
    assert decide(at, from_outside("203.0.113.10:80")) == to("10.244.1.12:8080")
    # One that terminates and no longer serves is none.
    at = scene(local, pieces=[piece("shop/web", "8080", "10.244.1.11 -r -s +t", "10.244.2.21")])
    assert decide(at, from_outside("203.0.113.10:80")) == Dropped()


def test_s15_a_nodeport_on_loopback_is_masqueraded_whatever_the_policy() -> None:
    packet = from_node("127.0.0.1:30080", "127.0.0.1")
    site = evolve(SITE, node_ports_everywhere=True, localhost_node_ports=frozenset({Family.IPV4}))
    for made in (WEB, evolve(WEB, external_policy=LOCAL)):
        at = scene(made, pieces=[piece("shop/web", "8080", "10.244.1.11")], site=site)
        assert decide(at, packet) == to("10.244.1.11:8080*")
        assert decide(at, from_node("127.8.8.8:30080", "127.0.0.1")) == to("10.244.1.11:8080*")
        assert decide(evolve(at, site=SITE), packet) == Untouched()
        primary = evolve(SETTINGS, node_port_addresses=NodePortScope.PRIMARY)
        assert decide(evolve(at, settings=primary), packet) == Untouched()


@pytest.mark.parametrize("client", [from_pod, from_node, from_outside])
def test_s32_source_ranges_hold_for_the_node_itself_and_for_pods(client: Client) -> None:
    made = service("shop/web", "10.96.0.10", "80", balancer="203.0.113.10", ranges="203.0.113.77/32")
    at = scene(made, pieces=[piece("shop/web", "8080", "10.244.1.11")])
    assert decide(at, client("203.0.113.10:80")) == Dropped()
    assert decide(at, client("203.0.113.10:80", "203.0.113.77")) == to("10.244.1.11:8080*")


def test_s34_an_address_in_mode_proxy_is_left_alone() -> None:
    proxied = LoadBalancerIngress(address=parse_address("203.0.113.99"), proxied=True)
    at = scene(evolve(WEB, ingress=(*WEB.ingress, proxied)), pieces=[piece("shop/web", "8080", "10.244.1.11")])
    assert decide(at, from_pod("203.0.113.99:80")) == Untouched()
    assert decide(at, from_pod("203.0.113.10:80")) == to("10.244.1.11:8080*")


def test_s35_two_ports_on_one_address_are_two_endpoints() -> None:
    pieces = [piece("shop/web", "8080", "10.244.1.11"), piece("shop/web", "8081", "10.244.1.11", suffix="2")]
    assert decide(scene(WEB, pieces=pieces), from_pod("10.96.0.10:80")) == to("10.244.1.11:8080", "10.244.1.11:8081")


@pytest.mark.parametrize("order", [("1", "2"), ("2", "1")])
def test_s37_an_address_used_again_while_the_old_pod_lingers(order: tuple[str, str]) -> None:
    old = piece("shop/web", "8080", "10.244.1.11 -r +t", suffix=order[0])
    new = piece("shop/web", "8080", "10.244.1.11", suffix=order[1])
    assert decide(scene(WEB, pieces=[old, new]), from_pod("10.96.0.10:80")) == to("10.244.1.11:8080")
    # Nor does the ghost keep a new pod alive that is not ready yet: it terminates, the new one does not.
    unready = piece("shop/web", "8080", "10.244.1.11 -r", suffix=order[1])
    assert decide(scene(WEB, pieces=[old, unready]), from_pod("10.96.0.10:80")) == Refused()


def test_s38_ports_are_joined_by_name_and_the_number_is_the_slices() -> None:
    made = service("shop/web", "10.96.0.10", "http=80 metrics=9090 dns=53/udp")
    pieces = [
        piece("shop/web", "http=8080 metrics=9999", "10.244.1.11"),
        piece("shop/web", "http=8000 other=80 dns=53/tcp", "10.244.2.21", suffix="2"),
        piece("shop/web", "80", "10.244.2.22", suffix="3"),
    ]
    at = scene(made, pieces=pieces)
    assert decide(at, from_pod("10.96.0.10:80")) == to("10.244.1.11:8080", "10.244.2.21:8000")
    assert decide(at, from_pod("10.96.0.10:9090")) == to("10.244.1.11:9999")
    assert decide(at, from_pod("10.96.0.10:53/udp")) == Refused()


@pytest.mark.parametrize(
    ("conditions", "used"),
    [
        ("", True),
        ("-r", False),
        ("-s", True),
        ("-r -s", False),
        ("+t", True),
        ("-r +t", True),
        ("-s +t", True),
        ("-r -s +t", False),
    ],
)
def test_s39_combinations_of_conditions(conditions: str, used: bool) -> None:
    """``ready`` is believed, whatever else is said (publishNotReadyAddresses); without it, it takes serving and terminating."""
    at = scene(WEB, pieces=[piece("shop/web", "8080", f"10.244.1.11 {conditions}")])
    assert decide(at, from_pod("10.96.0.10:80")) == (to("10.244.1.11:8080") if used else Refused())


def test_s39_a_terminating_endpoint_that_is_published_as_ready_is_used_beside_others() -> None:
    at = scene(WEB, pieces=[piece("shop/web", "8080", "10.244.1.11 +t", "10.244.2.21", "10.244.2.22 -r +t")])
    assert decide(at, from_pod("10.96.0.10:80")) == to("10.244.1.11:8080", "10.244.2.21:8080")


ELSEWHERE = frozenset({"west"})
HERE = frozenset({"east"})


def test_s41_hints_are_not_asked_when_nothing_is_ready() -> None:
    entries = (endpoint("10.244.1.11 -r +t", zone_hints=ELSEWHERE), endpoint("10.244.2.21 -r +t", zone_hints=HERE))
    at = scene(WEB, pieces=[piece("shop/web", "8080", *entries)])
    assert decide(at, from_pod("10.96.0.10:80")) == to("10.244.1.11:8080", "10.244.2.21:8080")


ONE, TWO = "10.244.1.11", "10.244.2.21"


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ({"zone_hints": ELSEWHERE}, {"zone_hints": HERE}, [TWO]),
        ({"zone_hints": HERE | ELSEWHERE}, {"zone_hints": HERE}, [ONE, TWO]),
        ({"zone_hints": HERE}, {}, [ONE, TWO]),
        ({"zone_hints": ELSEWHERE}, {"zone_hints": ELSEWHERE}, [ONE, TWO]),
        # Nodes before zones, and just as strict.
        (
            {"node_hints": frozenset({"n1"}), "zone_hints": ELSEWHERE},
            {"node_hints": frozenset({"n2"}), "zone_hints": HERE},
            [ONE],
        ),
        ({"node_hints": frozenset({"n1"}), "zone_hints": ELSEWHERE}, {"zone_hints": HERE}, [TWO]),
        (
            {"node_hints": frozenset({"n2"}), "zone_hints": HERE},
            {"node_hints": frozenset({"n3"}), "zone_hints": ELSEWHERE},
            [ONE],
        ),
        ({"node_hints": frozenset({"n2"})}, {"node_hints": frozenset({"n3"})}, [ONE, TWO]),
    ],
)
def test_s42_hints_are_all_or_nothing(first: Fields, second: Fields, chosen: list[str]) -> None:
    entries = (endpoint(ONE, **first), endpoint(TWO, **second))
    at = scene(WEB, pieces=[piece("shop/web", "8080", *entries)])
    assert decide(at, from_pod("10.96.0.10:80")) == to(*(f"{address}:8080" for address in chosen))


def test_s42_endpoints_that_are_not_ready_need_no_hint() -> None:
    entries = (endpoint(ONE, zone_hints=ELSEWHERE), endpoint(TWO, zone_hints=HERE), endpoint("10.244.2.22 -r"))
    at = scene(WEB, pieces=[piece("shop/web", "8080", *entries)])
    assert decide(at, from_pod("10.96.0.10:80")) == to("10.244.2.21:8080")


def test_s42_hints_need_a_known_zone_and_leave_the_local_endpoints_alone() -> None:
    entries = (endpoint(ONE, zone_hints=ELSEWHERE), endpoint(TWO, zone_hints=HERE))
    local = evolve(WEB, external_policy=LOCAL)
    at = scene(local, pieces=[piece("shop/web", "8080", *entries)])
    assert decide(at, from_outside("203.0.113.10:80")) == to("10.244.1.11:8080")
    assert decide(at, from_pod("203.0.113.10:80")) == to("10.244.2.21:8080")
    for node in (None, evolve(NODE, zone="")):
        unknown = evolve(at, snapshot=evolve(at.snapshot, node=node))
        assert decide(unknown, from_pod("203.0.113.10:80")) == to("10.244.1.11:8080", "10.244.2.21:8080")


@pytest.mark.parametrize("destination", FRONTENDS)
@pytest.mark.parametrize("policy_local", [False, True])
def test_s53_a_pod_that_reaches_itself_is_masqueraded(destination: str, policy_local: bool) -> None:
    made = evolve(WEB, internal_policy=LOCAL, external_policy=LOCAL) if policy_local else WEB
    at = scene(made, pieces=[piece("shop/web", "8080", "10.244.1.11")])
    assert decide(at, from_pod(destination, "10.244.1.11")) == to("10.244.1.11:8080*")


def test_s54_one_nodeport_number_for_tcp_and_udp() -> None:
    at = scene(
        service("shop/tcp", "10.96.0.10", "80/tcp@30080"),
        service("shop/udp", "10.96.0.11", "80/udp@30080"),
        pieces=[piece("shop/tcp", "8080/tcp", "10.244.1.11"), piece("shop/udp", "8080/udp", "10.244.1.12")],
    )
    assert decide(at, from_outside("192.0.2.1:30080/tcp")) == to("10.244.1.11:8080*")
    assert decide(at, from_outside("192.0.2.1:30080/udp")) == to("10.244.1.12:8080*")
    assert decide(at, from_outside("192.0.2.1:30080/sctp")) == Untouched()


@pytest.mark.parametrize(
    "fields",
    [{"proxy_name": "other"}, {"proxy_name": ""}, {"headless": True}, {"type": ServiceType.EXTERNAL_NAME}, {"cluster_ips": ()}],
)
def test_s56_services_that_a_proxy_must_not_see(fields: Fields) -> None:
    at = scene(evolve(WEB, **fields), pieces=[piece("shop/web", "8080", "10.244.1.11")])
    assert verdicts(at, *map(from_outside, FRONTENDS)) == [Dropped(), Untouched(), Untouched(), Untouched()]


def test_s59_families_are_independent() -> None:
    """A Service without an address in a family is not served in it, external addresses and NodePorts included."""
    four = service("shop/four", "10.96.0.10", "80@30080", external="203.0.113.20 2001:db8:e::20")
    six = service("shop/six", "fd00:96::11", "80@30080", created=9.0)
    at = scene(four, six, pieces=[piece("shop/four", "8080", "10.244.1.11"), piece("shop/six", "8080", "fd00:244:1::12")])
    assert decide(at, from_outside("[2001:db8:e::20]:80")) == Untouched()
    assert decide(at, from_outside("192.0.2.1:30080")) == to("10.244.1.11:8080*")
    assert decide(at, from_outside("[2001:db8::1]:30080")) == to("[fd00:244:1::12]:8080*")


def test_o21_without_detection_nothing_extra_is_masqueraded() -> None:
    pieces = [piece("shop/web", "8080", "10.244.1.11")]
    at = scene(WEB, pieces=pieces, settings=Settings(node_name="n1"))
    assert (
        verdicts(at, *(client("10.96.0.10:80") for client in (from_pod, from_node, from_outside))) == [to("10.244.1.11:8080")] * 3
    )
    at = scene(WEB, pieces=pieces, settings=Settings(node_name="n1", masquerade_all=True))
    assert decide(at, from_pod("10.96.0.10:80")) == to("10.244.1.11:8080*")
    # Detection in the other family only is none.
    at = scene(WEB, pieces=pieces, settings=Settings(node_name="n1", cluster_cidrs=(parse_network("fd00:244::/32"),)))
    assert decide(at, from_outside("10.96.0.10:80")) == to("10.244.1.11:8080")


def test_x2_external_addresses_can_be_forbidden() -> None:
    at = scene(WEB, pieces=[piece("shop/web", "8080", "10.244.1.11")], settings=evolve(SETTINGS, external_ips_allowed=False))
    assert decide(at, from_pod("203.0.113.20:80")) == Untouched()
    assert decide(at, from_pod("203.0.113.10:80")) == to("10.244.1.11:8080*")


@pytest.mark.parametrize(
    ("mode", "fields", "local", "strange"),
    [
        (DetectLocalMode.NODE_CIDR, {}, from_outside("10.96.0.10:80", "10.244.1.9"), from_outside("10.96.0.10:80", "10.244.2.9")),
        (
            DetectLocalMode.BRIDGE_INTERFACE,
            {"bridge_interface": "br0"},
            evolve(from_pod("10.96.0.10:80"), interface="br0"),
            evolve(from_pod("10.96.0.10:80"), interface="br01"),
        ),
        (
            DetectLocalMode.INTERFACE_NAME_PREFIX,
            {"interface_name_prefix": "veth"},
            from_pod("10.96.0.10:80"),
            evolve(from_pod("10.96.0.10:80"), interface="xveth9"),
        ),
    ],
)
def test_each_way_to_tell_local_pods(mode: DetectLocalMode, fields: Fields, local: Packet, strange: Packet) -> None:
    settings = evolve(SETTINGS, detect_local_mode=mode, **fields)
    at = scene(WEB, pieces=[piece("shop/web", "8080", "10.244.1.11")], settings=settings)
    assert decide(at, local) == to("10.244.1.11:8080")
    assert decide(at, strange) == to("10.244.1.11:8080*")
    assert decide(at, from_node("10.96.0.10:80")) == to("10.244.1.11:8080*")
    # Of its own, a process of the node that uses a pod's address is local only where addresses are asked.
    by_address = mode is DetectLocalMode.NODE_CIDR
    assert decide(at, from_node("10.96.0.10:80", "10.244.1.1")) == to("10.244.1.11:8080" if by_address else "10.244.1.11:8080*")


@pytest.mark.parametrize(
    ("ranges", "open_"),
    [
        (None, True),
        ("", False),
        ("0.0.0.0/0", True),
        ("198.18.0.0/24", True),
        ("198.18.1.0/24", False),
        ("198.18.1.0/24 0.0.0.0/0", True),
        ("2001:db8::/32", True),
        ("2001:db8::/32 198.18.1.0/24", False),
        ("::/0 198.18.1.0/24", False),
    ],
)
def test_source_ranges(ranges: str | None, open_: bool) -> None:
    made = service("shop/web", "10.96.0.10", "80", balancer="203.0.113.10", ranges=ranges)
    at = scene(made, pieces=[piece("shop/web", "8080", "10.244.1.11")])
    assert decide(at, from_outside("203.0.113.10:80")) == (to("10.244.1.11:8080*") if open_ else Dropped())


def test_source_ranges_with_the_node_in_them_let_the_services_own_addresses_in() -> None:
    made = service("shop/web", "10.96.0.10", "80", balancer="203.0.113.10 203.0.113.11", ranges="192.0.2.0/24")
    other = service("shop/other", "10.96.0.11", "80", balancer="203.0.113.12")
    at = scene(made, other, pieces=[piece("shop/web", "8080", "10.244.1.11")])
    assert decide(at, from_node("203.0.113.10:80", "203.0.113.11")) == to("10.244.1.11:8080*")
    assert decide(at, from_node("203.0.113.10:80", "203.0.113.12")) == Dropped()
    elsewhere = service("shop/web", "10.96.0.10", "80", balancer="203.0.113.10", ranges="192.0.3.0/24")
    at = scene(elsewhere, pieces=[piece("shop/web", "8080", "10.244.1.11")])
    assert decide(at, from_node("203.0.113.10:80", "203.0.113.10")) == Dropped()


def test_an_address_of_the_load_balancer_that_is_something_else_too_keeps_its_source_ranges() -> None:
    made = service(
        "shop/web", "10.96.0.10", "80", balancer="203.0.113.10 10.96.0.10", external="203.0.113.10", ranges="198.18.1.0/24"
    )
    at = scene(made, pieces=[piece("shop/web", "8080", "10.244.1.11")])
    assert decide(at, from_outside("203.0.113.10:80")) == Dropped()
    assert decide(at, from_outside("10.96.0.10:80")) == Dropped()


def test_an_impossible_address_of_the_load_balancer_is_no_source_to_let_in() -> None:
    made = service("shop/web", "10.96.0.10", "80", balancer="203.0.113.10 127.0.0.1", ranges="192.0.2.0/24")
    at = scene(made, pieces=[piece("shop/web", "8080", "10.244.1.11")])
    assert decide(at, from_node("203.0.113.10:80", "127.0.0.1")) == Dropped()
