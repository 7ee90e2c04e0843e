"""The world of these tests: a lab, a mode at work on its node, and a way to say what real packets must meet there."""

from collections.abc import Callable, Iterable, Sequence
from itertools import count

from attrs import frozen

from kproxy_core.config.settings import Settings
from kproxy_core.kernel.conntrack import ConntrackSocket
from kproxy_core.model.addresses import parse_network
from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.names import Protocol
from kproxy_core.model.objects import TrafficPolicy
from kproxy_core.testing.lab import (
    DROP_TIMEOUT,
    AddressPair,
    Answer,
    Dropped,
    Host,
    Lab,
    Outcome,
    Question,
    Refused,
    ServerPlan,
    Unreachable,
    ask_all,
)
from kproxy_core.testing.lab_cluster import LabCluster
from kproxy_core.testing.node import NodeUnderTest
from kproxy_core.wire import nfnetlink
from kproxy_core.wire.ctnetlink import FlowFilter
from kproxy_core.wire.nft_operations import flush_set
from kproxy_nftables import sets
from kproxy_nftables.backend import NftablesBackend
from kproxy_nftables.dataplane import NftablesDataplane
from kproxy_nftables.objects import FAMILY_NAMES

SURE = 15.0
"""Seconds, where an outcome is certain to come: a busy machine is no drop."""
ALL = tuple(Protocol)
TCP, UDP, SCTP = (Protocol.TCP,), (Protocol.UDP,), (Protocol.SCTP,)
TCP_UDP = (*TCP, *UDP)
EVERYWHERE = "a2 abr2 node outside"
"""A routed pod, a bridged pod, the node itself, and a client outside of the cluster."""

Judge = Callable[[Question, Outcome], str]
"""Says what is wrong with an outcome; empty if nothing is."""


@frozen
class Expected:
    """Questions to be put at once, and who judges the outcomes."""

    questions: tuple[Question, ...]
    judge: Judge


@frozen
class Asked:
    """Questions on which nothing is expected yet."""

    questions: tuple[Question, ...]

    def answered(self, servers: str, client: str = "") -> Expected:
        """Each is answered by one of these servers, which sees the client's own address (``kept``), or not (``masqueraded``)."""
        return Expected(self._within(SURE), lambda question, outcome: _answered(outcome, set(servers.split()), client))

    def refused(self) -> Expected:
        """Each is refused: TCP by RST, all else by ICMP port unreachable."""
        return Expected(self._within(SURE), _refused)

    def dropped(self) -> Expected:
        """Each vanishes."""
        return Expected(self._within(DROP_TIMEOUT), lambda _, outcome: "" if isinstance(outcome, Dropped) else "not dropped")

    def _within(self, timeout: float) -> tuple[Question, ...]:
        return tuple(
            Question(
                host=each.host,
                address=each.address,
                port=each.port,
                protocol=each.protocol,
                source_address=each.source_address,
                timeout=timeout,
            )
            for each in self.questions
        )


class World:
    """A lab whose pods, nodes and outside client serve ports 8080 and 8081, and the node under test."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.cluster = LabCluster(lab)
        self.defaults = Settings(
            node_name=lab.node.name,
            cluster_cidrs=tuple(parse_network(str(each)) for each in (lab.plan.pods_ipv4, lab.plan.pods_ipv6)),
        )
        for host in lab.hosts.values():
            lab.serve(host, ServerPlan(ports=(8080,), protocols=ALL))
            lab.serve(host, ServerPlan(ports=(8081,), protocols=TCP_UDP, name=f"{host.name}:8081"))
        self.node = NodeUnderTest(lab.node, NftablesBackend(), self.defaults)
        self._numbers = count(10)

    def reset(self) -> None:
        """Forget the last test: no Services, usual settings, no connections."""
        self.node.set()
        self.node.restart(self.defaults)
        self.forget_connections()
        self.forget_clients()

    def forget_connections(self) -> None:
        """Delete every connection from the node's conntrack table."""
        with self.lab.node.enter(), ConntrackSocket() as conntrack:
            for family in (nfnetlink.Family.IPV4, nfnetlink.Family.IPV6):
                for protocol in ALL:
                    conntrack.delete_matching(FlowFilter(family=family, protocol=protocol))

    def forget_clients(self) -> None:
        """Delete every remembered client."""
        dataplane = self.node.dataplane
        assert isinstance(dataplane, NftablesDataplane)
        shapes = [sets.shapes(family)[f"{name} set", sets.AFFINITY] for family, name in FAMILY_NAMES.items()]
        assert dataplane._socket.commit([flush_set(shape) for shape in shapes]).ok

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
        *,
        times: int = 1,
        source: AddressPair | None = None,
    ) -> Asked:
        """Questions from each of these hosts to an address (or to a pair of them) in each protocol."""
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
                for _ in range(times)
            )
        )

    def see(self, *expected: Expected) -> tuple[Outcome, ...]:
        """Put all questions at once and check every outcome; return them in order."""
        questions = [question for each in expected for question in each.questions]
        judges = [each.judge for each in expected for _ in each.questions]
        outcomes = ask_all(questions)
        complaints = [
            f"{_text(question)}: {wrong}: {outcome}"
            for question, judge, outcome in zip(questions, judges, outcomes, strict=True)
            if (wrong := judge(question, outcome))
        ]
        assert not complaints, "\n".join([f"{len(complaints)} of {len(questions)} wrong", *complaints])
        return outcomes


