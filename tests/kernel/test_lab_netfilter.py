"""What the lab shows of a proxy's work, with rules by hand: kinds of refusal, masquerade, bridge netfilter, lost returns."""

import pytest

from kproxy_core.model.names import Protocol
from kproxy_core.testing.lab import (
    Answer,
    Dropped,
    Host,
    Lab,
    LabCapability,
    Refused,
    ServerPlan,
    ask,
)

from ..programs import program

pytestmark = pytest.mark.kernel

SURE = 10.0  # seconds, where an answer is certain to come: a busy machine is no drop

BOTH = pytest.mark.parametrize("ipv6", [False, True], ids=["v4", "v6"])
ALL = tuple(Protocol)


@pytest.fixture(autouse=True)
def _nft() -> None:
    program("nft")


def _rules(host: Host, text: str) -> None:
    host.run([program("nft"), "-f", "-"], input=text)


def _service(ipv6: bool) -> str:
    return "fd00:96::1" if ipv6 else "10.96.0.1"


def _translate(host: Host, endpoint: str, ipv6: bool, masquerade: str = "") -> None:
    """Send the service address's port 80 to one endpoint, in all protocols."""
    family = "ip6" if ipv6 else "ip"
    there = f"[{endpoint}]:8080" if ipv6 else f"{endpoint}:8080"
    rule = f"meta l4proto {{ tcp, udp, sctp }} {family} daddr {_service(ipv6)} th dport 80 dnat to {there}"
    _rules(
        host,
        f"""table {family} t {{
            chain pre {{ type nat hook prerouting priority dstnat; {rule}; }}
            chain out {{ type nat hook output priority -100; {rule}; }}
            chain post {{ type nat hook postrouting priority srcnat; {masquerade}; }}
        }}""",
    )


@pytest.mark.parametrize("where", ["prerouting", "output"])
@BOTH
def test_rst_and_icmp_are_told_apart(lab: Lab, where: str, ipv6: bool) -> None:
    _rules(
        lab.node,
        f"""table inet t {{ chain c {{ type filter hook {where} priority 0;
            tcp dport 1 reject with tcp reset
            tcp dport 2 reject with icmpx port-unreachable
            udp dport 2 reject with icmpx port-unreachable
            sctp dport 2 reject with icmpx port-unreachable
            meta l4proto {{ tcp, udp, sctp }} th dport 3 drop
            }}
        }}""",
    )
    client = lab.pods["a1"] if where == "prerouting" else lab.node
    service = _service(ipv6)
    assert ask(client, service, 1, timeout=SURE) == Refused(by="rst")
    for protocol in ALL:
        outcome = ask(client, service, 2, protocol, timeout=SURE)
        assert isinstance(outcome, Refused), (protocol, outcome)
        assert outcome.by == "icmp"
        outcome = ask(client, service, 3, protocol, timeout=0.1)
        assert isinstance(outcome, Dropped), (protocol, outcome)
        assert outcome.locally == (where == "output" and protocol is not Protocol.TCP)


@pytest.mark.parametrize("protocol", ALL, ids=[protocol.name for protocol in ALL])
@pytest.mark.parametrize("endpoint", ["a2", "abr2", "b1"])
@BOTH
def test_translated_connections_say_who_answers_and_whom_it_saw(lab: Lab, endpoint: str, protocol: Protocol, ipv6: bool) -> None:
    pod = lab.pods[endpoint]
    lab.serve(pod, 8080, protocol)
    _translate(lab.node, pod.address(ipv6), ipv6)
    for client in (lab.pods["a1"], lab.node):
        outcome = ask(client, _service(ipv6), 80, protocol, timeout=SURE)
        assert isinstance(outcome, Answer), (client, outcome)
        assert (outcome.server, outcome.port) == (endpoint, 8080)
        assert outcome.client in client.addresses
    outcome = ask(lab.outside, _service(ipv6), 80, protocol, timeout=0.2 if endpoint == "b1" else SURE)
    if endpoint == "b1":
        assert outcome == Dropped(), "node2 answers the client straight, from an address that it did not ask"
    else:
        assert isinstance(outcome, Answer)
        assert not outcome.masqueraded


@BOTH
def test_masquerade_makes_the_way_back_from_the_other_node(lab: Lab, ipv6: bool) -> None:
    lab.serve(lab.pods["b1"], 8080, *ALL)
    _translate(lab.node, lab.pods["b1"].address(ipv6), ipv6, "ct status dnat masquerade")
    for protocol in ALL:
        outcome = ask(lab.outside, _service(ipv6), 80, protocol, timeout=SURE)
        assert isinstance(outcome, Answer), (protocol, outcome)
        assert outcome.masqueraded
        assert outcome.client == lab.node.address(ipv6)


@BOTH
@pytest.mark.parametrize("name", ["a1", "abr1"])
def test_a_pod_reaches_itself_by_its_service(lab: Lab, name: str, ipv6: bool) -> None:
    pod = lab.pods[name]
    lab.serve(pod, 8080, *ALL)
    family = "ip6" if ipv6 else "ip"
    hairpin = f"{family} saddr {pod.address(ipv6)} {family} daddr {pod.address(ipv6)} masquerade"
    _translate(lab.node, pod.address(ipv6), ipv6, hairpin)
    for protocol in ALL:
        outcome = ask(pod, _service(ipv6), 80, protocol, timeout=SURE)
        assert isinstance(outcome, Answer), (protocol, outcome)
        assert outcome.masqueraded
        assert outcome.client in lab.node.addresses


@BOTH
def test_neighbours_on_a_bridge_need_bridge_netfilter(lab: Lab, ipv6: bool) -> None:
    """The answer does not pass the node's IP layer: without bridge-nf-call-* nobody translates it back."""
    if lab.lacks(LabCapability.BRIDGE_NETFILTER):
        pytest.skip("br_netfilter is not there")
    lab.serve(lab.pods["abr2"], 8080, *ALL)
    _translate(lab.node, lab.pods["abr2"].address(ipv6), ipv6)
    assert isinstance(ask(lab.pods["abr1"], _service(ipv6), 80, timeout=SURE), Answer)
    lab.node.sysctl(f"net.bridge.bridge-nf-call-ip{'6' if ipv6 else ''}tables", 0)
    assert ask(lab.pods["abr1"], _service(ipv6), 80, timeout=0.2) == Dropped()


def test_a_datagram_that_got_lost_is_sent_again_and_a_flow_that_is_stuck_stays_stuck(lab: Lab) -> None:
    a1, a2 = lab.pods["a1"], lab.pods["a2"]
    lab.serve(a2, ServerPlan(ports=(8080,), protocols=(Protocol.UDP,)))
    # The datagram is 32 bytes with its headers: the quota holds the first one alone.
    chain = "table ip t {{ chain {} {{ type filter hook forward priority 0; udp dport 8080 {} drop; }}; }}"
    _rules(lab.node, chain.format("first", "quota until 40 bytes"))
    assert isinstance(ask(a1, a2.ipv4, 8080, Protocol.UDP, timeout=SURE), Answer)
    _rules(lab.node, chain.format("every", ""))
    assert ask(a1, a2.ipv4, 8080, Protocol.UDP, timeout=2.5) == Dropped()
