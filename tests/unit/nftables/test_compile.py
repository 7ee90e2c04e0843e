"""What one Service port becomes: its elements, the actions they lead to, and what of them moves when it changes."""

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kproxy_core.model.addresses import Address, Family, parse_address, parse_network
from kproxy_core.model.names import Protocol, ServicePortName, parse_service_port_name
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
    LocalByNetwork,
    Masquerade,
    NodeContext,
    Reject,
    ServicePort,
)
from kproxy_core.plugin.errors import ContractError
from kproxy_core.program.program import Fragment
from kproxy_core.wire.nft_data import DROP, Verdict, goto
from kproxy_nftables import numbered
from kproxy_nftables.actions import MAX_STICKY_SLOTS, Action, Ending, Mark, Pick, action_number, action_of, chain_name
from kproxy_nftables.backend import NftablesBackend
from kproxy_nftables.compile import compile_port
from kproxy_nftables.objects import Key, Owned, Value

CLUSTER, LOCAL = EndpointScope.CLUSTER, EndpointScope.LOCAL
NEVER, ALWAYS = Masquerade.HAIRPIN_ONLY, Masquerade.ALWAYS
NODE = NodeContext(name="n1", local_detector=LocalByNetwork((parse_network("10.244.0.0/16"), parse_network("fd00:244::/32"))))
BLIND = NodeContext(name="n1")
VIP = parse_address("10.96.0.10")
NAME = ServicePortName("shop", "web", "http", Protocol.TCP)


def endpoints(*hosts: str, port: int = 8080) -> tuple[Endpoint, ...]:
    """Endpoints; those of 10.244.1.0/24 are local."""
    return tuple(Endpoint(address=parse_address(host), port=port, local=host.startswith("10.244.1.")) for host in hosts)


Three = tuple[Disposition, Disposition, Disposition]


def rule(pod: Disposition, node: Disposition, outside: Disposition, *, address: Address | None = VIP) -> FrontendRule:
    kind = FrontendKind.CLUSTER_IP if address is not None else FrontendKind.NODE_PORT
    frontend = Frontend(kind=kind, address=address, port=80 if address is not None else 30080)
    return FrontendRule(frontend=frontend, from_local_pod=pod, from_node=node, from_outside=outside)


def service_port(*rules: FrontendRule, hosts: str = "10.244.1.1 10.244.2.1", **fields: Any) -> ServicePort:
    cluster = endpoints(*hosts.split())
    local = tuple(endpoint for endpoint in cluster if endpoint.local)
    sets = EndpointSets(cluster=cluster, local=local, reachable=cluster, any_in_cluster=bool(cluster))
    made = ServicePort(name=NAME, family=Family.IPV4, rules=rules, endpoints=sets, serving=cluster)
    return evolve(made, **fields)


CLUSTER_IP = rule(Forward(CLUSTER, NEVER), Forward(CLUSTER, ALWAYS), Forward(CLUSTER, ALWAYS))


def compiled(port: ServicePort, previous: Fragment[Key, Value] | None = None, node: NodeContext = NODE) -> Fragment[Key, Value]:
    return compile_port(port, node, previous, 7)


def count(fragment: Fragment[Key, Value]) -> dict[str, int]:
    """How many elements and chains there are of each kind, families left out."""
    found: dict[str, int] = {}
    for place, _ in (*numbered.spread(fragment.own), *fragment.shared):
        kind = place.partition(" ")[2]
        found[kind] = found.get(kind, 0) + 1
    return found


def chains(fragment: Fragment[Key, Value]) -> set[object]:
    """The names of the chains that are needed."""
    return {name for place, name in fragment.shared if place.endswith(" chain")}


def verdicts(fragment: Fragment[Key, Value]) -> list[Verdict]:
    return [value for value in fragment.shared.values() if isinstance(value, Verdict)]


