"""The lab's pure parts: the plan's addresses, SCTP packets, counting outcomes."""

from ipaddress import IPv4Network, ip_address

import pytest

from kproxy_core.model.addresses import parse_address
from kproxy_core.model.names import Protocol
from kproxy_core.testing.lab import AddressPair, Answer, Dropped, LabPlan, PodPlan, Question, ServerPlan, tally
from kproxy_core.testing.lab.outcomes import parse_answer
from kproxy_core.testing.lab.plan import NODE, NODE2, check_pod
from kproxy_core.testing.lab.responder import sctp


def test_no_two_hosts_share_an_address() -> None:
    plan = LabPlan()
    pairs = [plan.node_addresses(node) for node in (NODE, NODE2)]
    pairs += [plan.client_addresses(number) for number in range(100)]
    pairs += [plan.bridge_gateway(node)[0] for node in (NODE, NODE2)]
    pairs += [plan.pod_addresses(node, offset) for node in (NODE, NODE2) for offset in (*range(10, 128), *range(130, 255))]
    texts = [text for pair in pairs for text in (pair.ipv4, pair.ipv6)]
    assert len(set(texts)) == len(texts)
    assert all(str(ip_address(text)) == text for text in texts)


def test_pods_lie_in_their_nodes_range_and_services_in_none() -> None:
    plan = LabPlan()
    for node in (NODE, NODE2):
        ipv4, ipv6 = plan.pod_ranges(node)
        assert ipv4.subnet_of(plan.pods_ipv4)
        assert ipv6.subnet_of(plan.pods_ipv6)
        pair = plan.pod_addresses(node, 130)
        assert ip_address(pair.ipv4) in ipv4
        assert ip_address(pair.ipv6) in ipv6
    taken = (plan.pods_ipv4, plan.pods_ipv6, plan.outside_ipv4, plan.outside_ipv6)
    for network in plan.service_ranges:
        assert not any(network.version == other.version and network.overlaps(other) for other in taken)


def test_pods_are_named_by_node_and_kind() -> None:
    plan = LabPlan(node_routed=1, node_bridged=1, node2_routed=2, node2_bridged=1)
    assert [(pod.name, pod.on, pod.bridged) for pod in plan.pods] == [
        ("a1", NODE, False),
        ("abr1", NODE, True),
        ("b1", NODE2, False),
        ("b2", NODE2, False),
        ("bbr1", NODE2, True),
    ]


def test_offsets_are_reused_and_end() -> None:
    plan = LabPlan(pods_ipv4=IPv4Network("10.0.0.0/16"))
    routed, bridged = PodPlan(name="x"), PodPlan(name="y", bridged=True)
    assert plan.free_offset(routed, frozenset({10, 12})) == 11
    assert plan.free_offset(bridged, frozenset()) == 130
    assert plan.pod_addresses(NODE, 130) == AddressPair(ipv4="10.0.1.130", ipv6="fd00:244:0:1::82")
    with pytest.raises(ValueError, match="no address left on node for one more routed pod"):
        plan.free_offset(routed, frozenset(range(10, 128)))


@pytest.mark.parametrize(
    "pod", [PodPlan(name=""), PodPlan(name="eleven-long"), PodPlan(name="a/b"), PodPlan(name="a", on="node3")]
)
def test_unfit_pods_are_told(pod: PodPlan) -> None:
    with pytest.raises(ValueError, match="pod"):
        check_pod(pod)


def test_limits_of_plans_are_told() -> None:
    with pytest.raises(ValueError, match="outside_addresses is 0"):
        LabPlan(outside_addresses=0)
    with pytest.raises(ValueError, match="delay is 61"):
        ServerPlan(delay=61)


def test_crc32c_of_the_known_string() -> None:
    assert sctp.checksum(b"123456789") == 0xE3069283


@pytest.mark.parametrize("cookie", [b"", b"x", b"four", b"{}" * 100])
def test_sctp_packets_come_back(cookie: bytes) -> None:
    packet = sctp.Handshake(1234, 80, sctp.INIT_ACK, 7, 9, cookie)
    assert sctp.decode(sctp.encode(packet)) == packet
    assert len(sctp.encode(packet)) % 4 == 0
    init = sctp.Handshake(1234, 80, sctp.INIT, 0, 9)
    assert sctp.decode(sctp.encode(init)) == init
    abort = sctp.Handshake(80, 1234, sctp.ABORT, 9)
    assert sctp.decode(sctp.encode(abort)) == abort


def test_damaged_sctp_packets_are_none() -> None:
    good = sctp.encode(sctp.Handshake(1234, 80, sctp.INIT, 0, 9))
    for position in range(len(good)):
        assert sctp.decode(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :]) is None
        assert sctp.decode(good[:position]) is None


def test_the_ipv4_header_is_taken_off() -> None:
    assert sctp.without_ip_header(b"\x46" + bytes(23) + b"rest", ipv6=False) == b"rest"
    assert sctp.without_ip_header(b"rest", ipv6=True) == b"rest"


def test_tally_counts_servers_and_failures() -> None:
    line = b'{"server": "a1", "port": 80, "protocol": "TCP", "client": "c", "client_port": 1, "local": "l", "said": ""}'
    answer = parse_answer(line, ("c", 1), 0.1)
    assert isinstance(answer, Answer)
    assert not answer.masqueraded
    assert tally([answer, answer, Dropped()]) == {"a1": 2, "Dropped": 1}
    with pytest.raises(ValueError, match="not the answer of a server of the lab"):
        parse_answer(b"HTTP/1.1 400 Bad Request", ("c", 1), 0.1)


def test_questions_take_addresses_of_the_model() -> None:
    question = Question(host=None, address=parse_address("fd00::0001"), port=80, protocol=Protocol.UDP)  # type: ignore[arg-type]
    assert question.address == "fd00::1"
    with pytest.raises(ValueError, match="nonsense"):
        Question(host=None, address="nonsense", port=80)  # type: ignore[arg-type]
