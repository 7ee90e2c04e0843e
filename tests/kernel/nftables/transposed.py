"""Moves generated clusters into the lab, whose addresses they take, so that real packets can be held against the oracle."""

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from kproxy_core.model.addresses import Address, Family, Network, parse_address, parse_network
from kproxy_core.model.names import Protocol
from kproxy_core.model.packet import Delivered, Dropped, Packet, Refused, Target, Verdict
from kproxy_core.model.snapshot import ClusterSnapshot
from kproxy_core.testing import lab as lab_kit
from kproxy_core.testing.lab import BRIDGE, POD_INTERFACE_PREFIX, Answer, Host, Lab, Outcome
from kproxy_core.testing.strategies import pools

SERVED_PORTS = (8080, 8081, 6443)
"""Every host of the lab answers on these, in every protocol."""

SECOND = ("172.18.0.50/24", "fd00:18::50/64")
"""A second address for the node's uplink in each family."""

ADDRESSES: Mapping[Address, Address] = {
    parse_address(old): parse_address(new)
    for old, new in {
        "192.0.2.1": "172.18.0.2",
        "192.0.2.2": "172.18.0.50",
        "192.0.2.9": "172.18.0.3",
        "2001:db8::1": "fd00:18::2",
        "2001:db8::2": "fd00:18::50",
        "2001:db8::9": "fd00:18::3",
        "10.244.1.1": "10.244.1.10",
        "10.244.1.2": "10.244.1.130",
        "10.244.2.1": "10.244.2.10",
        "fd00:244:1::1": "fd00:244:0:1::a",
        "fd00:244:1::2": "fd00:244:0:1::82",
        "fd00:244:2::1": "fd00:244:0:2::a",
        "198.51.100.1": "172.18.0.100",
        "198.51.101.1": "172.18.0.101",
        "2001:db8:c::1": "fd00:18::100",
        "2001:db8:d::1": "fd00:18::101",
    }.items()
}
NETWORKS: Mapping[Network, Network] = {
    parse_network(old): parse_network(new)
    for old, new in {
        "fd00:244:1::/64": "fd00:244:0:1::/64",
        "198.51.100.0/24": "172.18.0.100/32",
        "192.0.2.0/24": "172.18.0.0/26",
        "192.0.2.2/32": "172.18.0.50/32",
        "2001:db8:c::/48": "fd00:18::100/128",
        "2001:db8::/64": "fd00:18::/120",
    }.items()
}
INTERFACES = {pools.BRIDGE: BRIDGE, pools.PREFIX: POD_INTERFACE_PREFIX, "veth1": "kpoda1"}
BY_WAY_OF_THE_NODE = ("203.0.113.0/24", "10.96.0.0/16", "2001:db8:e::/64", "fd00:96::/112")
"""What the outside client and the second node send to the node, besides its own addresses and its pods'."""


def transposed(value: Any) -> Any:
    """The same value with the lab's addresses, networks and interfaces."""
    if isinstance(value, Address | str):
        return ADDRESSES.get(value, value) if isinstance(value, Address) else INTERFACES.get(value, _as_key(value))
    if isinstance(value, dict | tuple | frozenset):
        return _container(value)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: transposed(getattr(value, name)) for name in value.__struct_fields__})
    if not attrs.has(type(value)):
        return value
    fields = {field.name: transposed(getattr(value, field.name)) for field in attrs.fields(type(value))}
    return NETWORKS.get(value, value) if isinstance(value, Network) else attrs.evolve(value, **fields)


def _container(value: Any) -> Any:
    if isinstance(value, dict):
        return {transposed(key): transposed(inner) for key, inner in value.items()}
    return type(value)(map(transposed, value)) if type(value) in (tuple, frozenset) else value


def _as_key(text: str) -> str:
    """Weights are keyed by addresses as text."""
    try:
        return str(transposed(parse_address(text)))
    except ValueError:
        return text