def test_a_cluster_address_is_a_handful_of_elements() -> None:
    fragment = compiled(service_port(CLUSTER_IP))
    assert fragment.id == 7
    assert count(fragment) == {
        "services": 1,
        "actions": 1,
        "endpoints": 2,
        "hairpin": 1,  # the local endpoint's
        "cluster-ips": 1,
        "dispatch": 1,
        "chain": 1,
    }
    assert chains(fragment) == {"pick-2-masquerade-unless-pod"}
    (owned,) = (value for value in fragment.own.values() if isinstance(value, Owned))
    assert parse_service_port_name(owned.owner) == NAME


@pytest.mark.parametrize(
    ("dispositions", "wanted", "outside"),
    [
        ((Forward(CLUSTER, NEVER), Forward(CLUSTER, NEVER), Forward(CLUSTER, NEVER)), {"pick-2"}, 0),
        ((Forward(CLUSTER, ALWAYS), Forward(CLUSTER, ALWAYS), Forward(CLUSTER, ALWAYS)), {"pick-2-masquerade"}, 0),
        ((Forward(CLUSTER, NEVER), Forward(CLUSTER, ALWAYS), Forward(CLUSTER, ALWAYS)), {"pick-2-masquerade-unless-pod"}, 0),
        (
            (Forward(CLUSTER, NEVER), Forward(CLUSTER, ALWAYS), Forward(LOCAL, NEVER)),
            {"pick-2-masquerade-unless-pod", "pick-1-local"},
            1,
        ),
        ((Forward(CLUSTER, NEVER), Forward(CLUSTER, ALWAYS), Drop()), {"pick-2-masquerade-unless-pod"}, 1),
        ((Forward(LOCAL, NEVER), Forward(LOCAL, ALWAYS), Forward(LOCAL, ALWAYS)), {"pick-1-local-masquerade-unless-pod"}, 0),
        ((Drop(), Drop(), Drop()), set(), 0),
        ((Reject(), Reject(), Reject()), set(), 0),
    ],
)
def test_dispositions_become_actions(dispositions: Three, wanted: set[str], outside: int) -> None:
    for address in (VIP, None):
        fragment = compiled(service_port(rule(*dispositions, address=address)))
        prefix = "" if address is not None else "node-port-"
        assert chains(fragment) == {prefix + name for name in wanted}
        places = count(fragment)
        assert places.get("outside-actions", 0) + places.get("outside-node-port-actions", 0) == outside


def test_drop_and_reject_lead_nowhere_and_to_the_chain_of_all() -> None:
    assert verdicts(compiled(service_port(rule(Drop(), Drop(), Drop())))) == [DROP]
    assert verdicts(compiled(service_port(rule(Reject(), Reject(), Reject())))) == [goto("refuse")]


def test_without_a_detector_pods_are_as_everybody_else() -> None:
    short = rule(Forward(CLUSTER, NEVER), Forward(CLUSTER, ALWAYS), Drop())
    assert chains(compiled(service_port(short), node=BLIND)) == {"pick-2-masquerade"}
    # Nor is anybody masqueraded for being a stranger, so every endpoint may have to be hairpinned.
    assert count(compiled(service_port(CLUSTER_IP), node=BLIND))["hairpin"] == 2


def test_an_endpoint_without_a_node_may_be_here() -> None:
    port = service_port(CLUSTER_IP)
    nodeless = tuple(replace(endpoint, local=False, nodeless=True) for endpoint in port.endpoints.cluster)
    assert count(compiled(evolve(port, endpoints=evolve(port.endpoints, cluster=nodeless))))["hairpin"] == 2


@pytest.mark.parametrize(
    "dispositions",
    [
        (Drop(), Forward(CLUSTER, NEVER), Drop()),
        (Forward(LOCAL, NEVER), Forward(CLUSTER, NEVER), Drop()),
        (Forward(CLUSTER, ALWAYS), Forward(CLUSTER, NEVER), Drop()),
    ],
)
def test_what_the_core_never_decides_is_no_silent_guess(dispositions: Three) -> None:
    with pytest.raises(ContractError):
        compiled(service_port(rule(*dispositions)))