def everything(world: World) -> tuple[WatchedObject, ...]:
    """A cluster that uses all the mode has: every kind of frontend, policy, refusal, affinity, weights, ranges, long names."""
    cluster, local = world.cluster, TrafficPolicy.LOCAL
    served = "t=80@31{0:03} u=80/udp@31{0:03} s=80/sctp@31{0:03}"
    long_name = f"{'n' * 63}/{'s' * 63}"
    long_port = "p" * 63
    services = (
        cluster.service("plain", 201, served.format(201), external=201, balancer=201),
        cluster.service("local", 202, served.format(202), external=202, balancer=202, external_policy=local),
        cluster.service("inner", 203, internal_policy=local, external=203),
        cluster.service("nowhere", 204, served.format(204), external=204, external_policy=local),
        cluster.service("empty", 205, served.format(205), balancer=205, ranges="172.18.0.0/24 fd00:18::/64"),
        cluster.service("sticky", 206, served.format(206), affinity_timeout=300, external_policy=local, balancer=206),
        cluster.service("brief", 207, affinity_timeout=10),
        cluster.service("ranged", 208, balancer=208, ranges="172.18.0.0/24 10.244.0.0/16 fd00:18::/64 fd00:244::/56"),
        cluster.service("heavy", 209, weights={"*": 1, world.host("a1").ipv4: 3}),
        cluster.service(long_name, 210, f"{long_port}=80"),
    )
    behind = {"nowhere": "b1", "empty": "", "sticky": "a1 a2 b1", "heavy": "a1 b1 b2"}
    return (
        *services,
        *(piece for each in services[:-1] for piece in cluster.endpoints(str(each.name), behind.get(each.name.name, "a1 b1"))),
        *cluster.endpoints(long_name, "a1 b1", f"{long_port}=8080"),
        cluster.node(),
        cluster.service_cidr(),
    )


def see_everything(world: World) -> None:
    """Check by a few packets that :func:`everything` is in force."""
    cluster = world.cluster
    world.see(
        world.ask(EVERYWHERE, cluster.cluster(201)).answered("a1 b1"),
        world.ask(EVERYWHERE, cluster.external(201)).answered("a1 b1"),
        world.ask(EVERYWHERE, world.node_addresses(), 31201).answered("a1 b1"),
        world.ask("outside", cluster.balancer(202)).answered("a1", client="kept"),
        world.ask("outside", cluster.external(204)).dropped(),
        world.ask(EVERYWHERE, cluster.cluster(205)).refused(),
        world.ask("a2 node", cluster.cluster(206)).answered("a1 a2 b1"),
        world.ask("a2 outside", cluster.balancer(208)).answered("a1 b1"),
        world.ask("node outside", cluster.cluster(209)).answered("a1 b1 b2"),
        world.ask("node outside", cluster.cluster(210), protocols=TCP).answered("a1 b1"),
        world.ask("node outside", cluster.cluster(210), 81).refused(),
    )


def servers(outcomes: Iterable[Outcome]) -> set[str]:
    """Who has answered."""
    return {outcome.server for outcome in outcomes if isinstance(outcome, Answer)}


def _text(question: Question) -> str:
    source = f" ({question.source_address})" if question.source_address else ""
    return f"{question.host.name}{source} to {question.address} {question.protocol.name} {question.port}"


def _answered(outcome: Outcome, servers: set[str], client: str) -> str:
    if not isinstance(outcome, Answer):
        return "no answer"
    if outcome.server not in servers:
        return f"answered by another than {sorted(servers)}"
    if client == "kept" and outcome.masqueraded:
        return "the client's address was not kept"
    if client == "masqueraded" and not outcome.masqueraded:
        return "the client's address was kept"
    return ""


def _refused(question: Question, outcome: Outcome) -> str:
    by = "rst" if question.protocol is Protocol.TCP else "icmp"
    return "" if isinstance(outcome, Refused) and outcome.by == by else f"not refused by {by}"


def unreachable(asked: Asked) -> Expected:
    """Each comes to a host that has nothing there: a TCP or UDP port that is closed."""
    return Expected(asked.refused().questions, lambda _, outcome: "" if isinstance(outcome, Refused | Unreachable) else "reached")
