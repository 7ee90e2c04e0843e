"""The in-memory kernel counts what it lets through, and tells what it would do with a packet."""

import pytest

from kproxy_core.model.addresses import parse_address
from kproxy_core.model.names import Protocol
from kproxy_core.model.packet import Delivered, Packet, Refused, Target, Untouched
from kproxy_core.model.state import Origin
from kproxy_core.plugin.backend import Backend, Capability, Dataplane, Traffic
from kproxy_core.plugin.errors import UnsupportedError
from kproxy_core.testing.memory_backend import Key, MemoryBackend, MemoryKernel, Value
from kproxy_core.testing.playbook import Playbook
from kproxy_core.testing.sketch import gone, listed, node, port_key, put, service, slice_of

WEB, EMPTY = service("shop/web", "10.96.0.10"), service("shop/empty", "10.96.0.11")
START = listed(node("192.0.2.1"), WEB, EMPTY, slice_of("shop/web", "10.244.1.1", "10.244.1.2"))


def packet(to: str, port: int = 80) -> Packet:
    return Packet(
        source=parse_address("198.51.100.1"), destination=parse_address(to), protocol=Protocol.TCP, port=port, interface="eth0"
    )


def test_connections_and_bytes_are_counted_by_endpoint() -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel)) >> START
    assert play.dataplane.counters() == {}
    reached = [kernel.connect(packet("10.96.0.10"), sent=5, received=7) for _ in range(5)]
    assert all(isinstance(each, Target) for each in reached)
    first, second = ((parse_address(f"10.244.1.{n}"), 8080) for n in (1, 2))
    assert play.dataplane.counters() == {
        port_key("shop/web"): {
            first: Traffic(connections=3, bytes_to_endpoint=15, bytes_to_client=21),
            second: Traffic(connections=2, bytes_to_endpoint=10, bytes_to_client=14),
        }
    }
    assert kernel.connect(packet("10.96.0.11")) == Refused()
    assert kernel.connect(packet("203.0.113.1")) == Untouched()
    assert set(play.dataplane.counters()) == {port_key("shop/web")}


def test_counts_outlive_a_process_and_changes_and_go_with_the_service() -> None:
    kernel = MemoryKernel()
    play = Playbook(MemoryBackend(kernel)) >> START
    kernel.connect(packet("10.96.0.10"))
    before = play.dataplane.counters()
    play.close()
    play = Playbook(MemoryBackend(kernel)) >> START
    play.advance(1) >> put(slice_of("shop/web", "10.244.1.1"))
    assert play.dataplane.counters() == before
    play.advance(1) >> gone(WEB)
    assert play.dataplane.counters() == {}
    play.advance(1) >> put(WEB)
    assert play.dataplane.counters() == {}


def test_a_trace_says_what_happens_to_a_packet_and_why() -> None:
    play = Playbook(MemoryBackend()) >> START
    trace = play.dataplane.trace(packet("10.96.0.10"))
    assert isinstance(trace.verdict, Delivered)
    assert trace.lines[0] == "10.96.0.10:80 is a frontend of shop/web/TCP (IPv4)"
    assert trace.lines[-1] == "slot 1: 10.244.1.2:8080"
    refused = play.dataplane.trace(packet("10.96.0.10", 81))
    assert (refused.verdict, refused.lines) == (Refused(), ("nobody serves port 81 of 10.96.0.10",))
    assert play.dataplane.trace(packet("203.0.113.1")).verdict == Untouched()


def test_a_mode_that_says_no_more_leaves_nothing_and_neither_counts_nor_traces() -> None:
    play = Playbook(MemoryBackend()) >> START
    state = play.engine.state
    assert state is not None
    rules = [(port, rule) for port in state.ports.values() for rule in port.rules]
    assert rules
    plain = Backend[Key, Value]
    assert all(plain.claims(play.backend, port, rule, origin) for port, rule in rules for origin in Origin)
    with pytest.raises(UnsupportedError, match="does not count"):
        Dataplane[Key, Value].counters(play.dataplane)
    with pytest.raises(UnsupportedError, match="cannot follow"):
        Dataplane[Key, Value].trace(play.dataplane, packet("10.96.0.10"))
    assert {Capability.COUNTERS, Capability.TRACE} <= play.backend.capabilities
