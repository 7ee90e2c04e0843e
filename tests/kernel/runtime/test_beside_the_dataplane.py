"""The daemon's eyes and hands beside the dataplane, on the real kernel: stale UDP flows, and the node's addresses."""

import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.engine.events import CleanConntrack
from kproxy_core.kernel import namespaces
from kproxy_core.kernel.conntrack import ConntrackSocket
from kproxy_core.kernel.errors import NamespaceError
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.model.addresses import Family, parse_address
from kproxy_core.model.flows import FrontendKey
from kproxy_core.model.names import Protocol
from kproxy_core.model.state import NodeState
from kproxy_core.runtime import conntrack as cleaning
from kproxy_core.runtime.addresses import KernelAddresses
from kproxy_core.runtime.assembly import program_for
from kproxy_core.runtime.conntrack import ConntrackCleaner
from kproxy_core.testing.memory_backend import MemoryBackend
from kproxy_core.testing.sketch import NODE, listed, service, slice_of
from kproxy_core.wire import nfnetlink
from kproxy_core.wire import nftables as nft

pytestmark = pytest.mark.kernel

SERVICE = "10.96.0.53"
"""Dialled without any rule of ours, so the flow is not translated: as if it had been made before the Service was."""


@pytest.fixture
def namespace() -> Iterator[int]:
    """A network namespace whose loopback is up and tracked."""
    try:
        descriptor = namespaces.create()
    except NamespaceError:
        pytest.skip("no privilege to make network namespaces (run as root or in a user namespace)")
    with namespaces.entered(descriptor):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        subprocess.run(["ip", "address", "add", f"{SERVICE}/24", "dev", "lo"], check=True)
    family = nft.Family.IPV4
    chain = nft.Chain(
        family=family, table="track", name="in", base=nft.BaseChain(type="filter", hook=nft.Hook.OUTPUT, priority=0)
    )
    look = (nft.CtLoad(dreg=nft.Register.R0, key=nft.CtKey.STATE),)
    things = (nft.Table(family=family, name="track"), chain, nft.Rule(family=family, table="track", chain="in", expressions=look))
    with NftSocket(namespace=descriptor) as nftables:
        assert nftables.commit([nft.add(thing) for thing in things]).ok
    yield descriptor
    os.close(descriptor)


def send(namespace: int, *destinations: tuple[str, int]) -> None:
    """Make a flow to each place."""
    for destination in destinations:
        with namespaces.entered(namespace), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"hello", destination)


def flows(namespace: int) -> set[tuple[str, int]]:
    """Where the tracked UDP flows go."""
    with ConntrackSocket(namespace=namespace) as conntrack:
        found = conntrack.flows(nfnetlink.Family.IPV4)
    return {(socket.inet_ntoa(flow.original.destination), flow.original.destination_port) for flow in found}


def state_with_dns() -> NodeState:
    """A UDP Service on port 53, with an endpoint that none of the flows goes to."""
    dns = service("kube-system/dns", SERVICE, port=53, protocol=Protocol.UDP)
    endpoints = slice_of("kube-system/dns", "10.244.1.1", port=53, protocol=Protocol.UDP)
    settings = Settings(node_name=NODE)
    return program_for(MemoryBackend(), listed(dns, endpoints), settings, ())[0]


def cleaned(namespace: int, wish: CleanConntrack) -> str:
    """Have a cleaner at work in the namespace; what it says in the end."""
    answers: SimpleQueue[str] = SimpleQueue()
    # A thread starts in the namespace of the one that makes it.
    cleaner = namespaces.in_thread(namespace, lambda: ConntrackCleaner(MemoryBackend().valid_replies, answers.put))
    cleaner.clean(wish)
    answer = answers.get(timeout=20)
    cleaner.close()
    return answer


def test_flows_to_a_frontend_that_are_not_answered_by_an_endpoint_go_and_others_stay(namespace: int) -> None:
    others = {(SERVICE, 54), ("127.0.0.1", 53)}
    send(namespace, (SERVICE, 53), *others)
    assert flows(namespace) >= {(SERVICE, 53), *others}
    assert cleaned(namespace, CleanConntrack(state=state_with_dns(), gone_frontends=frozenset())) == ""
    assert (SERVICE, 53) not in flows(namespace)
    assert flows(namespace) >= others


def test_flows_to_a_gone_frontend_that_were_never_translated_are_none_of_our_business(namespace: int) -> None:
    send(namespace, (SERVICE, 53))
    state = program_for(MemoryBackend(), listed(), Settings(node_name=NODE), ())[0]
    gone = frozenset({FrontendKey(Family.IPV4, parse_address(SERVICE), 53, Protocol.UDP)})
    assert cleaned(namespace, CleanConntrack(state=state, gone_frontends=gone)) == ""
    assert (SERVICE, 53) in flows(namespace)


def test_a_cleaning_over_its_budget_says_so_and_is_done_in_the_end(namespace: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wish = CleanConntrack(state=state_with_dns(), gone_frontends=frozenset())
    send(namespace, *[(SERVICE, 53)] * 20)
    monkeypatch.setattr(cleaning, "SLICE", 5)
    monkeypatch.setattr(cleaning, "BUDGET", 0.0)
    assert cleaned(namespace, wish) == "not done after 0 seconds"
    monkeypatch.setattr(cleaning, "BUDGET", 20.0)
    assert cleaned(namespace, wish) == ""
    assert (SERVICE, 53) not in flows(namespace)


def test_the_addresses_of_the_interfaces_are_told_at_first_and_when_they_change(namespace: int) -> None:
    with namespaces.entered(namespace):
        feed = KernelAddresses()
    assert [str(address) for address in feed.poll() or ()] == ["127.0.0.1", SERVICE, "::1"]
    assert feed.poll() is None
    with namespaces.entered(namespace):
        subprocess.run(["ip", "address", "add", "192.0.2.1/24", "dev", "lo"], check=True)
    assert select.select([feed.fileno()], [], [], 20)[0]
    assert parse_address("192.0.2.1") in (feed.poll() or ())
    with namespaces.entered(namespace):
        subprocess.run(["ip", "address", "add", "2001:db8::1/64", "dev", "lo"], check=True)
    end = time.monotonic() + 20
    while parse_address("2001:db8::1") not in (told := feed.poll() or ()):
        assert time.monotonic() < end, told
        select.select([feed.fileno()], [], [], 0.1)
    feed.close()
