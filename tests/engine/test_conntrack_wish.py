"""When the engine asks for stale UDP flows to be deleted, and that it never forgets to."""

from kproxy_core.model.addresses import Family, parse_address
from kproxy_core.model.flows import FrontendKey
from kproxy_core.model.names import Protocol
from kproxy_core.model.objects import EndpointSlice
from kproxy_core.testing.faults import FailKeys, no_faults
from kproxy_core.testing.memory_backend import MemoryBackend, MemoryKernel
from kproxy_core.testing.playbook import Playbook
from kproxy_core.testing.sketch import gone, listed, node, port_key, put, service, slice_of

HERE = node("192.0.2.1")
DNS = service("kube-system/dns", "10.96.0.53", port=53, protocol=Protocol.UDP)
WEB = service("shop/web", "10.96.0.10")


def started(kernel: MemoryKernel) -> Playbook[MemoryBackend]:
    play = Playbook(MemoryBackend(kernel, atomic=True))
    play >> listed(HERE, DNS, WEB, slice_of("kube-system/dns", "10.244.1.1", port=53, protocol=Protocol.UDP))
    play.advance(10)
    assert play.transcript.pop() == "clean"
    play.transcript.clear()
    return play


def udp_slice(*addresses: str) -> EndpointSlice:
    return slice_of("kube-system/dns", *addresses, port=53, protocol=Protocol.UDP)


def test_s48_after_a_restart_flows_are_compared_with_what_is_wanted_even_if_nothing_was_written() -> None:
    kernel = MemoryKernel()
    started(kernel).close()
    play = Playbook(MemoryBackend(kernel)) >> listed(HERE, DNS, WEB, udp_slice("10.244.1.1"))
    play << ("read", "sync 0", "clean")


def test_a_change_of_a_udp_service_is_followed_by_a_cleaning() -> None:
    play = started(MemoryKernel())
    play >> put(udp_slice("10.244.1.2"))
    assert play.transcript[-1] == "clean"
    assert play.cleanings[-1].state is play.engine.state


def test_s50_a_change_of_a_tcp_service_is_not() -> None:
    play = started(MemoryKernel())
    play >> put(slice_of("shop/web", "10.244.1.7"))
    play.advance(100)
    assert "clean" not in play.transcript


def test_s45_the_frontends_of_a_deleted_service_go_along() -> None:
    play = started(MemoryKernel())
    play >> gone(DNS)
    address = parse_address("10.96.0.53")
    assert play.cleanings[-1].gone_frontends == {FrontendKey(Family.IPV4, address, 53, Protocol.UDP)}


def test_the_wish_survives_a_failed_sync() -> None:
    kernel = MemoryKernel()
    play = started(kernel)
    kernel.fault = FailKeys(lambda key: True, retryable=True)
    play >> gone(DNS)
    play.advance(0.5)
    assert play.transcript.count("sync failed: no such luck") == 3
    assert "clean" not in play.transcript
    kernel.fault = no_faults
    play.advance(30)
    assert play.transcript.count("clean") == 1
    assert len(play.cleanings[-1].gone_frontends) == 1


def test_what_the_kernel_refuses_to_let_go_of_is_cleaned_when_it_has() -> None:
    kernel = MemoryKernel()
    play = started(kernel)
    kernel.fault = FailKeys(lambda key: key[0] == "frontend")
    play >> gone(DNS)
    kernel.fault = no_faults
    play.advance(30)
    assert play.reports[-1].ok
    assert len(play.cleanings[-1].gone_frontends) == 1
    play.advance(1) >> put(udp_slice("10.244.1.9")) >> put(DNS)
    play.advance(1)
    assert not play.cleanings[-1].gone_frontends


def test_the_wish_survives_a_failed_cleaning() -> None:
    play = started(MemoryKernel())
    play.conntrack_error = "not done after 5 seconds"
    play >> gone(DNS)
    play.advance(60)
    assert 3 <= play.transcript.count("clean") <= 15
    assert all(len(cleaning.gone_frontends) == 1 for cleaning in play.cleanings[1:])
    play.conntrack_error = ""
    play.advance(60)
    play.transcript.clear()
    play.advance(600)
    assert "clean" not in play.transcript


def test_flows_of_a_refused_service_are_left_alone_until_it_is_accepted() -> None:
    kernel = MemoryKernel()
    play = started(kernel)
    kernel.fault = FailKeys(lambda key: key[0] == "frontend")
    play >> put(udp_slice("10.244.1.2", "10.244.1.3"))
    key = port_key("kube-system/dns", protocol=Protocol.UDP)
    assert key in play.reports[-1].failed
    assert key not in play.cleanings[-1].state.ports
    kernel.fault = no_faults
    play.advance(30)
    assert key in play.cleanings[-1].state.ports


def test_one_cleaning_at_a_time() -> None:
    play = started(MemoryKernel())
    play.slow_conntrack = True
    play >> put(udp_slice("10.244.1.2"))
    play.advance(1) >> put(udp_slice("10.244.1.3"))
    play.advance(1)
    assert play.transcript.count("clean") == 1
    play.conntrack_done()
    assert play.transcript.count("clean") == 2
