"""What becomes of a connection, by frontend and origin: the whole table, and the cases that other proxies got wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.model.addresses import Family, parse_address, parse_network
from kproxy_core.model.objects import LoadBalancerIngress, ServicePortSpec, ServiceType, TrafficPolicy
from kproxy_core.model.state import (
    Disposition,
    Drop,
    Forward,
    FrontendKind,
    FrontendRule,
    LocalByInterface,
    LocalByNetwork,
    Masquerade,
    Reject,
)
from kproxy_core.resolve.resolve import ResolvedService

Make = Callable[..., Any]

CLUSTER_IP, EXTERNAL_IP, LOAD_BALANCER, NODE_PORT = FrontendKind
EXTERNALS = (EXTERNAL_IP, LOAD_BALANCER, NODE_PORT)

HERE, ELSEWHERE = "10.244.0.1 here", "10.244.1.1"
NEAR, ALL, NOBODY = "cluster cluster+ cluster+", "cluster+ cluster+ cluster+", "reject reject reject"


def word(disposition: Disposition) -> str:
    """``cluster``, ``local``, ``cluster+`` and ``local+`` (masqueraded always), ``drop``, ``reject``."""
    match disposition:
        case Forward(scope, masquerade):
            return scope.value + ("+" if masquerade is Masquerade.ALWAYS else "")
        case Drop():
            return "drop"
        case Reject():
            return "reject"


def words(rule: FrontendRule) -> str:
    return " ".join(map(word, (rule.from_local_pod, rule.from_node, rule.from_outside)))


def table(resolved: ResolvedService) -> dict[FrontendKind, str]:
    return {rule.frontend.kind: words(rule) for port in resolved.ports for rule in port.rules}


@pytest.fixture
def exposed(make_service: Make) -> Make:
    """A Service with a frontend of each kind."""

    def make(**given: Any) -> Any:
        return make_service(
            type=ServiceType.LOAD_BALANCER,
            ports=(ServicePortSpec(port=80, node_port=30080),),
            external_ips=(parse_address("198.51.100.1"),),
            ingress=(LoadBalancerIngress(address=parse_address("203.0.113.1")),),
            **given,
        )

    return make


CLUSTER, LOCAL = TrafficPolicy.CLUSTER, TrafficPolicy.LOCAL


@pytest.mark.parametrize(
    ("policies", "endpoints", "expected"),
    [
        pytest.param((CLUSTER, CLUSTER), [HERE, ELSEWHERE], (NEAR, ALL), id="plain"),
        pytest.param((CLUSTER, LOCAL), [HERE], (NEAR, "cluster cluster+ local"), id="s12, s10, s11: Local"),
        pytest.param((CLUSTER, LOCAL), [ELSEWHERE], (NEAR, "cluster cluster+ drop"), id="s2, s6, s7, s8: none here"),
        pytest.param((LOCAL, CLUSTER), [HERE], ("local local+ local+", ALL), id="internal Local"),
        pytest.param((LOCAL, CLUSTER), [ELSEWHERE], ("drop drop drop", ALL), id="s2: internal Local, none here"),
        pytest.param((LOCAL, LOCAL), [ELSEWHERE], ("drop drop drop", "cluster cluster+ drop"), id="both Local, none here"),
        pytest.param((CLUSTER, CLUSTER), [], (NOBODY, NOBODY), id="s1: no endpoints"),
        pytest.param((LOCAL, LOCAL), [], (NOBODY, NOBODY), id="s2: none anywhere rejects in spite of Local"),
        pytest.param((LOCAL, LOCAL), ["10.244.0.1 notready"], (NOBODY, NOBODY), id="none usable"),
        pytest.param(
            (CLUSTER, LOCAL),
            ["10.244.0.1 terminating here", ELSEWHERE],
            (NEAR, "cluster cluster+ local"),
            id="s13: rolling update",
        ),
    ],
)
def test_the_table(
    policies: tuple[TrafficPolicy, TrafficPolicy], endpoints: list[str], expected: tuple[str, str], exposed: Make, decide: Make
) -> None:
    service = exposed(internal_policy=policies[0], external_policy=policies[1])
    assert table(decide(service, endpoints)) == {CLUSTER_IP: expected[0], **dict.fromkeys(EXTERNALS, expected[1])}


@pytest.mark.parametrize(
    ("external", "endpoints", "others"),
    [
        (CLUSTER, [HERE], "cluster+ cluster+ cluster+"),
        (LOCAL, [HERE], "local cluster+ local"),
        (LOCAL, [ELSEWHERE], "drop cluster+ drop"),
    ],
)
def test_o21_without_a_detector_nothing_extra_is_masqueraded_and_pods_are_outside(
    external: TrafficPolicy, endpoints: list[str], others: str, exposed: Make, decide: Make
) -> None:
    found = table(decide(exposed(external_policy=external), endpoints, local_detector=None))
    assert found == {CLUSTER_IP: "cluster cluster cluster", **dict.fromkeys(EXTERNALS, others)}


@pytest.mark.parametrize("detector", [None, LocalByInterface("cbr0"), LocalByNetwork((parse_network("10.244.0.0/16"),))])
def test_masquerade_all_masquerades_cluster_addresses_whatever_the_origin(
    detector: Any, exposed: Make, make_slice: Make, decide: Make
) -> None:
    service = exposed(external_policy=LOCAL)
    found = table(decide(service, [make_slice(HERE)], masquerade_all=True, local_detector=detector))
    assert found[CLUSTER_IP] == "cluster+ cluster+ cluster+"
    assert {found[kind] for kind in EXTERNALS} == {"cluster cluster+ local" if detector else "local cluster+ local"}


def test_a_detector_counts_only_in_the_family_of_its_networks(make_service: Make, make_slice: Make, decide: Make) -> None:
    service = make_service(cluster_ips=(parse_address("10.96.0.10"), parse_address("fd00:96::10")))
    slices = [make_slice(HERE), make_slice("fd00:244::1")]
    resolved = decide(service, slices, local_detector=LocalByNetwork((parse_network("10.244.0.0/16"),)))
    assert {port.family: words(port.rules[0]) for port in resolved.ports} == {
        Family.IPV4: "cluster cluster+ cluster+",
        Family.IPV6: "cluster cluster cluster",
    }
    resolved = decide(service, slices, local_detector=LocalByInterface("veth", prefix=True))
    assert {words(port.rules[0]) for port in resolved.ports} == {"cluster cluster+ cluster+"}


def test_s53_hairpin_is_masqueraded_from_a_local_pod_too(make_service: Make, make_slice: Make, decide: Make) -> None:
    (port,) = decide(make_service(), [make_slice(HERE)]).ports
    assert port.rules[0].from_local_pod.masquerade is Masquerade.HAIRPIN_ONLY


def test_s21_affinity_goes_with_the_local_set_and_s22_in_seconds(exposed: Make, make_slice: Make, decide: Make) -> None:
    (port,) = decide(exposed(external_policy=LOCAL, affinity_timeout=10800), [make_slice(HERE, ELSEWHERE)]).ports
    assert port.affinity_timeout == 10800
    assert [str(e.address) for e in port.endpoints.local] == ["10.244.0.1"]


def test_s30_affinity_outlives_the_endpoints(make_service: Make, make_slice: Make, decide: Make) -> None:
    service = make_service(affinity_timeout=60)
    for slices in ([make_slice(HERE)], [], [make_slice(HERE)]):
        assert decide(service, slices).ports[0].affinity_timeout == 60


def test_s27_s54_protocols_of_one_number_are_ports_of_their_own(
    make_service: Make, make_slice: Make, decide: Make, udp_port: ServicePortSpec
) -> None:
    service = make_service(ports=(ServicePortSpec(name="dns-tcp", port=53, node_port=30053), udp_port), affinity_timeout=5)
    ports = decide(service, [make_slice(HERE)]).ports
    assert sorted(str(port.key) for port in ports) == ["shop/web:dns-tcp/TCP (IPv4)", "shop/web:dns/UDP (IPv4)"]


def test_s59_families_are_independent(make_service: Make, make_slice: Make, decide: Make) -> None:
    service = make_service(
        cluster_ips=(parse_address("10.96.0.10"), parse_address("fd00:96::10")),
        ports=(ServicePortSpec(port=80, node_port=30080),),
    )
    four, six = decide(service, [make_slice(HERE)]).ports
    assert {words(rule) for rule in four.rules} == {"cluster cluster+ cluster+", "cluster+ cluster+ cluster+"}
    assert {words(rule) for rule in six.rules} == {"reject reject reject"}


def test_serving_holds_whoever_may_still_answer(make_service: Make, make_slice: Make, make_endpoint: Make, decide: Make) -> None:
    published = make_endpoint("10.244.0.4", ready=True, serving=False)
    part = make_slice("10.244.0.1", "10.244.0.2 terminating", "10.244.0.3 dead", published)
    (port,) = decide(make_service(), [part]).ports
    assert [str(e.address) for e in port.serving] == ["10.244.0.1", "10.244.0.2", "10.244.0.4"]


def test_x2_external_addresses_can_be_forbidden(exposed: Make, make_slice: Make, decide: Make) -> None:
    settings = Settings(node_name="here", external_ips_allowed=False)
    assert set(table(decide(exposed(), [make_slice(HERE)], settings))) == {CLUSTER_IP, LOAD_BALANCER, NODE_PORT}


def test_forbidden_external_addresses_do_not_count_as_access_from_outside(
    make_service: Make, make_slice: Make, decide: Make
) -> None:
    service = make_service(external_ips=(parse_address("198.51.100.1"),), external_policy=LOCAL, internal_policy=LOCAL)
    (port,) = decide(service, [make_slice(ELSEWHERE)], Settings(node_name="here", external_ips_allowed=False)).ports
    assert port.endpoints.cluster == ()


@pytest.mark.parametrize(
    ("policies", "endpoints", "expected"),
    [
        ((CLUSTER, CLUSTER), [ELSEWHERE], set()),
        ((LOCAL, CLUSTER), [ELSEWHERE], {"internal"}),
        ((CLUSTER, LOCAL), [ELSEWHERE], {"external"}),
        ((LOCAL, LOCAL), [ELSEWHERE], {"internal", "external"}),
        ((LOCAL, LOCAL), [HERE], set()),
        ((LOCAL, LOCAL), [], set()),
    ],
)
def test_ports_without_a_local_endpoint_are_counted_by_policy(
    policies: tuple[TrafficPolicy, TrafficPolicy], endpoints: list[str], expected: set[str], exposed: Make, decide: Make
) -> None:
    resolved = decide(exposed(internal_policy=policies[0], external_policy=policies[1]), endpoints)
    assert {policy for policy, _ in resolved.without_local} == expected


def test_levelled_weights_are_told(make_service: Make, make_slice: Make, decide: Make) -> None:
    resolved = decide(make_service(weights={"*": 0}), [make_slice(HERE, ELSEWHERE)])
    assert [e.weight for e in resolved.ports[0].endpoints.cluster] == [1, 1]
    (diagnostic,) = resolved.diagnostics
    assert "weight 0" in diagnostic.message
