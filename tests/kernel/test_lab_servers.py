"""The lab's servers and the conversations with them: held connections, UDP flows, misbehaviour, load."""

import socket
import threading
import time

import pytest

from kproxy_core.model.names import Protocol
from kproxy_core.testing.lab import (
    Answer,
    Behaviour,
    Closed,
    Connections,
    Dropped,
    Lab,
    LabError,
    Load,
    NotConnectedError,
    Outcome,
    Question,
    Refused,
    ServerPlan,
    UdpFlow,
    ask,
    ask_many,
    hold,
    tally,
)

pytestmark = pytest.mark.kernel

SURE = 10.0  # seconds, where an answer is certain to come: a busy machine is no drop

BOTH = pytest.mark.parametrize("ipv6", [False, True], ids=["v4", "v6"])


def _server(outcome: Outcome) -> str:
    assert isinstance(outcome, Answer), outcome
    return outcome.server


@BOTH
def test_a_held_connection_outlives_its_listener(lab: Lab, ipv6: bool) -> None:
    server = lab.serve(lab.pods["a1"], 80)
    address = lab.pods["a1"].address(ipv6)
    with hold(lab.outside, address, 80, timeout=SURE) as held:
        assert held.server == "a1"
        assert held.greeting.client == held.source[0] == lab.outside.address(ipv6)
        first = held.exchange("hello")
        assert isinstance(first, Answer)
        assert first.said == "hello"
        server.stop()
        assert held.alive()
        assert ask(lab.outside, address, 80, timeout=SURE) == Refused(by="rst")
        server.stop(Connections.CLOSE)
        assert held.exchange() == Closed(by="fin")
        assert not held.alive()


def test_stopping_may_reset_connections(lab: Lab) -> None:
    server = lab.serve(lab.pods["b1"], 80)
    held = [hold(lab.outside, lab.pods["b1"].ipv4, 80, timeout=SURE) for _ in range(3)]
    assert server.served().open == 3
    server.stop(Connections.RESET)
    assert [connection.exchange() for connection in held] == [Closed(by="rst")] * 3
    assert server.served().open == 0
    for connection in held:
        connection.close()
        connection.close()


def test_a_client_may_reset(lab: Lab) -> None:
    server = lab.serve(lab.pods["b1"], 80)
    hold(lab.outside, lab.pods["b1"].ipv4, 80, timeout=SURE).reset()
    while server.served().open:
        pass  # until the RST has been seen; each turn asks the server
    assert server.served().total == 1


def test_nothing_to_hold_tells_why(lab: Lab) -> None:
    with pytest.raises(NotConnectedError, match="Refused") as refused:
        hold(lab.outside, lab.pods["a1"].ipv4, 9, timeout=SURE)
    assert refused.value.outcome == Refused(by="rst")
    with pytest.raises(NotConnectedError) as dropped:
        hold(lab.outside, "10.96.0.1", 80, timeout=0.1)
    assert dropped.value.outcome == Dropped()


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [
        (Behaviour.RESET, Closed(by="rst")),
        (Behaviour.SILENT, Dropped(connected=True)),
    ],
)
@BOTH
def test_misbehaviour_of_a_tcp_server_is_told_apart(lab: Lab, behaviour: Behaviour, outcome: Outcome, ipv6: bool) -> None:
    lab.serve(lab.pods["a1"], ServerPlan(behaviour=behaviour))
    assert ask(lab.outside, lab.pods["a1"].address(ipv6), 8080, timeout=0.2 if behaviour is Behaviour.SILENT else SURE) == outcome


def test_a_server_may_close_first(lab: Lab) -> None:
    lab.serve(lab.pods["a1"], ServerPlan(behaviour=Behaviour.CLOSE))
    with hold(lab.outside, lab.pods["a1"].ipv4, 8080, timeout=SURE) as held:
        assert isinstance(held.exchange(), Closed)


def test_a_silent_udp_server_is_not_a_closed_port(lab: Lab) -> None:
    lab.serve(lab.pods["a1"], ServerPlan(behaviour=Behaviour.SILENT))
    assert ask(lab.outside, lab.pods["a1"].ipv4, 8080, Protocol.UDP, timeout=0.1) == Dropped()


@pytest.mark.parametrize("protocol", list(Protocol))
def test_a_slow_server_answers_late(lab: Lab, protocol: Protocol) -> None:
    lab.serve(lab.pods["a1"], ServerPlan(protocols=(protocol,), delay=0.15, name="slow"))
    outcome = ask(lab.outside, lab.pods["a1"].ipv4, 8080, protocol, timeout=SURE)
    assert _server(outcome) == "slow"
    assert isinstance(outcome, Answer)
    assert outcome.seconds >= 0.15


def test_a_late_answer_is_not_taken_for_the_next_one(lab: Lab) -> None:
    lab.serve(lab.pods["a1"], ServerPlan(delay=0.1))
    with UdpFlow(lab.outside, lab.pods["a1"].ipv4, 8080, timeout=SURE) as flow:
        assert flow.exchange("first", timeout=0.01) == Dropped()
        second = flow.exchange("second", timeout=SURE)
        assert isinstance(second, Answer)
        assert second.said == "second"


@BOTH
def test_a_udp_flow_keeps_its_source(lab: Lab, ipv6: bool) -> None:
    pod = lab.pods["abr1"]
    server = lab.serve(pod, 53)
    with UdpFlow(lab.pods["b1"], pod.address(ipv6), 53, source_port=4000, timeout=SURE) as flow:
        answers = [flow.exchange() for _ in range(5)]
        assert {_server(answer) for answer in answers} == {"abr1"}
        assert {answer.client_port for answer in answers if isinstance(answer, Answer)} == {4000}
        assert server.served().total == 5
        server.stop()
        assert flow.exchange() == Refused(by="icmp", sender=pod.address(ipv6))
        lab.serve(pod, ServerPlan(ports=(53,), name="again"))
        assert _server(flow.exchange()) == "again"


