"""``kproxy run --config`` on a cluster's node: every kind of Service is served, by real packets."""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from kproxy_core.model.names import Protocol
from kproxy_core.testing.fake_api import ENDPOINT_SLICES, SERVICES
from kproxy_core.testing.lab import Answer, Dropped, Question, Refused, ask_all, can_build

from .conftest import Running, wait_until
from .on_a_node import METRICS, NODE_NAME, OnANode, node, node_under_test, service, slices

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]


@pytest.fixture
def there(tmp_path: Path, background: Callable[..., Running]) -> Iterator[OnANode]:
    if not can_build():
        pytest.skip("no privilege to make network namespaces (run as root or in a user namespace)")
    with node_under_test(tmp_path, background) as made:
        yield made


BOTH = (Protocol.TCP, Protocol.UDP)


def assert_answered(there: OnANode, hosts: str, targets: list[str], servers: set[str], port: int = 80) -> list[Answer]:
    """Both protocols, from each host to each address: every answer is one of these servers'."""
    lab = there.lab
    questions = [
        Question(host=lab.hosts[host], address=target, port=port, protocol=protocol, timeout=15.0)
        for host, target, protocol, _ in product(hosts.split(), targets, BOTH, range(3))
    ]
    outcomes = ask_all(questions)
    answers = [outcome for outcome in outcomes if isinstance(outcome, Answer)]
    assert [pair for pair in zip(questions, outcomes, strict=True) if not isinstance(pair[1], Answer)] == []
    assert {answer.server for answer in answers} <= servers
    return answers


def test_every_kind_of_service_is_served(there: OnANode) -> None:
    lab = there.lab
    a1, b1 = lab.pods["a1"], lab.pods["b1"]
    plan = lab.plan
    external = [str(plan.external_ipv4[5]), str(plan.external_ipv6[5])]
    balancer = [str(plan.load_balancer_ipv4[5]), str(plan.load_balancer_ipv6[5])]
    node_addresses = [lab.node.ipv4, lab.node.ipv6]
    clustered = there.serve("clustered", a1, b1)
    ported = there.serve("ported", a1, b1, type="NodePort", ports=_ports(30080))
    there.serve("external", a1, b1, externalIPs=external)
    ingress = {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"} for address in balancer]}}
    there.serve("balanced", a1, b1, type="LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=30999, status=ingress)
    nowhere = there.serve("nowhere")
    away = there.serve("away", b1, internalTrafficPolicy="Local")
    sticky = there.serve("sticky", a1, b1, sessionAffinity="ClientIP")
    there.run()

    assert_answered(there, "a2 node outside", clustered, {"a1", "b1"})
    assert_answered(there, "a2 node", ported, {"a1", "b1"})
    assert_answered(there, "outside", node_addresses, {"a1", "b1"}, port=30080)
    masqueraded = assert_answered(there, "outside", external, {"a1", "b1"})
    assert all(answer.masqueraded for answer in masqueraded)
    kept = assert_answered(there, "outside", balancer, {"a1"})
    assert not any(answer.masqueraded for answer in kept)
    # From a pod of this node, and from the node itself, the policy does not count.
    assert there.who(lab.pods["a2"], balancer[0], count=32) == {"a1", "b1"}
    assert all(isinstance(outcome, Refused) for address in nowhere for outcome in there.ask(lab.outside, address))
    assert isinstance(ask_all([Question(host=lab.pods["a2"], address=away[0], port=80)])[0], Dropped)
    for address in sticky:
        assert len(there.who(lab.pods["a2"], address)) == 1
    # Unallocated addresses of the ServiceCIDR are dropped, other ports of a live one are refused.
    assert isinstance(ask_all([Question(host=lab.pods["a2"], address="10.96.200.200", port=80)])[0], Dropped)
    assert isinstance(there.ask(lab.pods["a2"], clustered[0], port=81)[0], Refused)
    code, body = there.get("/anything", 30999, lab.node.ipv4, lab.outside)
    assert (code, b'"localEndpoints": 1' in body) == (200, True)
    assert there.get("/", 30999, lab.node.ipv6, lab.outside)[0] == 200


def _ports(first: int) -> list[dict[str, object]]:
    return [{"name": each.lower(), "port": 80, "protocol": each, "nodePort": first} for each in ("TCP", "UDP")]


def test_changes_arrive_and_health_metrics_and_mode_are_told(there: OnANode) -> None:
    lab = there.lab
    a1, a2, b1 = (lab.pods[name] for name in ("a1", "a2", "b1"))
    cluster = there.serve("web", a1)
    daemon = there.run()
    there.wait_for(lab.outside, cluster[0], {"a1"})
    there.api.apply_all(slices("web", b1))
    there.wait_for(lab.outside, cluster[0], {"b1"})
    there.api.apply_all(slices("web", a1, a2, b1))
    there.wait_for(lab.outside, cluster[1], {"a1", "a2", "b1"})
    there.api.delete(ENDPOINT_SLICES, "web-ipv4", "default")
    wait_until(lambda: isinstance(there.ask(lab.outside, cluster[0])[0], Refused), "nobody is left in IPv4")
    assert isinstance(there.ask(lab.outside, cluster[1])[0], Answer)
    there.api.delete(SERVICES, "web", "default")
    wait_until(lambda: there.status()["ports"] == 0, "the Service is gone")
    code, health = there.health()
    assert (code, health["healthy"], health["nodeEligible"], set(health["status"])) == (200, True, True, {"IPv4", "IPv6"})
    assert set(health["watches"]) == {"Service", "EndpointSlice", "Node", "ServiceCIDR"}
    assert there.get("/proxyMode", METRICS)[1] == b"nftables"
    assert b'kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv6"}' in there.get("/metrics", METRICS)[1]
    assert "Traceback" not in daemon.log


def test_the_own_node_counts_its_zone_addresses_and_end(there: OnANode) -> None:
    lab = there.lab
    a1, b1 = lab.pods["a1"], lab.pods["b1"]
    hinted = slices("web", a1, b1)
    for each in hinted:
        for endpoint, zone in zip(each["endpoints"], ("west", "east"), strict=True):
            endpoint["hints"] = {"forZones": [{"name": zone}]}
    cluster = there.cluster()
    there.api.apply_all([service("web", cluster, type="NodePort", ports=_ports(30080)), *hinted])
    there.run()
    there.wait_for(lab.pods["a2"], cluster[0], {"b1"})
    there.api.apply(node(lab.node, metadata={"labels": {"topology.kubernetes.io/zone": "west"}}))
    there.wait_for(lab.pods["a2"], cluster[0], {"a1"})
    # NodePorts answer at the Node's addresses, and at others only when the Node says that they are its own.
    lab.node.add_address("172.18.0.77/24")
    assert isinstance(there.ask(lab.outside, lab.node.ipv4, 30080)[0], Answer)
    assert isinstance(there.ask(lab.outside, "172.18.0.77", 30080)[0], Refused)
    moved = node(lab.node)
    moved["status"]["addresses"] = [{"type": "InternalIP", "address": each} for each in ("172.18.0.77", lab.node.ipv6)]
    there.api.apply(moved)
    wait_until(lambda: isinstance(there.ask(lab.outside, "172.18.0.77", 30080)[0], Answer), "the Node's new address answers")
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "value": "1"}
    there.api.apply(node(lab.node, taints=[taint]))
    wait_until(lambda: there.health()[0] == 503, "/healthz tells load balancers to leave")
    assert there.health("/livez")[0] == 200
    there.api.apply(node(lab.node))
    wait_until(lambda: there.health()[0] == 200, "the Node stays")


def test_another_name_is_another_node(there: OnANode) -> None:
    lab = there.lab
    ingress = {"loadBalancer": {"ingress": [{"ip": str(lab.plan.load_balancer_ipv4[5])}]}}
    policy = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 30999}
    there.serve("web", lab.pods["a1"], type="LoadBalancer", status=ingress, **policy)
    there.api.apply(node(lab.node2))
    # Upper case, as some clouds have it; the option beats the file.
    daemon = there.run(hostnameOverride="NODE2")
    wait_until(lambda: there.health()[1]["status"], "a sync")
    assert there.health()[1]["nodeEligible"]
    assert not there.is_answered(lab.outside, str(lab.plan.load_balancer_ipv4[5]))
    daemon.stop()
    there.run("--node-name", NODE_NAME, hostnameOverride="node2")
    wait_until(lambda: _listens(there) and there.get("/", 30999, lab.node.ipv4)[0] == 200, "a1 is local")


