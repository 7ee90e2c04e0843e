"""The plan of a lab: which pods there are, where they are attached, and which addresses everything has."""

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network

from attrs import field, frozen

NODE, NODE2, OUTSIDE = "node", "node2", "outside"
NODES = (NODE, NODE2)

POD_INTERFACE_PREFIX = "kpod"
"""Host interfaces of routed pods are this and the pod's name: what ``detectLocal.interfaceNamePrefix`` is set to."""

BRIDGE_PORT_PREFIX = "kport"
"""Ports of the bridge. They never appear as input interface of a packet: that is the bridge."""

BRIDGE = "kbr0"
"""The bridge for bridged pods on a node: what ``detectLocal.bridgeInterface`` is set to."""

UPLINK = "eth0"
"""A node's interface to the outside network, and a pod's only one."""

_LONGEST_POD_NAME = 15 - len(BRIDGE_PORT_PREFIX)  # IFNAMSIZ is 16 with the final zero
_BRIDGED_FROM = 128  # routed pods have the lower half of a node's /24, bridged ones the upper
_FIRST_ROUTED = 10

Network = IPv4Network | IPv6Network


@frozen(kw_only=True)
class PodPlan:
    """One pod: its name (at most 10 characters), its node, and whether it is a bridge port or routed by itself."""

    name: str
    on: str = NODE
    bridged: bool = False


@frozen(kw_only=True)
class AddressPair:
    """An address in each family, as text in canonical form."""

    ipv4: str
    ipv6: str


@frozen(kw_only=True)
class LabPlan:
    """How many pods and which addresses; by default two routed and two bridged pods on ``node``, two routed ones on ``node2``.

    Routed pods are called a1, a2, ... on ``node`` and b1, b2, ... on ``node2``, bridged ones abr1, ... and bbr1, ...
    At most 117 routed and 125 bridged pods per node. ``outside_addresses`` is how many client addresses the outside host has.
    """

    node_routed: int = 2
    node_bridged: int = 2
    node2_routed: int = 2
    node2_bridged: int = 0
    outside_addresses: int = field(default=4)
    outside_ipv4: IPv4Network = field(factory=lambda: IPv4Network("172.18.0.0/24"))
    outside_ipv6: IPv6Network = field(factory=lambda: IPv6Network("fd00:18::/64"))
    pods_ipv4: IPv4Network = field(factory=lambda: IPv4Network("10.244.0.0/16"))
    pods_ipv6: IPv6Network = field(factory=lambda: IPv6Network("fd00:244::/56"))
    cluster_ipv4: IPv4Network = field(factory=lambda: IPv4Network("10.96.0.0/16"))
    cluster_ipv6: IPv6Network = field(factory=lambda: IPv6Network("fd00:96::/112"))
    external_ipv4: IPv4Network = field(factory=lambda: IPv4Network("192.0.2.0/24"))
    external_ipv6: IPv6Network = field(factory=lambda: IPv6Network("2001:db8:e::/64"))
    load_balancer_ipv4: IPv4Network = field(factory=lambda: IPv4Network("198.51.100.0/24"))
    load_balancer_ipv6: IPv6Network = field(factory=lambda: IPv6Network("2001:db8:1b::/64"))

    @outside_addresses.validator
    def _check_outside_addresses(self, _attribute: object, value: int) -> None:
        if not 1 <= value <= 100:
            raise ValueError(f"outside_addresses is {value}, not from 1 to 100")

    @property
    def pods(self) -> tuple[PodPlan, ...]:
        """Every pod that the lab starts with."""
        return tuple(self._pods())

    def _pods(self) -> Iterator[PodPlan]:
        kinds = (
            (NODE, "a", False, self.node_routed),
            (NODE, "abr", True, self.node_bridged),
            (NODE2, "b", False, self.node2_routed),
            (NODE2, "bbr", True, self.node2_bridged),
        )
        for on, letter, bridged, count in kinds:
            for number in range(1, count + 1):
                yield PodPlan(name=f"{letter}{number}", on=on, bridged=bridged)

    @property
    def service_ranges(self) -> tuple[Network, ...]:
        """What the outside client sends to the node though no interface has it: cluster, external and load balancer addresses."""
        return (
            self.cluster_ipv4,
            self.external_ipv4,
            self.load_balancer_ipv4,
            self.cluster_ipv6,
            self.external_ipv6,
            self.load_balancer_ipv6,
        )

    def node_addresses(self, node: str) -> AddressPair:
        """A node's addresses on the outside network."""
        number = 2 + NODES.index(node)
        return AddressPair(ipv4=str(self.outside_ipv4[number]), ipv6=str(self.outside_ipv6[number]))

    def client_addresses(self, number: int) -> AddressPair:
        """The addresses of the outside client, ``number`` from 0."""
        return AddressPair(ipv4=str(self.outside_ipv4[100 + number]), ipv6=str(self.outside_ipv6[0x100 + number]))

    def pod_ranges(self, node: str) -> tuple[IPv4Network, IPv6Network]:
        """A node's pod ranges (its ``podCIDRs``): a /24 and a /64, routed and bridged pods alike."""
        number = 1 + NODES.index(node)
        ipv4 = IPv4Network((int(self.pods_ipv4.network_address) + (number << 8), 24))
        ipv6 = IPv6Network((int(self.pods_ipv6.network_address) + (number << 64), 64))
        return ipv4, ipv6

    def bridge_gateway(self, node: str) -> tuple[AddressPair, tuple[int, int]]:
        """The bridge's own addresses and their prefix lengths."""
        ipv4, ipv6 = self.pod_ranges(node)
        return AddressPair(ipv4=str(ipv4[_BRIDGED_FROM + 1]), ipv6=str(ipv6[_BRIDGED_FROM + 1])), (25, 121)

    def free_offset(self, pod: PodPlan, taken: frozenset[int]) -> int:
        """The lowest free offset into the node's ranges for one more pod. Raises ``ValueError`` when none is left."""
        first, last = (_BRIDGED_FROM + 2, 254) if pod.bridged else (_FIRST_ROUTED, _BRIDGED_FROM - 1)
        for offset in range(first, last + 1):
            if offset not in taken:
                return offset
        kind = "bridged" if pod.bridged else "routed"
        raise ValueError(f"no address left on {pod.on} for one more {kind} pod ({last + 1 - first} are there)")

    def pod_addresses(self, node: str, offset: int) -> AddressPair:
        """The addresses at an offset in a node's pod ranges."""
        ipv4, ipv6 = self.pod_ranges(node)
        return AddressPair(ipv4=str(ipv4[offset]), ipv6=str(ipv6[offset]))


def check_pod(pod: PodPlan) -> None:
    """Raise ``ValueError`` for a pod that cannot be built: an unknown node, or a name that makes no interface name."""
    if pod.on not in NODES:
        raise ValueError(f"pod {pod.name!r} is on {pod.on!r}, which is not one of {', '.join(NODES)}")
    fits = 0 < len(pod.name) <= _LONGEST_POD_NAME
    if not fits or not pod.name.isascii() or not all(letter.isalnum() or letter in "-_" for letter in pod.name):
        raise ValueError(f"pod name {pod.name!r}: write 1 to {_LONGEST_POD_NAME} letters, digits, '-' or '_'")
