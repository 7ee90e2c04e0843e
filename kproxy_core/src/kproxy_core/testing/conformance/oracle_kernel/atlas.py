"""Where in the lab a packet begins, and what must be seen of it there when the oracle has said what must become of it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from attrs import frozen

from kproxy_core.model.addresses import Address, Family, parse_address, parse_network
from kproxy_core.model.names import Protocol
from kproxy_core.model.packet import Delivered, Dropped, Packet, Refused, Target, Verdict
from kproxy_core.model.snapshot import ClusterSnapshot
from kproxy_core.testing import lab as lab_kit
from kproxy_core.testing.conformance.expectations import SURE
from kproxy_core.testing.conformance.oracle_kernel.transposition import SECOND
from kproxy_core.testing.conformance.world import SERVED_PORTS
from kproxy_core.testing.lab import (
    BRIDGE,
    DROP_TIMEOUT,
    POD_INTERFACE_PREFIX,
    Answer,
    Host,
    Lab,
    Outcome,
    Question,
)
from kproxy_core.testing.oracle import Scene, decide
from kproxy_core.testing.strategies import pools

_BY_WAY_OF_THE_NODE = ("203.0.113.0/24", "10.96.0.0/16", "2001:db8:e::/64", "fd00:96::/112")
"""What the outside client and the second node send to the node, besides its own addresses and its pods'."""

_NOWHERE = {*pools.IMPOSSIBLE_ADDRESSES} - {parse_address("127.0.0.1"), parse_address("::1")}


@frozen(kw_only=True)
class Sent:
    """A packet, who sends it, and what must become of it.

    ``misplaced`` are hosts of which some slice says that they are on another node: nobody promises that they reach themselves by
    way of this one.
    """

    packet: Packet
    origin: Host
    verdict: Verdict
    misplaced: frozenset[Address] = frozenset()

    def __str__(self) -> str:
        packet = self.packet
        return f"{self.origin.name} ({packet.source}) to {packet.destination} {packet.protocol.name} {packet.port}"


@contextmanager
def atlas_of(lab: Lab, *, clients_kept: bool = True) -> Iterator["Atlas"]:
    """Give the lab what generated clusters speak of besides: a second address of the node, routes by way of the node.

    ``clients_kept`` is whether the mode can keep a client's address.
    """
    with ExitStack() as stack:
        for address in SECOND:
            lab.node.add_address(address)
            stack.callback(lab.node.remove_address, address)
        lab.route_services(lab.node, *_BY_WAY_OF_THE_NODE[:1], *_BY_WAY_OF_THE_NODE[2:3])
        for network in _BY_WAY_OF_THE_NODE:
            version, via = ("-6", lab.node.ipv6) if ":" in network else ("-4", lab.node.ipv4)
            lab.node2.run(["ip", version, "route", "add", network, "via", via])
            stack.callback(lab.node2.run, ["ip", version, "route", "del", network])
        yield Atlas(lab, clients_kept=clients_kept)