class Atlas:
    """Where in the lab a packet begins, and what must become of it there."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.misplaced: frozenset[Address] = frozenset()
        """Hosts that some slice says are on another node: nobody promises that they reach themselves by way of this one."""
        self._hosts = {parse_address(address): host for host in lab.hosts.values() for address in host.addresses}
        self._ways = tuple(map(parse_network, (*BY_WAY_OF_THE_NODE, *map(str, lab.plan.pod_ranges("node")))))

    def origin(self, packet: Packet) -> Host | None:
        """The host that can send a packet so that it meets the node; None if there is none."""
        host = self._hosts.get(packet.source)
        if host is None or packet.destination in _NOWHERE:
            return None
        if host is self._lab.node:
            return host if not packet.interface else None
        expected = {"a1": "kpoda1", "abr1": BRIDGE}.get(host.name, "eth0")
        passes = host.pod is not None and host.pod.on == "node"
        if (
            packet.interface != expected
            or not (passes or self._meets_node(packet.destination))
            or _is_loopback(packet.destination)
        ):
            return None
        return host

    def _meets_node(self, destination: Address) -> bool:
        return self._hosts.get(destination) is self._lab.node or any(destination in network for network in self._ways)

    def complaint(self, packet: Packet, origin: Host, verdict: Verdict, outcome: Outcome) -> str:
        """What is wrong with an outcome; empty if it is what must come of the verdict in this lab."""
        match verdict:
            case Delivered(targets):
                return self._of_delivered(packet, origin, targets, outcome)
            case Dropped():
                return "" if isinstance(outcome, lab_kit.Dropped) else "not dropped"
            case Refused():
                by = "rst" if packet.protocol is Protocol.TCP else "icmp"
                return "" if isinstance(outcome, lab_kit.Refused) and outcome.by == by else "not refused"
            case _:
                return self._of_untouched(packet, origin, outcome)

    def is_silent(self, packet: Packet, origin: Host, verdict: Verdict) -> bool:
        """Whether no answer is what must come of it, so that waiting for long is in vain."""
        match verdict:
            case Delivered(targets):
                return any(self._is_lost(packet, origin, target) for target in targets)
            case Refused():
                return False
            case Dropped():
                return True
        return packet.destination not in self._hosts or packet.protocol is Protocol.SCTP

    def _of_delivered(self, packet: Packet, origin: Host, targets: frozenset[Target], outcome: Outcome) -> str:
        if isinstance(outcome, lab_kit.Dropped):
            return "" if any(self._is_lost(packet, origin, target) for target in targets) else "dropped"
        if not isinstance(outcome, Answer):
            return "not delivered"
        for target in targets:
            if (self._hosts[target.address].name, target.port) == (outcome.server.partition(":")[0], outcome.port):
                return self._masquerade_complaint(origin, target, outcome)
        return "delivered to another endpoint"

    def _masquerade_complaint(self, origin: Host, target: Target, outcome: Answer) -> str:
        node = self._lab.node
        if outcome.masqueraded and not target.masqueraded:
            return "the client's address was not kept"
        # What the node itself sends may keep one of its addresses; what it receives itself is never masqueraded.
        seen = origin is not node and self._hosts[target.address] is not node
        return "the client's address was kept" if seen and target.masqueraded and not outcome.masqueraded else ""

    def see(self, snapshot: ClusterSnapshot, own_name: str) -> None:
        """Take in which endpoints a cluster says are elsewhere."""
        entries = [e for owned in snapshot.slices.values() for piece in owned.values() for e in piece.endpoints]
        self.misplaced = frozenset(entry.address for entry in entries if entry.node_name not in ("", own_name))

    def _is_lost(self, packet: Packet, origin: Host, target: Target) -> bool:
        """Whether the endpoint answers the client directly, past the node, from an address that the client has not dialled."""
        if target.address == packet.source and packet.source in self.misplaced:
            return True
        if target.masqueraded and self._hosts[target.address] is not self._lab.node:
            return False
        there = self._hosts[target.address]
        if there is self._lab.node or (there.pod is not None and there.pod.on == "node"):
            return False
        return origin is self._lab.outside or (origin.pod is not None and origin.pod.on == "node2")

    def _of_untouched(self, packet: Packet, origin: Host, outcome: Outcome) -> str:
        there = self._lab.node if _is_loopback(packet.destination) else self._hosts.get(packet.destination)
        if there is None:
            return "" if isinstance(outcome, lab_kit.Dropped | lab_kit.Unreachable) else "not let go on its way"
        if packet.port in SERVED_PORTS:
            served = isinstance(outcome, Answer) and outcome.server.partition(":")[0] == there.name and not outcome.masqueraded
            return "" if served else "not let go on its way"
        closed = isinstance(outcome, lab_kit.Refused | lab_kit.Unreachable) or packet.protocol is Protocol.SCTP
        return "" if closed else "not let go on its way"


_NOWHERE = {*pools.IMPOSSIBLE_ADDRESSES} - {parse_address("127.0.0.1"), parse_address("::1")}


def _is_loopback(address: Address) -> bool:
    return address[0] == 127 if address.family is Family.IPV4 else address == parse_address("::1")
