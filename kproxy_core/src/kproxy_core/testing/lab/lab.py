"""The lab: builds the namespaces of a small cluster, serves and changes its pods, and takes all of it down again.

::

    pods a1 a2 (routed, kpod*)   pods abr1 abr2 (bridge kbr0)                  pods b1 b2 (routed, kpod*)
                     |             |                                                     |
                    node (eth0) ----------- bridge wan0 in "outside" ----------- (eth0) node2
                                                    |
                                      the outside client's addresses

The outside host is client and default gateway at once. It does not forward: what a node sends there that is for nobody vanishes,
as a packet to a service address does that no proxy has translated. It sends the service ranges to ``node`` (see
:meth:`Lab.route_services`) and each node's pod range to that node. Nodes send each other's pod ranges to each other, untouched.

So a connection from outside that ``node`` sends to a pod on ``node2`` without masquerade is answered by ``node2`` straight to the
client, from the pod's own address, and fails: ask() says dropped, as in a real cluster without direct server return.

Three things differ from most nodes, for the sake of the tests: rp_filter is off, ICMP errors are not rate-limited (every refusal
is seen), and duplicate address detection is off (addresses work at once).
"""

import contextlib
import os
import socket
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Self

from kproxy_core.model.names import Protocol
from kproxy_core.testing.lab import links
from kproxy_core.testing.lab.faults import LabCapability, LabError, Missing
from kproxy_core.testing.lab.host import Host
from kproxy_core.testing.lab.plan import NODES, OUTSIDE, LabPlan, PodPlan
from kproxy_core.testing.lab.servers import Connections, Server, ServerPlan, ServerProcess
from kproxy_core.testing.lab.topology import Topology
from kproxy_core.testing.lab.userns import in_user_namespace


class Lab:
    """A small cluster in network namespaces, to be used as a context manager. One lab may be built once.

    ``names`` makes the namespaces visible as /run/netns/NAMES-node and so on; by default they are held by descriptors alone and
    vanish with the process. Entering raises :class:`LabError` when namespaces cannot be made at all; what else this kernel or
    privilege does not allow is told by :attr:`missing`. Build and change a lab from one thread at a time; asking is for any.
    """

    def __init__(self, plan: LabPlan | None = None, *, names: str = "") -> None:
        self.plan = plan or LabPlan()
        self._cleanup = contextlib.ExitStack()
        self._topology = Topology(self.plan, names, self._cleanup)
        self._servers: list[Server] = []
        self._process: ServerProcess | None = None

    def __enter__(self) -> Self:
        """Build it."""
        try:
            self._process = ServerProcess()
            self._cleanup.callback(self._process.close)
            self._topology.build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Take it down: servers, names, namespaces. May be called again."""
        self._process = None
        self._servers.clear()
        self._topology.hosts.clear()
        self._cleanup.close()

    @property
    def hosts(self) -> Mapping[str, Host]:
        """Every host by name."""
        return MappingProxyType(self._topology.hosts)

    @property
    def pods(self) -> Mapping[str, Host]:
        """Every pod by name."""
        return {name: host for name, host in self._topology.hosts.items() if host.pod is not None}

    @property
    def node(self) -> Host:
        """The node under test."""
        return self._topology.hosts[NODES[0]]

    @property
    def node2(self) -> Host:
        """The second node."""
        return self._topology.hosts[NODES[1]]

    @property
    def outside(self) -> Host:
        """The client outside of the cluster."""
        return self._topology.hosts[OUTSIDE]

    @property
    def families(self) -> tuple[socket.AddressFamily, ...]:
        """The families it speaks: both, unless the kernel has no IPv6."""
        return self._topology.families

    @property
    def missing(self) -> tuple[Missing, ...]:
        """What this lab has to do without."""
        return tuple(self._topology.missing.values())

    def lacks(self, capability: LabCapability) -> bool:
        """Whether the lab has to do without it."""
        return capability in self._topology.missing

    def enter_command(self, host: Host) -> str:
        """A shell command by which a person enters a host while this process lives, from any terminal of this user."""
        if in_user_namespace():  # names are seen inside only: /run/netns is mounted there
            return f"nsenter --target {os.getpid()} --user --preserve-credentials --net={host.namespace.descriptor_path} bash"
        if host.namespace.name:
            return f"ip netns exec {host.namespace.name} bash"
        return f"nsenter --net={host.namespace.descriptor_path} bash"

    def serve(self, host: Host, plan: ServerPlan | int = 8080, *protocols: Protocol) -> Server:
        """Start a server in a host: ``serve(pod, 80)`` for TCP and UDP, ``serve(pod, 80, Protocol.SCTP)``, or a whole plan.

        It serves when this returns. Raises ``OSError``, for a port in use for example.
        """
        if isinstance(plan, int):
            plan = ServerPlan(ports=(plan,), protocols=protocols or (Protocol.TCP, Protocol.UDP))
        if self._process is None:
            raise LabError("this lab is not built, or closed")
        server = self._process.listen(host, plan, self.families)
        self._servers.append(server)
        return server

    def add_pod(self, name: str, *, on: str = NODES[0], bridged: bool = False) -> Host:
        """Add a pod to a node. Raises ``ValueError`` for a name that is in use or too long for an interface."""
        return self._topology.add_pod(PodPlan(name=name, on=on, bridged=bridged))

    def remove_pod(self, name: str, *, abruptly: bool = False) -> None:
        """Remove a pod. Its servers go first and reset their connections, unless ``abruptly``: then packets to it just vanish."""
        host = self.pods[name]
        if not abruptly:
            self._stop_servers(host)
        self._topology.unplug_pod(host)
        self._stop_servers(host)
        self._topology.remove_pod(host)

    def _stop_servers(self, host: Host) -> None:
        for server in [server for server in self._servers if server.host is host]:
            server.stop(Connections.RESET)
            self._servers.remove(server)

    def route_services(self, via: Host, *networks: str) -> None:
        """Have the outside client send service addresses to a node: all ranges of the plan, or these networks."""
        with self.outside.iproute() as ipr:
            for network in networks or self.plan.service_ranges:
                if self._topology.speaks(network):
                    links.add_route(ipr, network, via.address(":" in str(network)))
