"""Conntrack on the real kernel: real UDP and TCP flows are found, read and deleted, and no others."""

import contextlib
import socket
from collections.abc import Iterator
from ipaddress import ip_address

import attrs
import pytest

from kproxy_core.kernel import namespaces
from kproxy_core.kernel.conntrack import ConntrackSocket
from kproxy_core.kernel.errors import NetlinkError
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.wire import netlink
from kproxy_core.wire import nftables as nft_wire
from kproxy_core.wire.ctnetlink import FlowFilter, FlowStatus
from kproxy_core.wire.nftables import (
    BaseChain,
    Chain,
    Compare,
    CtKey,
    CtLoad,
    Family,
    Hook,
    Immediate,
    MetaKey,
    MetaLoad,
    Nat,
    PayloadBase,
    PayloadLoad,
    Register,
    Rule,
    Table,
)

from .conftest import Nft

pytestmark = pytest.mark.kernel

LOOPBACK = {Family.IPV4: "127.0.0.1", Family.IPV6: "::1"}
SERVICE = {Family.IPV4: "127.9.9.9", Family.IPV6: "fd00::9"}
SOCKET_FAMILY = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
FAMILIES = pytest.mark.parametrize("family", [Family.IPV4, Family.IPV6], ids=["v4", "v6"])


def packed(address: str, port: int) -> bytes:
    return ip_address(address).packed + port.to_bytes(2, "big")


@pytest.fixture
def conntrack(namespace: int, nftables: NftSocket, run: Nft) -> Iterator[ConntrackSocket]:
    """Conntrack in a namespace that tracks what goes over its loopback."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", "fd00::9/128", "dev", "lo", "nodad")
    wait_until_reachable(namespace, "fd00::9")
    for family in LOOPBACK:
        table = Table(family=family, name="track")
        chain = Chain(family=family, table="track", name="in", base=BaseChain(type="filter", hook=Hook.OUTPUT, priority=0))
        look = Rule(family=family, table="track", chain="in", expressions=(CtLoad(dreg=Register.R0, key=CtKey.STATE),))
        assert nftables.commit([nft_wire.add(thing) for thing in (table, chain, look)]).ok
    with ConntrackSocket(namespace=namespace) as tracker:
        yield tracker


def wait_until_reachable(namespace: int, address: str) -> None:
    """The kernel makes the route to a new IPv6 address a moment after the address."""
    with namespaces.entered(namespace), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        probe.bind(("::", 0))
        probe.settimeout(0.02)
        for _ in range(500):
            probe.sendto(b"?", (address, probe.getsockname()[1]))
            with contextlib.suppress(TimeoutError):
                assert probe.recv(1) == b"?"
                return
    pytest.fail(f"{address} did not become reachable")


class Traffic:
    """UDP servers and clients on the loopback of a namespace."""

    def __init__(self, namespace: int, family: Family) -> None:
        self.namespace, self.family = namespace, family
        self._stack = contextlib.ExitStack()

    def udp(self, address: str | None = None) -> socket.socket:
        with namespaces.entered(self.namespace):
            made = socket.socket(SOCKET_FAMILY[self.family], socket.SOCK_DGRAM)
        self._stack.enter_context(made)
        made.settimeout(5)
        made.bind((address or LOOPBACK[self.family], 0))
        return made

    def flow(self, server: socket.socket, *, to: str | None = None, port: int | None = None, reply: bool = False) -> int:
        """Send a datagram (and answer it): the client's port."""
        client = self.udp()
        where = server.getsockname()
        client.sendto(b"hello", (to or where[0], port or where[1]))
        if reply:
            _, sender = server.recvfrom(100)
            server.sendto(b"hello", sender)
            assert client.recv(100) == b"hello"
        return int(client.getsockname()[1])

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def traffic(namespace: int, family: Family) -> Iterator[Traffic]:
    made = Traffic(namespace, family)
    yield made
    made.close()


