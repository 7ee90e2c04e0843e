"""Service ports as chains, rules and elements."""

from typing import Any

import pytest
from attrs import evolve
from msgspec.structs import replace

from kproxy_core.model.addresses import Address, Family, parse_address, parse_network
from kproxy_core.model.names import Protocol, ServicePortName
from kproxy_core.model.state import (
    Disposition,
    Drop,
    Endpoint,
    EndpointScope,
    EndpointSets,
    Forward,
    Frontend,
    FrontendKind,
    FrontendRule,
    LocalByInterface,
    LocalByNetwork,
    Masquerade,
    NodeContext,
    Reject,
    ServicePort,
)
from kproxy_core.program.program import Fragment
from kproxy_iptables.compile import compile_port
from kproxy_iptables.objects import Key, Value

CLUSTER, LOCAL = EndpointScope.CLUSTER, EndpointScope.LOCAL
NEVER, ALWAYS = Masquerade.HAIRPIN_ONLY, Masquerade.ALWAYS
NODE = NodeContext(name="n1", local_detector=LocalByNetwork((parse_network("10.244.0.0/16"), parse_network("fd00:244::/32"))))
BLIND = NodeContext(name="n1")
VIP, BALANCER = parse_address("10.96.0.10"), parse_address("192.0.2.80")
NAME = ServicePortName("shop", "web", "http", Protocol.TCP)
COMMENT = '-m comment --comment "shop/web:http/TCP"'
MARK, UNMARK = "-j MARK --set-xmark 0x4000/0x4000", "-j MARK --set-xmark 0x0/0x4000"

LEAF = "KPROXY-IP-10-0 -d 10.96.0.10/32 -p tcp -m tcp --dport 80"
NODE_PORT_LEAF = "KPROXY-NP-TCP-58-12 -p tcp -m tcp --dport 30080"


def endpoints(*hosts: str, port: int = 8080, weights: tuple[int, ...] = ()) -> tuple[Endpoint, ...]:
    """Endpoints; those of 10.244.1.0/24 are local."""
    return tuple(
        Endpoint(
            address=parse_address(host),
            port=port,
            local=host.startswith("10.244.1."),
            weight=weights[number] if weights else 1,
        )
        for number, host in enumerate(hosts)
    )


def rule(
    pod: Disposition,
    node: Disposition,
    outside: Disposition,
    *,
    kind: FrontendKind = FrontendKind.CLUSTER_IP,
    address: Address | None = VIP,
    restricted: bool = False,
) -> FrontendRule:
    frontend = Frontend(kind=kind, address=address, port=80 if address is not None else 30080)
    return FrontendRule(frontend=frontend, from_local_pod=pod, from_node=node, from_outside=outside, restricted=restricted)


def service_port(*rules: FrontendRule, of: tuple[Endpoint, ...] | None = None, **fields: Any) -> ServicePort:
    cluster = endpoints("10.244.1.1", "10.244.2.1") if of is None else of
    local = tuple(endpoint for endpoint in cluster if endpoint.local)
    sets = EndpointSets(cluster=cluster, local=local, reachable=cluster, any_in_cluster=bool(cluster))
    made = ServicePort(name=NAME, family=Family.IPV4, rules=rules, endpoints=sets, serving=cluster)
    return evolve(made, **fields)


CLUSTER_IP = rule(Forward(CLUSTER, NEVER), Forward(CLUSTER, ALWAYS), Forward(CLUSTER, ALWAYS))
EVERYWHERE = (Forward(CLUSTER, ALWAYS),) * 3
SHORT_CIRCUIT = (Forward(CLUSTER, NEVER), Forward(CLUSTER, ALWAYS), Forward(LOCAL, NEVER))
ELSEWHERE = (Forward(CLUSTER, NEVER), Forward(CLUSTER, ALWAYS), Drop())


def chains(fragment: Fragment[Key, Value]) -> dict[str, tuple[str, ...]]:
    """The chains by the words of their names that are not hashed; one of each kind is expected."""
    found = {str(name)[:10]: value for (place, name), value in fragment.own.items() if place == "v4 nat chain"}
    assert len(found) == sum(place == "v4 nat chain" for place, _ in fragment.own)
    return {name: value for name, value in found.items() if isinstance(value, tuple)}


