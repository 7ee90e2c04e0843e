"""Links, addresses and routes of a lab, by pyroute2."""

from typing import TYPE_CHECKING

from attrs import frozen

from kproxy_core.testing.lab.plan import Network

if TYPE_CHECKING:
    from pyroute2 import IPRoute

IFA_F_NODAD = 0x02
_HAIRPIN = 1  # IFLA_BRPORT_MODE
_LINK_SCOPE = 253

POD_GATEWAYS = ("169.254.1.1", "fe80::1")
"""What routed pods have as gateway: addresses of nobody, answered for by a permanent neighbour entry."""


@frozen(kw_only=True)
class Cable:
    """A veth pair: name and MAC address of both ends. The far end is made in the namespace ``far_in`` (a descriptor)."""

    near: str
    near_mac: str
    far: str
    far_mac: str
    far_in: int


def index(ipr: "IPRoute", interface: str) -> int:
    """An interface's index. Raises ``LookupError``."""
    found: list[int] = ipr.link_lookup(ifname=interface)
    if not found:
        raise LookupError(f"no interface {interface}")
    return found[0]


def raise_loopback(ipr: "IPRoute") -> None:
    """Bring the loopback up: its index is 1 in every namespace."""
    ipr.link("set", index=1, state="up")


def connect(ipr: "IPRoute", cable: Cable, master: int = 0) -> int:
    """Plug in a cable, its near end up and, with ``master``, a port of that bridge. Returns the near end's index."""
    peer = {"ifname": cable.far, "address": cable.far_mac, "net_ns_fd": cable.far_in}
    ipr.link("add", ifname=cable.near, kind="veth", address=cable.near_mac, peer=peer)
    near = index(ipr, cable.near)
    if master:
        ipr.link("set", index=near, master=master, state="up")
    else:
        ipr.link("set", index=near, state="up")
    return near


def set_hairpin(ipr: "IPRoute", port: int) -> None:
    """Let a bridge send frames back to the port they came from: a pod that reaches itself by a Service needs it."""
    ipr.brport("set", index=port, mode=_HAIRPIN)


def add_bridge(ipr: "IPRoute", name: str, mac: str) -> int:
    """Make a bridge that forwards at once: no spanning tree, no multicast snooping."""
    ipr.link("add", ifname=name, kind="bridge", address=mac, br_stp_state=0, br_forward_delay=0, br_mcast_snooping=0)
    bridge = index(ipr, name)
    ipr.link("set", index=bridge, state="up")
    return bridge


def change_address(ipr: "IPRoute", command: str, interface: int, address: str) -> None:
    """Add (``add``) or delete (``del``) an address; no length means a single address. IPv6 ones are usable at once."""
    text, _slash, length = address.partition("/")
    ipv6 = ":" in text
    flags = {"flags": IFA_F_NODAD} if ipv6 and command == "add" else {}
    ipr.addr(command, index=interface, address=text, prefixlen=int(length or (128 if ipv6 else 32)), **flags)


def add_default(ipr: "IPRoute", interface: int, gateway: str) -> None:
    """A default route; the gateway need not be on the link's network."""
    family = _family(gateway)
    ipr.route("add", family=family, dst="default", oif=interface, gateway=gateway, flags=["onlink"])


def add_route(ipr: "IPRoute", network: Network | str, gateway: str) -> None:
    """A route to a network by a gateway."""
    ipr.route("replace", family=_family(gateway), dst=str(network), gateway=gateway)


def add_pod_route(ipr: "IPRoute", interface: int, pod: str, source: str) -> None:
    """A route to one routed pod. The node has no address on that link: its own packets to the pod have ``source``."""
    length = 128 if ":" in pod else 32
    options = {} if ":" in pod else {"scope": _LINK_SCOPE}
    ipr.route("add", family=_family(pod), dst=f"{pod}/{length}", oif=interface, prefsrc=source, **options)


def add_neighbour(ipr: "IPRoute", interface: int, address: str, mac: str) -> None:
    """A permanent neighbour entry: nothing to resolve, nothing to expire."""
    from pyroute2.netlink.rtnl import ndmsg

    ipr.neigh("replace", dst=address, lladdr=mac, ifindex=interface, state=ndmsg.NUD_PERMANENT, family=_family(address))


def _family(address: str) -> int:
    return 10 if ":" in address else 2