def destination_nat(family: Family, port: int, to: str, to_port: int) -> list[nft_wire.Operation]:
    """What goes to the service's UDP port is sent elsewhere."""
    place = {"base": PayloadBase.TRANSPORT, "offset": 2, "length": 2}
    address = ip_address(to).packed
    chain = Chain(family=family, table="track", name="dnat", base=BaseChain(type="nat", hook=Hook.OUTPUT, priority=-100))
    rule = Rule(
        family=family,
        table="track",
        chain="dnat",
        expressions=(
            MetaLoad(dreg=Register.R0, key=MetaKey.L4PROTO),
            Compare(sreg=Register.R0, data=b"\x11"),
            PayloadLoad(dreg=Register.R0, **place),
            Compare(sreg=Register.R0, data=port.to_bytes(2, "big")),
            Immediate(dreg=Register.R0, data=address),
            Immediate(dreg=Register.R4, data=to_port.to_bytes(2, "big")),
            Nat(family=family, address=Register.R0, port=Register.R4),
        ),
    )
    return [nft_wire.add(chain), nft_wire.add(rule)]


@FAMILIES
def test_a_flow_is_read_with_both_directions(family: Family, conntrack: ConntrackSocket, traffic: Traffic) -> None:
    server = traffic.udp()
    client_port = traffic.flow(server, reply=True)
    (flow,) = conntrack.flows(family)
    loopback = ip_address(LOOPBACK[family]).packed
    server_port = server.getsockname()[1]
    assert (flow.family, flow.zone) == (family, 0)
    assert (flow.original.source, flow.original.source_port) == (loopback, client_port)
    assert (flow.original.destination, flow.original.destination_port) == (loopback, server_port)
    assert (flow.reply.source_port, flow.reply.destination_port) == (server_port, client_port)
    assert flow.original.protocol == flow.reply.protocol == 17
    assert flow.status & FlowStatus.SEEN_REPLY
    assert flow.id is not None
    assert flow.timeout is not None


@FAMILIES
def test_after_dnat_the_reply_tells_who_answers(
    family: Family, conntrack: ConntrackSocket, traffic: Traffic, nftables: NftSocket
) -> None:
    server = traffic.udp()
    port = server.getsockname()[1]
    assert nftables.commit(destination_nat(family, 53, LOOPBACK[family], port)).ok
    traffic.flow(server, to=SERVICE[family], port=53, reply=True)
    seen: list[tuple[bytes, bytes]] = []

    def select(service: bytes, responder: bytes) -> bool:
        seen.append((service, responder))
        return True

    flows = conntrack.flows(family, select)
    assert seen == [(packed(SERVICE[family], 53), packed(LOOPBACK[family], port))]
    (flow,) = flows
    assert flow.status & FlowStatus.DST_NAT
    assert flow.original.destination + flow.original.destination_port.to_bytes(2, "big") == packed(SERVICE[family], 53)


@FAMILIES
def test_only_what_is_selected_and_of_the_protocol_comes(
    family: Family, namespace: int, conntrack: ConntrackSocket, traffic: Traffic
) -> None:
    first, second = traffic.udp(), traffic.udp()
    for server in (first, first, second):
        traffic.flow(server)
    wanted = packed(LOOPBACK[family], first.getsockname()[1])
    assert len(conntrack.flows(family)) == 3
    assert len(conntrack.flows(family, lambda service, _: service == wanted)) == 2
    assert conntrack.flows(family, lambda *_: False) == []
    with (
        namespaces.entered(namespace),
        socket.create_server((LOOPBACK[family], 0), family=SOCKET_FAMILY[family]) as listener,
        socket.create_connection(listener.getsockname()[:2]),
    ):
        assert len(conntrack.flows(family)) == 3
        (tcp,) = conntrack.flows(family, protocol=6)
        assert tcp.original.destination_port == listener.getsockname()[1]
    other = Family.IPV6 if family == Family.IPV4 else Family.IPV4
    assert conntrack.flows(other) == []


@FAMILIES
def test_exactly_the_given_flows_are_deleted(family: Family, conntrack: ConntrackSocket, traffic: Traffic) -> None:
    server = traffic.udp()
    ports = [traffic.flow(server) for _ in range(20)]
    flows = conntrack.flows(family)
    doomed = [flow for flow in flows if flow.original.source_port in ports[:13]]
    assert conntrack.delete(doomed) == 13
    assert sorted(flow.original.source_port for flow in conntrack.flows(family)) == sorted(ports[13:])
    assert conntrack.delete(doomed) == 0
    assert conntrack.delete(flows) == 7
    assert conntrack.delete([]) == 0