def readable(rules: tuple[str, ...], fragment: Fragment[Key, Value]) -> tuple[str, ...]:
    """Rules without the hashes of the chains that they lead to."""
    names = [str(name) for place, name in (*fragment.own, *fragment.shared) if place.endswith((" chain", " set"))]
    result = []
    for text in rules:
        for name in names:
            text = text.replace(name, name.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567").rstrip("-"))  # noqa: PLW2901
        result.append(text)
    return tuple(result)


def leaf(fragment: Fragment[Key, Value], text: str = LEAF) -> str:
    value = fragment.own["v4 nat rule", text]
    assert isinstance(value, str)
    return value[:13]


def elements(fragment: Fragment[Key, Value]) -> dict[str, int]:
    """How many elements of which sets."""
    found: dict[str, int] = {}
    for place, name in (*fragment.own, *fragment.shared):
        if isinstance(name, bytes):
            found[place] = found.get(place, 0) + 1
    return found


def test_a_cluster_address_takes_a_rule_of_the_tree_and_one_for_each_endpoint() -> None:
    fragment = compile_port(service_port(CLUSTER_IP), NODE)
    assert chains(fragment) == {
        "KPROXY-SVC": (
            f"-p tcp {COMMENT} -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.244.1.1:8080",
            "-p tcp -j DNAT --to-destination 10.244.2.1:8080",
        )
    }
    assert leaf(fragment) == "-j KPROXY-SVC"
    assert elements(fragment) == {"KPROXY-4-CLUSTER-IPS": 1, "KPROXY-4-HAIRPIN": 1}
    assert {name: value for (place, name), value in fragment.shared.items() if place == "v4 nat branch"} == {
        "KPROXY-IP-10": "KPROXY-SERVICES -d 0.0.0.10/0.0.0.31 -j KPROXY-IP-10",
        "KPROXY-IP-10-0": "KPROXY-IP-10 -d 0.0.0.0/0.0.3.224 -j KPROXY-IP-10-0",
    }
    assert fragment.id == 0


@pytest.mark.parametrize(
    ("weights", "chances"),
    [
        ((1, 1, 1), ("0.33333333349", "0.50000000000", "")),
        ((1, 2, 5), ("0.12500000000", "0.28571428591", "")),
        ((0, 1, 3), ("0.25000000000", "")),
        ((1, 0, 0), ("",)),
        ((1, 999, 0), ("0.00100000016", "")),
    ],
)
def test_chances_are_what_the_kernel_can_express(weights: tuple[int, ...], chances: tuple[str, ...]) -> None:
    """The kernel keeps 31 bits of a probability; iptables-save prints them like this."""
    port = service_port(CLUSTER_IP, of=endpoints("10.244.2.1", "10.244.2.2", "10.244.2.3", weights=weights))
    rules = chains(compile_port(port, NODE))["KPROXY-SVC"]
    found = tuple(text.partition("--probability ")[2].partition(" ")[0] for text in rules)
    assert found == chances


def test_ipv6() -> None:
    address = parse_address("fd00:96::a5")
    port = service_port(rule(*[Forward(CLUSTER, NEVER)] * 3, address=address), of=endpoints("fd00:244::1"), family=Family.IPV6)
    fragment = compile_port(port, NodeContext())
    text = "KPROXY-IP-5-5 -d fd00:96::a5/128 -p tcp -m tcp --dport 80"
    assert str(fragment.own["v6 nat rule", text]).startswith("-j KPROXY-SVC-")
    assert fragment.shared["v6 nat branch", "KPROXY-IP-5-5"] == "KPROXY-IP-5 -d ::a0/::3e0 -j KPROXY-IP-5-5"
    (rules,) = (value for (place, _), value in fragment.own.items() if place == "v6 nat chain")
    assert rules == (f"-p tcp {COMMENT} -j DNAT --to-destination [fd00:244::1]:8080",)


def test_an_external_address_marks_everybody() -> None:
    fragment = compile_port(service_port(rule(*EVERYWHERE, kind=FrontendKind.LOAD_BALANCER, address=VIP)), NODE)
    assert readable(chains(fragment)["KPROXY-EXT"], fragment) == (f"{COMMENT} {MARK}", "-j KPROXY-SVC")
    assert leaf(fragment) == "-j KPROXY-EXT"


def test_frontends_that_mean_the_same_share_a_chain() -> None:
    port = service_port(
        CLUSTER_IP,
        rule(*EVERYWHERE, kind=FrontendKind.LOAD_BALANCER, address=BALANCER),
        rule(*EVERYWHERE, kind=FrontendKind.NODE_PORT, address=None),
    )
    assert chains(compile_port(port, NODE)).keys() == {"KPROXY-SVC", "KPROXY-EXT"}


def test_s6_policy_local_sends_inside_traffic_everywhere_and_outside_traffic_to_local_endpoints() -> None:
    fragment = compile_port(service_port(rule(*SHORT_CIRCUIT, kind=FrontendKind.NODE_PORT, address=None)), NODE)
    assert readable(chains(fragment)["KPROXY-EXT"], fragment) == (
        f"{COMMENT} {UNMARK}",
        "-s 10.244.0.0/16 -j KPROXY-SVC",
        f"-m addrtype --src-type LOCAL {MARK}",
        "-m addrtype --src-type LOCAL -j KPROXY-SVC",
        "-j KPROXY-SVL",
    )
    assert leaf(fragment, NODE_PORT_LEAF) == "-j KPROXY-EXT"
    assert elements(fragment) == {"KPROXY-4-HAIRPIN": 1}


def test_s7_without_local_endpoints_the_outside_is_dropped_by_the_filter_table() -> None:
    fragment = compile_port(service_port(rule(*ELSEWHERE, kind=FrontendKind.LOAD_BALANCER, address=VIP)), NODE)
    assert readable(chains(fragment)["KPROXY-EXT"], fragment)[-1] == "-j ACCEPT"
    assert elements(fragment)["KPROXY-4-DROP"] == 1


def test_where_local_pods_come_in_by_an_interface() -> None:
    node = NodeContext(local_detector=LocalByInterface("veth", prefix=True))
    fragment = compile_port(service_port(rule(*SHORT_CIRCUIT, kind=FrontendKind.NODE_PORT, address=None)), node)
    assert readable(chains(fragment)["KPROXY-EXT"], fragment)[1] == "-i veth+ -j KPROXY-SVC"


def test_o21_where_local_pods_cannot_be_told_they_are_outside_traffic() -> None:
    local = Forward(LOCAL, NEVER)
    fragment = compile_port(
        service_port(rule(local, Forward(CLUSTER, ALWAYS), local, kind=FrontendKind.NODE_PORT, address=None)), BLIND
    )
    assert readable(chains(fragment)["KPROXY-EXT"], fragment) == (
        f"{COMMENT} {UNMARK}",
        f"-m addrtype --src-type LOCAL {MARK}",
        "-m addrtype --src-type LOCAL -j KPROXY-SVC",
        "-j KPROXY-SVL",
    )
    assert elements(fragment)["KPROXY-4-HAIRPIN"] == 2, "strangers are not masqueraded, so all endpoints are noted"


def test_a_cluster_address_that_is_not_masqueraded_as_others_has_rules_of_its_own() -> None:
    """Rules say what is to happen; that the scaffold marks as they usually want it is no more than a saving."""
    port = service_port(rule(*[Forward(CLUSTER, NEVER)] * 3))
    assert readable(chains(compile_port(port, NODE))["KPROXY-EXT"], compile_port(port, NODE)) == (
        f"{COMMENT} {UNMARK}",
        "-j KPROXY-SVC",
    )
    assert "KPROXY-EXT" not in chains(compile_port(port, BLIND))


@pytest.mark.parametrize(("what", "word"), [(Reject(), "REJECT"), (Drop(), "DROP")])
def test_nobody_is_forwarded(what: Disposition, word: str) -> None:
    port = service_port(rule(what, what, what), rule(what, what, what, kind=FrontendKind.NODE_PORT, address=None), of=())
    fragment = compile_port(port, NODE)
    assert not chains(fragment)
    assert fragment.own["v4 nat rule", LEAF] == f"{COMMENT} -j ACCEPT"
    assert fragment.own["v4 nat rule", NODE_PORT_LEAF] == f"{COMMENT} -j ACCEPT"
    assert elements(fragment) == {f"KPROXY-4-{word}": 1, f"KPROXY-4-NP-{word}": 2, "KPROXY-4-CLUSTER-IPS": 1}


@pytest.mark.parametrize(
    ("dispositions", "address", "noted"),
    [
        pytest.param(ELSEWHERE, "10.244.2.1", 1, id="it is"),
        pytest.param(ELSEWHERE, "192.0.2.80", 0, id="it is not"),
        pytest.param((Drop(), Drop(), Drop()), "10.244.2.1", 0, id="nobody is forwarded"),
    ],
)
def test_frontends_that_are_their_own_endpoints(
    dispositions: tuple[Disposition, Disposition, Disposition], address: str, noted: int
) -> None:
    frontend = rule(*dispositions, kind=FrontendKind.EXTERNAL_IP, address=parse_address(address))
    port = service_port(frontend, of=endpoints("10.244.2.1", "10.244.2.2", port=80))
    assert elements(compile_port(port, NODE)).get("KPROXY-4-SELF", 0) == noted


def test_a_node_port_that_is_an_endpoint() -> None:
    port = service_port(rule(*ELSEWHERE, kind=FrontendKind.NODE_PORT, address=None), of=endpoints("10.244.2.1", port=30080))
    assert elements(compile_port(port, NODE)) == {"KPROXY-4-NP-DROP": 2, "KPROXY-4-NP-SELF": 1}


def test_source_ranges_are_elements() -> None:
    ranges = tuple(map(parse_network, ("10.0.0.0/9", "10.128.0.0/9", "192.0.2.7/32", "2001:db8::/32")))
    restricted = rule(*EVERYWHERE, kind=FrontendKind.LOAD_BALANCER, address=VIP, restricted=True)
    fragment = compile_port(service_port(restricted, source_ranges=ranges), NODE)
    assert readable(chains(fragment)["KPROXY-EXT"], fragment) == (
        f"-m set ! --match-set KPROXY-4-SOURCES dst,dst,src {COMMENT} -j ACCEPT",
        MARK,
        "-j KPROXY-SVC",
    )
    assert elements(fragment) == {"KPROXY-4-RESTRICTED": 1, "KPROXY-4-SOURCES": 2, "KPROXY-4-HAIRPIN": 1}


def test_sticky_endpoints_have_a_set_and_a_chain_each() -> None:
    fragment = compile_port(service_port(CLUSTER_IP, affinity_timeout=300), NODE)
    made = {str(name): value for (place, name), value in fragment.own.items() if place == "v4 nat chain"}
    (picking,) = (value for name, value in made.items() if name.startswith("KPROXY-SVC"))
    assert isinstance(picking, tuple)
    assert readable(picking, fragment) == (
        f"-m set --match-set KPROXY-4-SEP src {COMMENT} -j KPROXY-SEP",
        "-m set --match-set KPROXY-4-SEP src -j KPROXY-SEP",
        "-m statistic --mode random --probability 0.50000000000 -j KPROXY-SEP",
        "-j KPROXY-SEP",
    )
    remembering = [value for name, value in made.items() if name.startswith("KPROXY-SEP")]
    assert len(remembering) == 2
    assert isinstance(remembering[0], tuple)
    assert readable(remembering[0], fragment) == (
        f"{COMMENT} -j SET --add-set KPROXY-4-SEP src --exist --timeout 300",
        "-p tcp -j DNAT --to-destination 10.244.1.1:8080",
    )
    assert sum(place == "v4 set" for place, _ in fragment.own) == 2


def test_another_timeout_is_another_rule_not_another_set() -> None:
    """The kernel changes no timeout of a set, and to make it anew would forget the clients."""
    brief, long = (compile_port(service_port(CLUSTER_IP, affinity_timeout=seconds), NODE) for seconds in (10, 10800))
    assert brief.own.keys() == long.own.keys()
    differing = {key[0] for key, value in brief.own.items() if long.own[key] != value}
    assert differing == {"v4 nat chain"}


def test_names_differ_by_service_port_and_endpoint() -> None:
    other = evolve(service_port(CLUSTER_IP, affinity_timeout=10), name=replace(NAME, protocol=Protocol.UDP))
    one = compile_port(service_port(CLUSTER_IP, affinity_timeout=10), NODE)
    two = compile_port(other, NODE)
    assert not one.own.keys() & two.own.keys()
    assert all(len(str(name)) <= 28 for place, name in one.own if place.endswith(" chain"))
    assert all(len(str(name)) <= 31 for place, name in one.own if place.endswith(" set"))