def slots(fragment: Fragment[Key, Value], place: str = "ip endpoints") -> dict[bytes, Value]:
    elements = numbered.spread(fragment.own).items()
    return {bytes(name)[4:]: value for (where, name), value in elements if where == place}  # type: ignore[arg-type]


def test_an_endpoint_more_takes_the_next_slot_and_one_less_fills_the_gap() -> None:
    three = compiled(service_port(CLUSTER_IP, hosts="10.244.2.1 10.244.2.2 10.244.2.3"))
    four = compiled(service_port(CLUSTER_IP, hosts="10.244.2.0 10.244.2.1 10.244.2.2 10.244.2.3"), three)
    assert slots(three).items() <= slots(four).items()
    assert len(slots(four)) == 4
    fewer = compiled(service_port(CLUSTER_IP, hosts="10.244.2.0 10.244.2.2 10.244.2.3"), four)
    moved = {slot for slot, value in slots(fewer).items() if slots(four)[slot] != value}
    assert len(moved) == 1
    assert fewer.id == four.id == three.id


def test_weights_are_slots() -> None:
    port = service_port(CLUSTER_IP)
    heavy = tuple(replace(e, weight=weight) for e, weight in zip(port.endpoints.cluster, (6, 2), strict=True))
    fragment = compiled(evolve(port, endpoints=evolve(port.endpoints, cluster=heavy)))
    found = list(slots(fragment).values())
    assert sorted(found.count(value) for value in set(found)) == [1, 3]
    assert "pick-4-masquerade-unless-pod" in chains(fragment)


def test_weights_of_nothing_but_zero_mean_nothing() -> None:
    port = service_port(CLUSTER_IP)
    none = tuple(replace(endpoint, weight=0) for endpoint in port.endpoints.cluster)
    assert len(slots(compiled(evolve(port, endpoints=evolve(port.endpoints, cluster=none))))) == 2


def test_sticky_endpoints_have_numbers_that_stay() -> None:
    first = compiled(service_port(CLUSTER_IP, hosts="10.244.1.1 10.244.2.1 10.244.2.2", affinity_timeout=60))
    places = count(first)
    assert (places["sticky-slots"], places["sticky-endpoints"], places.get("endpoints", 0)) == (3, 3, 0)
    assert chains(first) == {"pick-3-masquerade-unless-pod-sticky-60"}
    fewer = compiled(service_port(CLUSTER_IP, hosts="10.244.1.1 10.244.2.2", affinity_timeout=60), first)
    assert slots(fewer, "ip sticky-endpoints").items() <= slots(first, "ip sticky-endpoints").items()
    # Another Service with the same id and the same endpoints has others: it knows none of these clients.
    other = service_port(CLUSTER_IP, hosts="10.244.1.1 10.244.2.1 10.244.2.2", affinity_timeout=60)
    stranger = compiled(evolve(other, name=ServicePortName("shop", "api", "http", Protocol.TCP)))
    assert slots(stranger, "ip sticky-endpoints").keys().isdisjoint(slots(first, "ip sticky-endpoints"))


def test_a_sticky_service_has_no_more_slots_than_its_actions_can_name() -> None:
    hosts = " ".join(f"10.{100 + number // 65536}.{number // 256 % 256}.{number % 256}" for number in range(MAX_STICKY_SLOTS + 9))
    assert (
        len(slots(compiled(service_port(CLUSTER_IP, hosts=hosts, affinity_timeout=86400)), "ip sticky-slots")) == MAX_STICKY_SLOTS
    )
    assert len(slots(compiled(service_port(CLUSTER_IP, hosts=hosts)))) == MAX_STICKY_SLOTS + 9


def many(count: int, heavy: int = 1) -> EndpointSets:
    """So many endpoints; every third has another weight."""
    found = tuple(
        Endpoint(address=Address((0x0A640000 + number).to_bytes(4, "big")), port=8080, weight=1 if number % 3 else heavy)
        for number in range(count)
    )
    return EndpointSets(cluster=found, reachable=found, any_in_cluster=True)