@BOTH
def test_a_udp_answer_leaves_from_the_address_asked(lab: Lab, ipv6: bool) -> None:
    extra = "fd00:18::77/64" if ipv6 else "172.18.0.77/24"
    lab.node.add_address(extra)
    lab.serve(lab.node, 53)
    outcome = ask(lab.outside, extra.partition("/")[0], 53, Protocol.UDP, timeout=SURE)
    assert isinstance(outcome, Answer)
    assert outcome.local == extra.partition("/")[0]


def test_a_server_may_be_bound_to_one_address(lab: Lab) -> None:
    lab.serve(lab.node, ServerPlan(address=lab.node.ipv4))
    assert _server(ask(lab.outside, lab.node.ipv4, 8080, timeout=SURE)) == "node"
    assert ask(lab.outside, lab.node.ipv6, 8080, timeout=SURE) == Refused(by="rst")
    assert ask(lab.node, "127.0.0.1", 8080, timeout=SURE) == Refused(by="rst")
    with pytest.raises(OSError, match="in use"):
        lab.serve(lab.node, 8080)


def test_a_long_line_in_small_pieces_and_many_lines_in_one(lab: Lab) -> None:
    """The servers frame by newline, whatever the segments are."""
    lab.serve(lab.pods["a1"], 80)
    with lab.outside.enter(), socket.create_connection((lab.pods["a1"].ipv4, 80), timeout=SURE) as plain:
        received = bytearray()

        def line() -> bytes:
            while b"\n" not in received:
                received.extend(plain.recv(4096))
            one, _newline, rest = received.partition(b"\n")
            received[:] = rest
            return bytes(one)

        assert b'"line": 0' in line()
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (b"ab", b"cd", b"e\nsecond\nthi", b"rd\n"):
            plain.sendall(piece)
        assert b'"said": "abcde"' in line()
        assert b'"said": "second"' in line()
        assert b'"said": "third"' in line()
        with pytest.raises(ConnectionResetError):
            plain.sendall(b"x" * 50_000_000)  # more than all buffers on the way can take


def test_hundreds_of_servers_in_one_process(lab: Lab) -> None:
    ports = tuple(range(20000, 20150))
    for name in ("a1", "abr1"):
        lab.serve(lab.pods[name], ServerPlan(ports=ports))
    questions = [
        Question(host=lab.outside, address=lab.pods[name].address(ipv6), port=port, protocol=protocol, timeout=SURE)
        for name in ("a1", "abr1")
        for ipv6 in (False, True)
        for protocol in (Protocol.TCP, Protocol.UDP)
        for port in ports
    ]
    from kproxy_core.testing.lab import ask_all

    outcomes = ask_all(questions)
    assert tally(outcomes) == {"a1": 600, "abr1": 600}
    assert [outcome.port for outcome in outcomes if isinstance(outcome, Answer)] == [question.port for question in questions]


def test_thousands_of_connections(lab: Lab) -> None:
    server = lab.serve(lab.pods["b1"], 80)
    outcomes = ask_many(lab.outside, lab.pods["b1"].ipv4, 80, 3000, timeout=SURE)
    assert tally(outcomes) == {"b1": 3000}
    assert server.served().total == 3000


def test_a_load_counts_servers_clients_and_failures(lab: Lab) -> None:
    pods = lab.pods
    servers = {name: lab.serve(pods[name], 80) for name in ("a1", "b1")}
    questions = [
        Question(host=client, address=pods[server].ipv4, port=80, timeout=SURE)
        for client in (lab.outside, pods["abr1"])
        for server in servers
    ]
    before = threading.active_count()
    with Load(questions, rate=500) as load:
        while load.result().answered < 100:
            time.sleep(0.01)
        assert load.result().failed == 0
        servers["b1"].stop()
        while load.result().failed < 20:
            time.sleep(0.01)
        result = load.stop()
    assert threading.active_count() == before
    assert result == load.stop()
    assert result.answered + result.failed == result.asked
    assert set(result.by_server) == {"a1", "b1"}
    assert set(result.by_client) == {"outside", "abr1"}
    # Closed is what a client sees whose connection waited to be accepted when the listener went.
    assert {failure.outcome for failure in result.failures} - {Closed(by="rst")} == {Refused(by="rst")}
    assert {failure.question.address for failure in result.failures} == {pods["b1"].ipv4}
    assert 0 < result.mean <= result.slowest
    assert result.by_server["a1"] == servers["a1"].served().total


def test_a_load_on_a_black_hole_ends(lab: Lab) -> None:
    with Load([Question(host=lab.outside, address="10.96.0.1", port=80, timeout=0.2)], rate=5000) as load:
        while load.result().failed < 300:
            time.sleep(0.01)
        result = load.stop()
    assert result.answered == 0
    assert result.asked == result.failed
    assert len(result.failures) == 100


def test_what_breaks_a_load_is_told_by_stop(lab: Lab) -> None:
    question = Question(host=lab.outside, address=lab.node.ipv4, port=80, source_address="192.0.2.99")
    load = Load([question]).start()
    while load.running:
        time.sleep(0.01)
    with pytest.raises(OSError, match="assign"):
        load.stop()
    with pytest.raises(ValueError, match="rate"):
        Load([question], rate=0)


def test_nothing_is_served_after_the_end() -> None:
    lab = Lab()
    with pytest.raises(LabError, match="not built"):
        lab.serve(None, 80)  # type: ignore[arg-type]