@FAMILIES
def test_a_newer_flow_to_another_endpoint_is_left_alone(
    family: Family, conntrack: ConntrackSocket, traffic: Traffic, nftables: NftSocket
) -> None:
    """The same client asks the same service again, and somebody else answers: that is not the flow to delete."""
    first, second, client = traffic.udp(), traffic.udp(), traffic.udp()
    operations = destination_nat(family, 53, LOOPBACK[family], first.getsockname()[1])
    assert nftables.commit(operations).ok
    client.sendto(b"1", (SERVICE[family], 53))
    (old,) = conntrack.flows(family)
    assert conntrack.delete([old]) == 1
    chain = Chain(family=family, table="track", name="dnat")
    replacement = destination_nat(family, 53, LOOPBACK[family], second.getsockname()[1])
    assert nftables.commit([nft_wire.flush_chain(chain), *replacement]).ok
    client.sendto(b"2", (SERVICE[family], 53))
    (new,) = conntrack.flows(family)
    assert new.original == old.original
    assert conntrack.delete([old]) == 0
    assert conntrack.flows(family) == [new]


@FAMILIES
def test_a_newer_flow_straight_to_the_endpoint_is_left_alone(
    family: Family, conntrack: ConntrackSocket, traffic: Traffic, nftables: NftSocket
) -> None:
    """The same client asks the endpoint itself: the answers look the same, but it is not the flow to delete."""
    server, client = traffic.udp(), traffic.udp()
    assert nftables.commit(destination_nat(family, 53, LOOPBACK[family], server.getsockname()[1])).ok
    client.sendto(b"1", (SERVICE[family], 53))
    (old,) = conntrack.flows(family)
    assert conntrack.delete([old]) == 1
    client.sendto(b"2", server.getsockname())
    (new,) = conntrack.flows(family)
    assert new.reply == old.reply
    assert conntrack.delete([old]) == 0
    assert conntrack.flows(family) == [new]


@pytest.fixture(params=["with kernel filters", "without"])
def any_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that applies filters, and one that refuses them (here: because of flags that no kernel knows)."""
    if request.param == "without":
        honest = FlowFilter.encode
        unknown = netlink.nested(25, netlink.attribute(1, b"\xff" * 4), netlink.attribute(2, b"\xff" * 4))
        monkeypatch.setattr(FlowFilter, "encode", lambda wanted: honest(wanted) + unknown)


@FAMILIES
def test_flows_are_found_and_deleted_by_what_they_go_to(
    any_kernel: None, family: Family, conntrack: ConntrackSocket, traffic: Traffic
) -> None:
    first, second = traffic.udp(), traffic.udp(SERVICE[family])
    port = first.getsockname()[1]
    for server in (first, first, second):
        traffic.flow(server)
    traffic.flow(first, to=SERVICE[family])
    wanted = FlowFilter(family=family, destination=ip_address(LOOPBACK[family]).packed, destination_port=port)
    assert [flow.original.destination_port for flow in conntrack.matching(wanted)] == [port, port]
    conntrack.delete_matching(wanted)
    left = conntrack.flows(family)
    assert {flow.original.destination for flow in left} == {ip_address(SERVICE[family]).packed}
    assert {flow.original.destination_port for flow in left} == {port, second.getsockname()[1]}
    conntrack.delete_matching(FlowFilter(family=family, destination_port=port))
    (last,) = conntrack.flows(family)
    assert last.original.destination_port == second.getsockname()[1]
    conntrack.delete_matching(FlowFilter(family=family))
    assert conntrack.flows(family) == []


def test_many_flows_are_deleted_in_few_sends(namespace: int, conntrack: ConntrackSocket) -> None:
    with contextlib.ExitStack() as stack:
        traffic = Traffic(namespace, Family.IPV4)
        stack.callback(traffic.close)
        client = traffic.udp()
        for number in range(5000):
            client.sendto(b"x", (f"127.1.{number >> 8}.{number & 255}", 9))
        flows = conntrack.flows(Family.IPV4)
        assert len(flows) == 5000
        assert conntrack.delete(flows[:100]) == 100
        assert conntrack.delete(flows) == 4900
        assert conntrack.flows(Family.IPV4) == []


def test_a_refused_deletion_is_an_error(conntrack: ConntrackSocket, namespace: int) -> None:
    traffic = Traffic(namespace, Family.IPV4)
    traffic.flow(traffic.udp())
    (flow,) = conntrack.flows(Family.IPV4)
    with pytest.raises(NetlinkError):
        conntrack.delete([attrs.evolve(flow, id=b"\0" * 3)])
    traffic.close()
