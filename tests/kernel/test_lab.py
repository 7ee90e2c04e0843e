"""The lab's network as it is without any proxy: who reaches whom, in both families and three protocols, and who is seen."""

import errno
import socket
import struct

import pytest

from kproxy_core.model.names import Protocol
from kproxy_core.testing.lab import (
    Answer,
    Dropped,
    Host,
    Lab,
    Question,
    Refused,
    Unreachable,
    ask,
    ask_all,
    ask_many,
    tally,
)

pytestmark = pytest.mark.kernel

SURE = 10.0  # seconds, where an answer is certain to come: a busy machine is no drop

ALL = tuple(Protocol)
BOTH = pytest.mark.parametrize("ipv6", [False, True], ids=["v4", "v6"])
EACH = pytest.mark.parametrize("protocol", ALL, ids=[protocol.name for protocol in ALL])


@pytest.fixture(scope="module")
def served(shared_lab: Lab) -> Lab:
    """Every host serves port 8080."""
    for host in shared_lab.hosts.values():
        shared_lab.serve(host, 8080, *ALL)
    return shared_lab


def test_the_default_plan_has_nine_hosts(shared_lab: Lab) -> None:
    assert len(shared_lab.hosts) == 9
    assert set(shared_lab.pods) == {"a1", "a2", "abr1", "abr2", "b1", "b2"}


@BOTH
@EACH
def test_everybody_reaches_everybody_and_is_seen_as_himself(served: Lab, protocol: Protocol, ipv6: bool) -> None:
    pairs = [(client, server) for client in served.hosts.values() for server in served.hosts.values()]
    questions = [
        Question(host=client, address=server.address(ipv6), port=8080, protocol=protocol, timeout=SURE)
        for client, server in pairs
    ]
    for (client, server), outcome in zip(pairs, ask_all(questions), strict=True):
        assert isinstance(outcome, Answer), (client, server, outcome)
        assert outcome.server == server.name
        assert outcome.client == outcome.source, "somebody translated an address"
        assert outcome.client_port == outcome.source_port
        assert outcome.client in client.addresses
        assert outcome.local == server.address(ipv6)
        assert (outcome.port, outcome.protocol) == (8080, protocol)


@BOTH
def test_a_node_has_its_own_address_towards_routed_pods(served: Lab, ipv6: bool) -> None:
    outcome = ask(served.node, served.pods["a1"].address(ipv6), 8080, timeout=SURE)
    assert isinstance(outcome, Answer)
    assert outcome.client == served.node.address(ipv6)


@BOTH
@EACH
def test_the_source_can_be_chosen(served: Lab, protocol: Protocol, ipv6: bool) -> None:
    source = served.outside.addresses[2 * 3 + ipv6]
    for _ in range(3):  # again at once: no TIME_WAIT is in the way
        outcome = ask(
            served.outside,
            served.pods["a1"].address(ipv6),
            8080,
            protocol,
            source_address=source,
            source_port=23456,
            timeout=SURE,
        )
        assert isinstance(outcome, Answer), outcome
        assert (outcome.client, outcome.client_port) == (source, 23456)
        assert (outcome.source, outcome.source_port) == (source, 23456)


def test_a_source_that_is_not_there_is_an_error(served: Lab) -> None:
    with pytest.raises(OSError, match="assign requested address") as raised:
        ask(served.outside, served.node.ipv4, 8080, source_address="192.0.2.99", timeout=SURE)
    assert raised.value.errno == errno.EADDRNOTAVAIL


@BOTH
def test_a_closed_port_refuses_and_says_how(served: Lab, ipv6: bool) -> None:
    pod = served.pods["abr1"].address(ipv6)
    assert ask(served.outside, pod, 9, timeout=SURE) == Refused(by="rst")
    assert ask(served.outside, pod, 9, Protocol.UDP, timeout=SURE) == Refused(by="icmp", sender=pod)


@BOTH
def test_no_refusal_is_lost_to_a_rate_limit(served: Lab, ipv6: bool) -> None:
    outcomes = ask_many(served.outside, served.pods["a1"].address(ipv6), 9, 150, protocol=Protocol.UDP, timeout=SURE)
    assert tally(outcomes) == {"Refused": 150}


@BOTH
@EACH
def test_an_address_of_nobody_drops(served: Lab, protocol: Protocol, ipv6: bool) -> None:
    """What a service address is without a proxy: from a pod, the node and outside alike."""
    service = "fd00:96::1" if ipv6 else "10.96.0.1"
    hosts = (served.pods["a1"], served.pods["abr1"], served.node, served.outside)
    questions = [Question(host=host, address=service, port=80, protocol=protocol, timeout=0.2) for host in hosts]
    assert ask_all(questions) == (Dropped(),) * 4


@BOTH
@EACH
def test_a_blackhole_drops_and_an_unreachable_route_tells(lab: Lab, protocol: Protocol, ipv6: bool) -> None:
    networks = ("fd00:96::/120", "fd00:96::100/120") if ipv6 else ("10.96.0.0/24", "10.96.1.0/24")
    addresses = ("fd00:96::1", "fd00:96::101") if ipv6 else ("10.96.0.1", "10.96.1.1")
    with lab.node.iproute() as ipr:
        for network, kind in zip(networks, ("blackhole", "unreachable"), strict=True):
            ipr.route("add", dst=network, type=kind, family=10 if ipv6 else 2)
    pod = lab.pods["a1"]
    dropped, told = ask_all(Question(host=pod, address=address, port=80, protocol=protocol) for address in addresses)
    assert dropped == Dropped()
    assert isinstance(told, Unreachable)
    assert told.reason == ("no route" if ipv6 else "host unreachable")
    assert told.sender in lab.node.addresses