class Atlas:
    """The lab as packets see it."""

    def __init__(self, lab: Lab, *, clients_kept: bool = True) -> None:
        self._lab = lab
        self._clients_kept = clients_kept
        self._hosts = {parse_address(address): host for host in lab.hosts.values() for address in host.addresses}
        self._ways = tuple(map(parse_network, (*_BY_WAY_OF_THE_NODE, *map(str, lab.plan.pod_ranges("node")))))

    def send(self, scene: Scene, packet: Packet) -> Sent | None:
        """The packet with its sender and the oracle's verdict; None where no host can send it so that it meets the node."""
        origin = self.origin(packet)
        if origin is None:
            return None
        misplaced = _misplaced(scene.snapshot, scene.site.name)
        return Sent(packet=packet, origin=origin, verdict=decide(scene, packet), misplaced=misplaced)

    def origin(self, packet: Packet) -> Host | None:
        """The host that can send a packet so that it meets the node; None if there is none."""
        host = self._hosts.get(packet.source)
        if host is None or packet.destination in _NOWHERE:
            return None
        if host is self._lab.node:
            return host if not packet.interface else None
        expected = {"a1": f"{POD_INTERFACE_PREFIX}a1", "abr1": BRIDGE}.get(host.name, "eth0")
        passes = host.pod is not None and host.pod.on == "node"
        meets = (passes or self._meets_node(packet.destination)) and not _is_loopback(packet.destination)
        return host if packet.interface == expected and meets else None

    def _meets_node(self, destination: Address) -> bool:
        return self._hosts.get(destination) is self._lab.node or any(destination in network for network in self._ways)

    def question(self, sent: Sent) -> Question:
        """How to put it to the kernel; silence is waited for only where it is what must be."""
        return Question(
            host=sent.origin,
            address=sent.packet.destination,
            port=sent.packet.port,
            protocol=sent.packet.protocol,
            source_address=str(sent.packet.source),
            timeout=DROP_TIMEOUT if self.is_silent(sent) else SURE,
        )

    def is_silent(self, sent: Sent) -> bool:
        """Whether no answer is what must come of it, so that waiting for long is in vain."""
        match sent.verdict:
            case Delivered(targets):
                return any(self._is_lost(sent, target) for target in targets)
            case Refused():
                return False
            case Dropped():
                return True
        return sent.packet.destination not in self._hosts or sent.packet.protocol is Protocol.SCTP

    def complaint(self, sent: Sent, outcome: Outcome) -> str:
        """What is wrong with an outcome; empty if it is what must come of the verdict in this lab."""
        match sent.verdict:
            case Delivered(targets):
                return self._of_delivered(sent, targets, outcome)
            case Dropped():
                return "" if isinstance(outcome, lab_kit.Dropped) else "not dropped"
            case Refused():
                by = "rst" if sent.packet.protocol is Protocol.TCP else "icmp"
                return "" if isinstance(outcome, lab_kit.Refused) and outcome.by == by else f"not refused by {by}"
            case _:
                return self._of_untouched(sent.packet, outcome)

    def answers(self, sent: Sent) -> Iterator[tuple[str, str]]:
        """The servers that may answer a packet that is delivered, by their names, and whose address they see."""
        targets = sent.verdict.targets if isinstance(sent.verdict, Delivered) else frozenset[Target]()
        for target in sorted(targets, key=lambda target: (target.address, target.port)):
            host = self._hosts[target.address]
            if not self._is_lost(sent, target):
                seen = sent.origin is not self._lab.node and host is not self._lab.node
                client = "either" if not seen else "masqueraded" if target.masqueraded else "kept"
                yield host.name if target.port == SERVED_PORTS[0] else f"{host.name}:{target.port}", client

    def more_ways(self, sent: Sent) -> Iterator[tuple[str, str]]:
        """The routes to the node, network and gateway, that a packet needs and that the lab has only here."""
        for network in _BY_WAY_OF_THE_NODE:
            parsed = parse_network(network)
            if sent.origin in (self._lab.outside, self._lab.node2) and sent.packet.destination in parsed:
                yield network, self._lab.node.address(parsed.family is Family.IPV6)

    def _of_delivered(self, sent: Sent, targets: frozenset[Target], outcome: Outcome) -> str:
        if isinstance(outcome, lab_kit.Dropped):
            return "" if any(self._is_lost(sent, target) for target in targets) else "dropped"
        if not isinstance(outcome, Answer):
            return "not delivered"
        for target in targets:
            if (self._hosts[target.address].name, target.port) == (outcome.server.partition(":")[0], outcome.port):
                return self._of_masquerade(sent.origin, target, outcome)
        return "delivered to another endpoint"

    def _of_masquerade(self, origin: Host, target: Target, outcome: Answer) -> str:
        node = self._lab.node
        if outcome.masqueraded and not target.masqueraded and self._clients_kept:
            return "the client's address was not kept"
        # What the node itself sends may keep one of its addresses; what it receives itself is never masqueraded.
        seen = origin is not node and self._hosts[target.address] is not node
        return "the client's address was kept" if seen and target.masqueraded and not outcome.masqueraded else ""

    def _is_lost(self, sent: Sent, target: Target) -> bool:
        """Whether the endpoint answers the client directly, past the node, from an address that the client has not dialled."""
        if target.address == sent.packet.source and sent.packet.source in sent.misplaced:
            return True
        there, node, origin = self._hosts[target.address], self._lab.node, sent.origin
        if there is node or target.masqueraded or (there.pod is not None and there.pod.on == "node"):
            return False
        return origin is self._lab.outside or (origin.pod is not None and origin.pod.on == "node2")

    def _of_untouched(self, packet: Packet, outcome: Outcome) -> str:
        there = self._lab.node if _is_loopback(packet.destination) else self._hosts.get(packet.destination)
        if there is None:
            return "" if isinstance(outcome, lab_kit.Dropped | lab_kit.Unreachable) else "not let go on its way"
        if packet.port in SERVED_PORTS:
            served = isinstance(outcome, Answer) and outcome.server.partition(":")[0] == there.name and not outcome.masqueraded
            return "" if served else "not let go on its way"
        closed = isinstance(outcome, lab_kit.Refused | lab_kit.Unreachable) or packet.protocol is Protocol.SCTP
        return "" if closed else "not let go on its way"


def _misplaced(snapshot: ClusterSnapshot, own_name: str) -> frozenset[Address]:
    entries = (entry for owned in snapshot.slices.values() for piece in owned.values() for entry in piece.endpoints)
    return frozenset(entry.address for entry in entries if entry.node_name not in ("", own_name))


def _is_loopback(address: Address) -> bool:
    return address[0] == 127 if address.family is Family.IPV4 else address == parse_address("::1")
