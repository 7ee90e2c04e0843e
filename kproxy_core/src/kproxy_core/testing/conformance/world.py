"""The world of a mode's tests: a lab, the mode at work on its node, and a way to say what real packets must meet there."""

from collections.abc import Sequence
from itertools import count
from typing import Generic, NotRequired, TypedDict, TypeVar, Unpack

from kproxy_core.config.settings import Settings
from kproxy_core.kernel.conntrack import ConntrackSocket
from kproxy_core.model.addresses import parse_network
from kproxy_core.model.names import Protocol
from kproxy_core.plugin.backend import AnyBackend
from kproxy_core.testing.conformance import expectations
from kproxy_core.testing.conformance.expectations import Asked, Expected
from kproxy_core.testing.lab import AddressPair, Host, Lab, Outcome, Question, ServerPlan
from kproxy_core.testing.lab_cluster import LabCluster
from kproxy_core.testing.node import NodeUnderTest
from kproxy_core.wire import nfnetlink
from kproxy_core.wire.ctnetlink import FlowFilter

ALL = tuple(Protocol)
TCP, UDP, SCTP = (Protocol.TCP,), (Protocol.UDP,), (Protocol.SCTP,)
TCP_UDP = (*TCP, *UDP)
EVERYWHERE = "a2 abr2 node outside"
"""A routed pod, a bridged pod, the node itself, and a client outside of the cluster."""

B = TypeVar("B", bound=AnyBackend)


class HowOften(TypedDict):
    """Options of :meth:`World.ask`: how many times each question is put, and from which of the host's addresses."""

    times: NotRequired[int]
    source: NotRequired[AddressPair]


SERVED_PORTS = (8080, 8081, 6443)
"""Every host of the lab answers on these, in every protocol: on the first under its own name, on the others as ``name:port``."""


def serve_everywhere(lab: Lab) -> None:
    """Have every host serve :data:`SERVED_PORTS`."""
    for host in lab.hosts.values():
        for port in SERVED_PORTS:
            name = "" if port == SERVED_PORTS[0] else f"{host.name}:{port}"
            lab.serve(host, ServerPlan(ports=(port,), protocols=ALL, name=name))


def forget_connections(lab: Lab) -> None:
    """Delete every connection from the conntrack table of the node under test."""
    with lab.node.enter(), ConntrackSocket() as conntrack:
        for family in (nfnetlink.Family.IPV4, nfnetlink.Family.IPV6):
            for protocol in ALL:
                conntrack.delete_matching(FlowFilter(family=family, protocol=protocol))


class World(Generic[B]):
    """A lab whose pods, nodes and outside client serve ports 8080 and 8081, and the node under test.

    Made once for several tests, with ``reset`` before each. The lab stays the caller's; ``close`` ends the mode, whose rules go
    with the lab.
    """

    def __init__(self, lab: Lab, backend: B) -> None:
        self.lab = lab
        self.cluster = LabCluster(lab)
        self.defaults = Settings(
            mode=backend.name,
            node_name=lab.node.name,
            cluster_cidrs=tuple(parse_network(str(each)) for each in (lab.plan.pods_ipv4, lab.plan.pods_ipv6)),
        )
        serve_everywhere(lab)
        self.node: NodeUnderTest[B] = NodeUnderTest(lab.node, backend, self.defaults)
        self._numbers = count(10)

    def close(self) -> None:
        """End the mode's process."""
        self.node.close()

    def reset(self) -> None:
        """Forget the last test: no Services, usual settings, no connections, no remembered clients."""
        self.node.set()
        self.node.restart(self.defaults)
        self.forget_connections()
        self.forget_clients()

    def forget_connections(self) -> None:
        """Delete every connection from the node's conntrack table."""
        forget_connections(self.lab)

    def forget_clients(self) -> None:
        """Have the mode forget every client: by removing all that is its own, and programming it anew."""
        self.node.dataplane.cleanup()
        self.node.check()

    def number(self) -> int:
        """A service number that no test has had yet."""
        return next(self._numbers)

    def host(self, name: str) -> Host:
        """A host by name."""
        return self.lab.hosts[name]

    def node_addresses(self) -> AddressPair:
        """The primary addresses of the node under test."""
        return AddressPair(ipv4=self.lab.node.ipv4, ipv6=self.lab.node.ipv6)

    def ask(
        self,
        origins: str,
        to: AddressPair | str,
        port: int = 80,
        protocols: Sequence[Protocol] = ALL,
        **how: Unpack[HowOften],
    ) -> Asked:
        """Questions from each of these hosts to an address (or to a pair of them) in each protocol."""
        source = how.get("source")
        addresses = (to,) if isinstance(to, str) else (to.ipv4, to.ipv6)
        return Asked(
            tuple(
                Question(
                    host=self.host(origin),
                    address=address,
                    port=port,
                    protocol=protocol,
                    source_address=None if source is None else source.ipv6 if ":" in address else source.ipv4,
                )
                for origin in origins.split()
                for address in addresses
                for protocol in protocols
                for _ in range(how.get("times", 1))
            )
        )

    def see(self, *expected: Expected) -> tuple[Outcome, ...]:
        """Put all questions at once and check every outcome; return them in order."""
        return expectations.see(*expected)