def _listens(there: OnANode) -> bool:
    try:
        there.get("/", 30999, there.lab.node.ipv4)
    except OSError:
        return False
    return True


def test_load_balancer_addresses_follow_the_status(there: OnANode) -> None:
    lab = there.lab
    cluster, address = there.cluster(), str(lab.plan.load_balancer_ipv4[5])
    there.run()
    balanced = service("web", cluster, type="LoadBalancer")
    there.api.apply_all([balanced, *slices("web", lab.pods["a1"])])
    there.wait_for(lab.outside, cluster[0], {"a1"})
    there.api.apply({**balanced, "status": {"loadBalancer": {"ingress": [{"ip": address}]}}})
    wait_until(lambda: there.is_answered(lab.outside, address), "the address is served")
    there.api.apply({**balanced, "status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "Proxy"}]}}})
    wait_until(lambda: not there.is_answered(lab.outside, address), "the load balancer answers itself")


def test_no_sync_before_all_lists(there: OnANode) -> None:
    cluster = there.serve("web", there.lab.pods["a1"])
    there.api.faults.refuse(403, times=10_000, resource="endpointslices")
    daemon = there.start()
    daemon.says("watching /apis/discovery.k8s.io/v1/endpointslices: 403")
    assert there.health("/livez")[1]["status"] == {}
    wait_until(
        lambda: all(each["listed"] for name, each in there.health()[1]["watches"].items() if name != "EndpointSlice"), "others"
    )
    assert "first sync" not in daemon.log
    assert there.tables() == []
    assert there.health()[0] == 200
    there.api.faults.restore()
    daemon.says("first sync: ")
    there.wait_for(there.lab.outside, cluster[0], {"a1"})
