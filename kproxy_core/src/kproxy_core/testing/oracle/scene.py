"""What surrounds a packet: the cluster, the operator's settings, the node it meets, and where it comes from."""

from attrs import frozen

from kproxy_core.config.settings import DetectLocalMode, NodePortScope, Settings
from kproxy_core.model.addresses import Address, Family, Network, parse_network
from kproxy_core.model.packet import Packet
from kproxy_core.model.snapshot import ClusterSnapshot
from kproxy_core.model.state import Origin

_LOOPBACK = (parse_network("127.0.0.0/8"), parse_network("::1/128"))
_NEVER_AN_ENDPOINT = (
    *_LOOPBACK,
    parse_network("169.254.0.0/16"),  # link-local
    parse_network("fe80::/10"),
    parse_network("224.0.0.0/4"),  # multicast
    parse_network("ff00::/8"),
    parse_network("0.0.0.0/32"),  # unspecified
    parse_network("::/128"),
)


@frozen(kw_only=True)
class Site:
    """What neither the API nor the settings tell about the node that a packet meets.

    ``name`` is the name of its Node object, which endpoints refer to; empty when it has none, and then no endpoint is local.
    ``addresses`` are those of its interfaces, loopback included or not. ``node_ports_everywhere`` is the mode's default for
    ``nodePortAddresses``: all local addresses (kube-proxy's iptables and ipvs modes) or the primary ones (nftables).
    ``localhost_node_ports`` names the families whose loopback addresses answer on NodePorts too (kube-proxy's
    ``iptables.localhostNodePorts``; none in nftables mode).
    """

    name: str
    addresses: tuple[Address, ...] = ()
    node_ports_everywhere: bool = False
    localhost_node_ports: frozenset[Family] = frozenset()


@frozen(kw_only=True)
class Scene:
    """Everything that a verdict depends on except the packet."""

    snapshot: ClusterSnapshot
    settings: Settings
    site: Site

    def node_addresses(self) -> frozenset[Address]:
        """The addresses that are this node's: on its interfaces, told by its Node object, or its primary ones."""
        primary = (self.primary_address(family) for family in Family)
        addresses = (*self.site.addresses, *self._reported(), *(address for address in primary if address is not None))
        return frozenset(address for address in addresses if can_be_reached(address))

    def _reported(self) -> tuple[Address, ...]:
        """What the Node object says, internal addresses before external ones."""
        node = self.snapshot.node
        return (*node.internal_addresses, *node.external_addresses) if node is not None else ()

    def primary_address(self, family: Family) -> Address | None:
        """The node's main address in ``family``: ``bindAddress``, or the Node's first one, internal before external.

        A Node without an address of the family has none: kube-proxy goes on with loopback then, where no NodePort answers.
        Without a Node object, as when the proxy runs without a cluster, it is the first address of the interfaces.
        """
        bind = self.settings.bind_address
        if bind is not None and bind.family is family and any(bind):  # 0.0.0.0 and :: leave it to the Node
            return bind
        known = self._reported() if self.snapshot.node is not None else filter(can_be_reached, self.site.addresses)
        return next((address for address in known if address.family is family), None)

    def answers_node_ports(self, address: Address) -> bool:
        """Whether connections to ``address`` can mean a NodePort (``nodePortAddresses``, or the mode's default)."""
        if is_loopback(address) and address.family not in self.site.localhost_node_ports:
            return False
        chosen = self.settings.node_port_addresses
        if chosen is None:
            chosen = NodePortScope.ALL if self.site.node_ports_everywhere else NodePortScope.PRIMARY
        if chosen is NodePortScope.PRIMARY:
            return address == self.primary_address(address.family)
        # Every loopback address is on the node, also those that no interface lists.
        here = address in self.site.addresses or is_loopback(address)
        if chosen is NodePortScope.ALL:
            return here
        # Silent text: ranges that name one family only. Taken at their word, they select nothing of the other. And link-local
        # addresses, which every interface of a pod brings along: ranges do not mean them.
        return here and (is_loopback(address) or can_be_reached(address)) and any(address in network for network in chosen)

    def zone(self) -> str:
        """The node's zone, empty while unknown."""
        return self.snapshot.node.zone if self.snapshot.node is not None else ""

    def pod_networks(self, family: Family) -> tuple[Network, ...]:
        """The ranges of ``family`` whose addresses are local pods, where they are told by address."""
        match self.settings.detect_local_mode:
            case DetectLocalMode.CLUSTER_CIDR:
                networks = self.settings.cluster_cidrs
            case DetectLocalMode.NODE_CIDR:
                networks = self.snapshot.node.pod_cidrs if self.snapshot.node is not None else ()
            case _:
                networks = ()
        return tuple(network for network in networks if network.family is family)

    def can_tell_local_pods(self, family: Family) -> bool:
        """Whether there is a way to tell local pods; each family for itself (case O21: without one, nothing extra happens).

        A mode whose parameter is missing (no ranges of the family, an empty interface name) tells nothing.
        """
        settings = self.settings
        return bool(
            self.pod_networks(family)
            or (settings.detect_local_mode is DetectLocalMode.BRIDGE_INTERFACE and settings.bridge_interface)
            or (settings.detect_local_mode is DetectLocalMode.INTERFACE_NAME_PREFIX and settings.interface_name_prefix)
        )

    def is_from_local_pod(self, packet: Packet) -> bool:
        """Whether the configured detection calls the sender a local pod.

        Networks ask the source address alone, so that a process of the node that uses a pod address counts too, and so does a
        pod of another node with mode ClusterCIDR; interfaces ask where the packet came in: a process of the node never counts.
        """
        settings = self.settings
        if packet.interface and settings.detect_local_mode is DetectLocalMode.BRIDGE_INTERFACE:
            return packet.interface == settings.bridge_interface
        if packet.interface and settings.detect_local_mode is DetectLocalMode.INTERFACE_NAME_PREFIX:
            prefix = settings.interface_name_prefix
            return bool(prefix) and packet.interface.startswith(prefix)
        return any(packet.source in network for network in self.pod_networks(packet.source.family))

    def origin(self, packet: Packet) -> Origin:
        """Where the packet comes from. Local pods are asked for first, as kube-proxy does: before the node's own traffic."""
        if self.is_from_local_pod(packet):
            return Origin.LOCAL_POD
        return Origin.NODE if packet.from_this_node else Origin.OUTSIDE


def is_loopback(address: Address) -> bool:
    """Whether it is one of 127.0.0.0/8 or ::1."""
    return any(address in network for network in _LOOPBACK)


def can_be_reached(address: Address) -> bool:
    """Whether an address can be that of an endpoint or of the outside (the guard)."""
    return not any(address in network for network in _NEVER_AN_ENDPOINT)
