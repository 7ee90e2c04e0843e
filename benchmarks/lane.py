"""A lane to measure new connections on: a client, a node that forwards, and a server that answers for every endpoint.

The three are network namespaces with a cable between each two; nothing else is on the way. One thread plays client and server,
since what a packet costs on its way through veth and a node is spent by whoever sends it: a connection's time is then the
processor time of its whole path, without any process being woken, and without a second processor that does a part unseen.
"""

import socket
import struct
import time
from collections.abc import Sequence

from attrs import frozen

from kproxy_core.testing.lab import AddressPair, Host, Namespace
from kproxy_core.testing.lab.links import Cable, add_default, add_route, change_address, connect, index, raise_loopback

BATCH = 100
"""Connections that are open at one time."""
PORT = 8080
"""What the server listens on: the port of every endpoint."""
ENDPOINTS = "10.128.0.0/10"
"""Every endpoint that benchmarks.clusters numbers is in it, the client is not."""

CLIENT = "10.255.0.2"
"""The address of the client, which a proxy of this cluster leaves as it is."""

_SERVER = "10.255.1.2"
_TO_CLIENT, _TO_SERVER = "10.255.0.1", "10.255.1.1"
_RESET = struct.pack("ii", 1, 0)

Target = tuple[str, int]


@frozen(kw_only=True)
class Burst:
    """Seconds for one connection, on average.

    ``whole`` is processor time from making the client's socket to both ends being closed, ``opening`` the part until it is
    established. ``wall`` is the time on the clock for the whole: more only if something else had the processor, or if the kernel
    has an account of its own for softirqs (CONFIG_IRQ_TIME_ACCOUNTING), which do all the forwarding.
    """

    whole: float
    opening: float
    wall: float


class Lane:
    """One lane. Nothing is programmed on its node, and its kernel tracks no connections there, until somebody makes it."""

    def __init__(self) -> None:
        self._client, self._server, self.node = _host("client", CLIENT), _host("server", _SERVER), _host("node", _TO_CLIENT)
        self.node.sysctl("net.ipv4.ip_forward", 1)
        self._plug(self._client, _TO_CLIENT, CLIENT)
        self._plug(self._server, _TO_SERVER, _SERVER)
        with self.node.iproute() as ipr:
            add_route(ipr, ENDPOINTS, _SERVER)
        # Without this a lost packet is a wait of minutes.
        self._client.sysctl("net.ipv4.tcp_syn_retries", 1)
        with self._server.enter():
            self._server.run(["ip", "route", "add", "local", ENDPOINTS, "dev", "lo"])
            self._listener = socket.create_server(("0.0.0.0", PORT), backlog=4 * BATCH)
        # What is accepted inherits this: closing sends RST, nothing lingers on either side.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 3, 0))

    def _plug(self, host: Host, near: str, far: str) -> None:
        cable = Cable(near=host.name, near_mac=_mac(near), far="eth0", far_mac=_mac(far), far_in=host.namespace.descriptor)
        with self.node.iproute() as ipr:
            change_address(ipr, "add", connect(ipr, cable), f"{near}/24")
        with host.iproute() as ipr:
            own = index(ipr, "eth0")
            ipr.link("set", index=own, state="up")
            change_address(ipr, "add", own, f"{far}/24")
            add_default(ipr, own, near)

    def reached(self, target: Target) -> tuple[str, str]:
        """Connect once: which address was reached, and which client it sees. Raises ``OSError``."""
        with self._client.enter(), socket.create_connection(target, timeout=3):
            accepted, seen = self._listener.accept()
            with accepted:
                return accepted.getsockname()[0], seen[0]

    def burst(self, targets: Sequence[Target], batches: int) -> Burst:
        """Open and close ``batches`` times :data:`BATCH` connections to the targets in turn, after some that do not count."""
        around = [targets[number % len(targets)] for number in range(BATCH)]
        with self._client.enter():
            self._batch(around)
            spent = [self._batch(around) for _ in range(batches)]
        whole, opening, wall = (sum(each) / (batches * BATCH) for each in zip(*spent, strict=True))
        return Burst(whole=whole, opening=opening, wall=wall)

    def _batch(self, targets: Sequence[Target]) -> tuple[float, float, float]:
        accept = self._listener.accept
        clients = []
        clock, begun = time.perf_counter(), time.thread_time()
        for target in targets:
            client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            client.connect(target)
            clients.append(client)
        established = time.thread_time()
        for client in clients:
            accept()[0].close()
            client.close()
        return time.thread_time() - begun, established - begun, time.perf_counter() - clock

    def close(self) -> None:
        """Let go of the namespaces; what is in them goes with them."""
        self._listener.close()
        for host in (self._client, self._server, self.node):
            host.namespace.close()


def _host(name: str, address: str) -> Host:
    host = Host(name, Namespace.create(), AddressPair(ipv4=address, ipv6="::1"))
    with host.iproute() as ipr:
        raise_loopback(ipr)
    return host


def _mac(address: str) -> str:
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))
