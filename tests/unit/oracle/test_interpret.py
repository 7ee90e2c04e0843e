"""The meaning of a NodeState, on states written by hand."""

import pytest
from attrs import evolve

from kproxy_core.model.addresses import Family, parse_address, parse_network
from kproxy_core.model.names import Protocol, ServicePortName
from kproxy_core.model.packet import Dropped, Packet, Refused, Untouched, Verdict
from kproxy_core.model.state import (
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
    LocalDetector,
    Masquerade,
    NodeContext,
    NodeState,
    Origin,
    Reject,
    ServicePort,
)
from kproxy_core.testing.interpret import interpret, origin_of

from .cluster import from_node, from_outside, from_pod, to

HERE = Endpoint(address=parse_address("10.244.1.11"), port=8080, local=True)
THERE = Endpoint(address=parse_address("10.244.2.21"), port=8080)
TO_ALL = Forward(EndpointScope.CLUSTER, Masquerade.HAIRPIN_ONLY)
TO_ALL_MASQUERADED = Forward(EndpointScope.CLUSTER, Masquerade.ALWAYS)
TO_LOCAL = Forward(EndpointScope.LOCAL, Masquerade.HAIRPIN_ONLY)


def frontend(kind: FrontendKind, address: str | None, port: int) -> Frontend:
    return Frontend(kind=kind, address=None if address is None else parse_address(address), port=port)


WEB = ServicePort(
    name=ServicePortName("shop", "web", "", Protocol.TCP),
    family=Family.IPV4,
    rules=(
        FrontendRule(
            frontend=frontend(FrontendKind.CLUSTER_IP, "10.96.0.10", 80),
            from_local_pod=TO_ALL,
            from_node=TO_ALL_MASQUERADED,
            from_outside=Reject(),
        ),
        FrontendRule(
            frontend=frontend(FrontendKind.LOAD_BALANCER, "203.0.113.10", 80),
            from_local_pod=TO_ALL,
            from_node=TO_ALL,
            from_outside=TO_LOCAL,
            restricted=True,
        ),
        FrontendRule(
            frontend=frontend(FrontendKind.NODE_PORT, None, 30080),
            from_local_pod=Drop(),
            from_node=Reject(),
            from_outside=TO_LOCAL,
        ),
        FrontendRule(
            frontend=frontend(FrontendKind.EXTERNAL_IP, "192.0.2.1", 30080),
            from_local_pod=TO_ALL,
            from_node=TO_ALL,
            from_outside=TO_ALL,
        ),
    ),
    endpoints=EndpointSets(cluster=(HERE, THERE), local=(HERE,), reachable=(HERE, THERE), any_in_cluster=True),
    source_ranges=(parse_network("198.18.0.0/24"),),
)
STATE = NodeState(
    node=NodeContext(
        name="n1",
        node_port_addresses=(parse_address("192.0.2.1"), parse_address("192.0.2.101"), parse_address("127.0.0.1")),
        local_detector=LocalByNetwork((parse_network("10.244.0.0/16"),)),
        service_cidrs=(parse_network("10.96.0.0/24"),),
    ),
    ports={WEB.key: WEB},
)


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        (from_pod("10.96.0.10:80"), to("10.244.1.11:8080", "10.244.2.21:8080")),
        (from_pod("10.96.0.10:80", "10.244.1.11"), to("10.244.1.11:8080*", "10.244.2.21:8080")),
        (from_node("10.96.0.10:80"), to("10.244.1.11:8080*", "10.244.2.21:8080*")),
        (from_outside("10.96.0.10:80"), Refused()),
        (from_outside("203.0.113.10:80"), to("10.244.1.11:8080")),
        (from_outside("203.0.113.10:80", "198.18.1.7"), Dropped()),
        (from_pod("203.0.113.10:80"), Dropped()),
        (from_outside("192.0.2.101:30080"), to("10.244.1.11:8080")),
        (from_pod("192.0.2.101:30080"), Dropped()),
        (from_node("192.0.2.101:30080"), Refused()),
        # An address comes before a NodePort there.
        (from_outside("192.0.2.1:30080"), to("10.244.1.11:8080", "10.244.2.21:8080")),
        (from_outside("192.0.2.102:30080"), Untouched()),
        (from_node("127.0.0.1:30080"), Untouched()),
        # Another port, another protocol, another address of the range, and none of these.
        (from_pod("10.96.0.10:81"), Refused()),
        (from_pod("10.96.0.10:80/udp"), Refused()),
        (from_pod("10.96.0.11:80"), Dropped()),
        (from_pod("203.0.113.10:81"), Untouched()),
    ],
)
def test_meaning(packet: Packet, expected: Verdict) -> None:
    assert interpret(STATE, packet) == expected


def test_every_local_address_answers_if_any_does() -> None:
    state = evolve(STATE, node=evolve(STATE.node, node_port_any=True))
    local = tuple(map(parse_address, ("127.0.0.1", "192.0.2.102")))
    assert interpret(state, from_outside("192.0.2.102:30080"), local) == to("10.244.1.11:8080")
    assert interpret(state, from_outside("192.0.2.103:30080"), local) == Untouched()
    assert interpret(state, from_node("127.0.0.1:30080"), local) == Untouched()


@pytest.mark.parametrize(
    ("detector", "packet", "origin"),
    [
        (None, from_pod("10.96.0.10:80"), Origin.OUTSIDE),
        (None, from_node("10.96.0.10:80"), Origin.NODE),
        (LocalByNetwork((parse_network("10.244.1.0/24"),)), from_pod("10.96.0.10:80"), Origin.LOCAL_POD),
        (LocalByNetwork((parse_network("10.244.1.0/24"),)), from_node("10.96.0.10:80", "10.244.1.1"), Origin.LOCAL_POD),
        (LocalByNetwork((parse_network("10.244.1.0/24"),)), from_outside("10.96.0.10:80", "10.244.2.9"), Origin.OUTSIDE),
        (LocalByInterface("veth9"), from_pod("10.96.0.10:80"), Origin.LOCAL_POD),
        (LocalByInterface("veth"), from_pod("10.96.0.10:80"), Origin.OUTSIDE),
        (LocalByInterface("veth", prefix=True), from_pod("10.96.0.10:80"), Origin.LOCAL_POD),
        (LocalByInterface("veth", prefix=True), from_node("10.96.0.10:80", "10.244.1.1"), Origin.NODE),
    ],
)
def test_origins(detector: LocalDetector, packet: Packet, origin: Origin) -> None:
    assert origin_of(detector, packet) is origin


def test_unclear_states_are_refused() -> None:
    rival = evolve(WEB, name=ServicePortName("shop", "rival", "", Protocol.TCP))
    twice = evolve(STATE, ports={WEB.key: WEB, rival.key: rival})
    for destination in ("10.96.0.10:80", "192.0.2.101:30080"):
        with pytest.raises(ValueError, match=r"belongs to both shop/web/TCP .* and shop/rival/TCP"):
            interpret(twice, from_pod(destination))
    empty = evolve(STATE, ports={WEB.key: evolve(WEB, endpoints=EndpointSets())})
    with pytest.raises(ValueError, match="forward to the cluster endpoints, of which there are none"):
        interpret(empty, from_pod("10.96.0.10:80"))