@pytest.mark.parametrize(
    ("sets", "timeout", "left_out"),
    [
        (many(MAX_STICKY_SLOTS), 60, 0),
        (many(MAX_STICKY_SLOTS + 1), 60, 1),
        (many(MAX_STICKY_SLOTS + 9), None, 0),
        (many(2000, heavy=1000), 60, 465),
        (many(1500, heavy=1000), 60, 0),
    ],
    ids=["as many as there may be", "one more", "not sticky", "weighty", "fewer with weights"],
)
def test_endpoints_that_get_no_connections_are_remarked_on(sets: EndpointSets, timeout: int | None, left_out: int) -> None:
    port = evolve(service_port(CLUSTER_IP), endpoints=sets, affinity_timeout=timeout)
    told = list(NftablesBackend().remarks(port))
    assert [each.message.split(" ")[0] for each in told] == ([str(left_out)] if left_out else [])
    assert all((each.subject, each.field) == ("Service shop/web", "spec.sessionAffinity") and each.remedy for each in told)
    used = slots(compiled(port), "ip sticky-endpoints" if timeout else "ip endpoints")
    assert len(set(used.values())) == len(sets.cluster) - left_out


def test_source_ranges_are_collapsed_and_of_the_own_family() -> None:
    ranges = tuple(map(parse_network, ("10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16", "192.0.2.1/32", "2001:db8::/32")))
    restricted = evolve(CLUSTER_IP, restricted=True)
    fragment = compiled(service_port(restricted, source_ranges=ranges))
    assert count(fragment)["source-ranges"] == 2
    assert chains(fragment) == {"pick-2-masquerade-unless-pod-restricted"}
    assert "source-ranges" not in count(compiled(service_port(CLUSTER_IP, source_ranges=ranges)))


def test_scopes_that_no_frontend_uses_are_not_there() -> None:
    local = rule(Forward(LOCAL, NEVER), Forward(LOCAL, NEVER), Forward(LOCAL, NEVER))
    places = count(compiled(service_port(local)))
    assert (places["local-endpoints"], places.get("endpoints", 0)) == (1, 0)


PICKS = st.builds(
    Pick,
    count=st.integers(1, MAX_STICKY_SLOTS),
    scope=st.sampled_from(EndpointScope),
    mark=st.sampled_from(Mark),
    restricted=st.booleans(),
    timeout=st.one_of(st.just(0), st.integers(1, 86400)),
)
ACTIONS: st.SearchStrategy[Action] = st.one_of(PICKS, st.sampled_from(Ending))


@given(ACTIONS, ACTIONS, st.booleans())
def test_actions_have_numbers_and_chains_of_their_own(one: Action, other: Action, node_port: bool) -> None:
    numbers = action_number(one), action_number(other)
    assert all(0 <= number < 1 << 32 for number in numbers)
    assert (numbers[0] == numbers[1]) == (one == other)
    assert tuple(map(action_of, numbers)) == (one, other)
    assert (chain_name(one, node_port) == chain_name(other, node_port)) == (one == other)
    assert chain_name(one, True) != chain_name(one, False) or one is Ending.REJECT


@given(PICKS, st.integers(MAX_STICKY_SLOTS, 1_000_000))
def test_so_have_actions_of_large_services(small: Pick, size: int) -> None:
    large = evolve(small, count=size, timeout=0)
    assert action_number(large) < 1 << 31
    assert action_number(large) != action_number(small) or large == small
    assert action_of(action_number(large)) == large


def test_numbers_below_those_of_actions_mean_nothing() -> None:
    assert [action_of(number) for number in (0, 4, 15)] == [None, None, None]


@pytest.mark.parametrize("text", ["", "a", "a/b", "/b/TCP", "a//TCP", "a/b/ICMP", "a/b:c/tcp", "//"])
def test_comments_of_others_name_no_owner(text: str) -> None:
    assert parse_service_port_name(text) is None


NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=63)


@given(st.builds(ServicePortName, NAMES, NAMES, st.one_of(st.just(""), NAMES), st.sampled_from(Protocol)))
def test_owners_are_read_back(name: ServicePortName) -> None:
    assert parse_service_port_name(str(name)) == name