@BOTH
def test_no_route_at_all_is_told_by_the_client_itself(lab: Lab, ipv6: bool) -> None:
    assert ask(lab.outside, "2001:db8:99::1" if ipv6 else "8.8.8.8", 53, Protocol.UDP, timeout=SURE) == Unreachable(
        reason="ENETUNREACH"
    )


@BOTH
@pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP], ids=["TCP", "UDP"])
def test_many_at_once(served: Lab, protocol: Protocol, ipv6: bool) -> None:
    outcomes = ask_many(served.outside, served.pods["b1"].address(ipv6), 8080, 600, protocol=protocol, timeout=SURE)
    assert tally(outcomes) == {"b1": 600}
    sources = {(outcome.source, outcome.source_port) for outcome in outcomes if isinstance(outcome, Answer)}
    assert len(sources) > 1


def test_outcomes_come_in_the_order_of_the_questions(served: Lab) -> None:
    answers = Question(host=served.outside, address=served.pods["a1"].ipv4, port=8080)
    refused = Question(host=served.outside, address=served.pods["a1"].ipv4, port=9)
    drops = Question(host=served.outside, address="10.96.0.1", port=80, timeout=0.1)
    outcomes = ask_all([drops, answers, refused, drops, answers])
    assert [type(outcome) for outcome in outcomes] == [Dropped, Answer, Refused, Dropped, Answer]
    assert ask_all([]) == ()


def test_an_unconnected_udp_socket_hears_no_refusal(served: Lab) -> None:
    pod = served.pods["a1"].ipv4
    assert isinstance(ask(served.outside, pod, 8080, Protocol.UDP, connected=False, timeout=SURE), Answer)
    assert ask(served.outside, pod, 9, Protocol.UDP, connected=False, timeout=0.1) == Dropped()


def _broadcast_that_returns(pod: Host) -> bytes:
    """Send a frame to everybody from a pod; return it if the bridge sends it back."""
    protocol = 0x88B5  # for local experiments (IEEE 802)
    with pod.enter(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol)) as link:
        link.bind(("eth0", protocol))
        link.settimeout(5)
        link.send(b"\xff" * 6 + link.getsockname()[4] + struct.pack("!H", protocol) + b"hairpin?".ljust(46, b"\0"))
        while True:
            frame, address = link.recvfrom(2048)
            if address[2] != 4:  # PACKET_OUTGOING is our own copy
                return frame


def test_the_bridge_sends_back_to_the_port_a_frame_came_from(shared_lab: Lab) -> None:
    assert b"hairpin?" in _broadcast_that_returns(shared_lab.pods["abr1"])


def test_programs_and_functions_run_inside(shared_lab: Lab) -> None:
    pod = shared_lab.pods["a1"]
    assert pod.call(socket.if_nameindex) == [(1, "lo"), (2, "eth0")]
    assert pod.run(["cat", "/proc/net/if_inet6"]).stdout.count("eth0") == 2
    assert pod.run(["false"], check=False).returncode == 1
    assert pod.sysctl("net.ipv4.ip_forward") == "0"
    assert shared_lab.node.sysctl("net.ipv6.conf.all.forwarding") == "1"
    with pod.popen(["cat", "/proc/net/route"], stdout=-1) as started:
        assert "eth0" in started.communicate()[0]


def test_the_thread_is_back_home_after_an_exception(shared_lab: Lab) -> None:
    before = [name for _index, name in socket.if_nameindex()]
    pod, node = shared_lab.pods["a1"], shared_lab.node

    def fail_deep_inside() -> None:
        with node.enter():
            raise RuntimeError(f"inside, with {len(socket.if_nameindex())} links")

    with pytest.raises(RuntimeError, match=r"inside, with \d+ links"):
        pod.call(fail_deep_inside)
    assert [name for _index, name in socket.if_nameindex()] == before


@BOTH
def test_the_outside_client_follows_a_change_of_the_node(lab: Lab, ipv6: bool) -> None:
    """Service addresses are put on the nodes themselves, so that it shows which node a packet gets to."""
    service = "fd00:96::7/128" if ipv6 else "10.96.0.7/32"
    for node in (lab.node, lab.node2):
        node.add_address(service, "lo")
        lab.serve(node, 8080)
    address = service.partition("/")[0]
    assert address in lab.node.addresses
    assert tally([ask(lab.outside, address, 8080, timeout=SURE)]) == {"node": 1}
    lab.route_services(lab.node2)
    assert tally([ask(lab.outside, address, 8080, timeout=SURE)]) == {"node2": 1}
    lab.route_services(lab.node, service)
    assert tally([ask(lab.outside, address, 8080, Protocol.UDP, timeout=SURE)]) == {"node": 1}
    lab.node.remove_address(service, "lo")
    assert address not in lab.node.addresses
    assert ask(lab.outside, address, 8080, timeout=0.1) == Dropped()
