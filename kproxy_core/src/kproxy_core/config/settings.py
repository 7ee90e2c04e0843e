"""Settings: the operator's decisions as one frozen value; reading them from files or flags happens elsewhere."""

import enum
from collections.abc import Mapping

from attrs import field, frozen

from kproxy_core.model.addresses import Address, Network


class DetectLocalMode(enum.Enum):
    """How local pods are told from other traffic; kube-proxy's ``detectLocalMode``."""

    CLUSTER_CIDR = "ClusterCIDR"
    NODE_CIDR = "NodeCIDR"
    BRIDGE_INTERFACE = "BridgeInterface"
    INTERFACE_NAME_PREFIX = "InterfaceNamePrefix"


class NodePortScope(enum.Enum):
    """``nodePortAddresses`` in words: the node's primary address of each family, or every local address."""

    PRIMARY = "primary"
    ALL = "all"


@frozen(kw_only=True)
class Settings:
    """What the operator decides.

    ``node_name`` is the Node object to act for. ``bind_address``, if set, overrides the primary address of its family, as
    kube-proxy's ``bindAddress`` does. ``node_port_addresses`` is a scope or ranges; None leaves it to the mode's default.
    Periods are in seconds: ``min_sync_period`` is the least time between two syncs, ``sync_period`` the longest without a check.
    ``protected_ports`` are TCP ports of the node itself that no Service may take over. ``mode_options`` are the mode's own.
    """

    mode: str = ""
    node_name: str = ""
    bind_address: Address | None = None
    cluster_cidrs: tuple[Network, ...] = ()
    detect_local_mode: DetectLocalMode = DetectLocalMode.CLUSTER_CIDR
    bridge_interface: str = ""
    interface_name_prefix: str = ""
    node_port_addresses: NodePortScope | tuple[Network, ...] | None = None
    masquerade_bit: int = 14
    masquerade_all: bool = False
    external_ips_allowed: bool = True
    min_sync_period: float = 0.0
    sync_period: float = 30.0
    protected_ports: frozenset[int] = frozenset({22, 10250})
    mode_options: Mapping[str, str] = field(factory=dict)
