"""Looks at what every mode needs of a node: forwarding, bridges, reverse path filters, conntrack, rights, other proxies.

``node_facts`` looks, ``node_findings`` judges and is pure. Nothing is changed. What there is once per network namespace
is that of the calling thread's.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from attrs import field, frozen

from kproxy_core.kernel import sysctl
from kproxy_core.kernel.addresses import AddressSocket
from kproxy_core.kernel.errors import KernelError
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.kernel.writer_lock import Peer, holder
from kproxy_core.plugin.backend import Finding
from kproxy_core.wire.nfnetlink import Family as TableFamily

CAP_NET_ADMIN: Final = 12
CAP_SYS_ADMIN: Final = 21

STRICT: Final = 1
"""Of rp_filter (Linux, networking/ip-sysctl): a packet is dropped unless its source is reached by the interface it came in on."""

FEWEST_TRACKED: Final = 131072
"""Connections that conntrack should have room for; kube-proxy's ``conntrack.min``."""

NEARLY_FULL: Final = 0.9

ANOTHER: Final = "another kproxy"
"""The name of the finding about the writer's lock."""


@frozen(kw_only=True)
class NodeFacts:
    """What was found. Numbers are None where the kernel has no such setting.

    ``rp_filter`` maps each interface to the mode in force for it. ``bridge_netfilter`` maps ``iptables`` and ``ip6tables`` to
    whether bridged packets pass them. ``rivals`` are signs of kube-proxy, one sentence each. ``holder`` is the process that
    programs this network namespace.
    """

    net_admin: bool = True
    ipv4_forwarding: int | None = None
    ipv6_forwarding: int | None = None
    ipv6_on: bool = True
    bridges: tuple[str, ...] = ()
    bridge_netfilter: Mapping[str, int | None] = field(factory=dict)
    rp_filter: Mapping[str, int] = field(factory=dict)
    conntrack_max: int | None = None
    conntrack_count: int | None = None
    holder: Peer | None = None
    rivals: tuple[str, ...] = ()


def check_node() -> tuple[Finding, ...]:
    """Look at the node and judge it."""
    return node_findings(node_facts())


def node_findings(facts: NodeFacts) -> tuple[Finding, ...]:
    """Judge what was found: one finding for each thing looked at."""
    return (
        _net_admin(facts),
        _ipv4_forwarding(facts),
        *_ipv6(facts),
        *_bridges(facts),
        _rp_filter(facts),
        _conntrack(facts),
        _holder(facts),
        _rivals(facts),
    )


def _net_admin(facts: NodeFacts) -> Finding:
    if facts.net_admin:
        return Finding(name="CAP_NET_ADMIN", ok=True, message="this process may change the kernel's network settings")
    return Finding(
        name="CAP_NET_ADMIN",
        ok=False,
        message="this process may not change the kernel's network settings",
        remedy="run as root (sudo), or give the service CAP_NET_ADMIN",
    )


def _ipv4_forwarding(facts: NodeFacts) -> Finding:
    name = "net.ipv4.ip_forward"
    if facts.ipv4_forwarding:
        return Finding(name=name, ok=True, message="IPv4 packets are forwarded")
    return Finding(
        name=name,
        ok=False,
        fatal=False,
        message="IPv4 packets are not forwarded: only this node's own processes reach endpoints in pods",
        remedy="sysctl -w net.ipv4.ip_forward=1",
    )


def _ipv6(facts: NodeFacts) -> Iterator[Finding]:
    if not facts.ipv6_on:
        yield Finding(
            name="IPv6",
            ok=False,
            fatal=False,
            message="IPv6 is off: Services are served on IPv4 only",
            remedy="none if this is wanted; else sysctl -w net.ipv6.conf.all.disable_ipv6=0, or boot without ipv6.disable=1",
        )
        return
    yield Finding(name="IPv6", ok=True, message="IPv6 is on")
    name = "net.ipv6.conf.all.forwarding"
    if facts.ipv6_forwarding:
        yield Finding(name=name, ok=True, message="IPv6 packets are forwarded")
        return
    yield Finding(
        name=name,
        ok=False,
        fatal=False,
        message="IPv6 packets are not forwarded: only this node's own processes reach endpoints in pods",
        remedy="sysctl -w net.ipv6.conf.all.forwarding=1 (a node that learns its default route from router advertisements"
        " needs net.ipv6.conf.IFACE.accept_ra=2 as well)",
    )


def _bridges(facts: NodeFacts) -> Iterator[Finding]:
    if not facts.bridges:
        return
    absent = all(value is None for value in facts.bridge_netfilter.values())
    off = [f"net.bridge.bridge-nf-call-{name}" for name, value in facts.bridge_netfilter.items() if not value]
    if not off:
        message = f"packets between ports of a bridge ({', '.join(facts.bridges)}) pass the rules"
        yield Finding(name="br_netfilter", ok=True, message=message)
        return
    settings = " ".join(f"{name}=1" for name in off)
    yield Finding(
        name="br_netfilter",
        ok=False,
        fatal=False,
        message=f"packets between ports of a bridge ({', '.join(facts.bridges)}) do not pass the rules:"
        " a pod there does not get answers from an endpoint on the same bridge",
        remedy=("modprobe br_netfilter, then " if absent else "")
        + f"sysctl -w {settings}; not needed where the bridge has no pods",
    )


def _rp_filter(facts: NodeFacts) -> Finding:
    strict = sorted(name for name, mode in facts.rp_filter.items() if mode == STRICT)
    if not strict:
        return Finding(name="rp_filter", ok=True, message="no interface drops packets by a strict reverse path filter")
    return Finding(
        name="rp_filter",
        ok=False,
        fatal=False,
        message=f"the reverse path filter is strict on {', '.join(strict)}:"
        " packets and answers that take different ways may be dropped",
        remedy="sysctl -w net.ipv4.conf.all.rp_filter=2 (loose), unless all packets take the same way in both directions",
    )


def _conntrack(facts: NodeFacts) -> Finding:
    name, most, used = "nf_conntrack", facts.conntrack_max, facts.conntrack_count
    if most is None:
        message = (
            "connection tracking is not loaded; the first rule that translates addresses loads it, where modules can be loaded"
        )
        return Finding(name=name, ok=False, fatal=False, message=message, remedy="modprobe nf_conntrack")
    room = f"{used or 0} of {most} connections tracked"
    raised = max(2 * most, FEWEST_TRACKED)
    if used is not None and used >= NEARLY_FULL * most:
        message = f"{room}: when the table is full, new connections are dropped"
        return Finding(
            name=name, ok=False, fatal=False, message=message, remedy=f"sysctl -w net.netfilter.nf_conntrack_max={raised}"
        )
    if most < FEWEST_TRACKED:
        message = f"{room}: little room for a busy node"
        return Finding(
            name=name, ok=False, fatal=False, message=message, remedy=f"sysctl -w net.netfilter.nf_conntrack_max={raised}"
        )
    return Finding(name=name, ok=True, message=room)


def _holder(facts: NodeFacts) -> Finding:
    if facts.holder is None:
        return Finding(name=ANOTHER, ok=True, message="no other kproxy runs here")
    return Finding(
        name=ANOTHER,
        ok=False,
        fatal=False,
        message=f"{described(facts.holder)} runs here already; a second one waits until it ends, then takes over",
        remedy="none if that is wanted; else stop it",
    )


def described(peer: Peer) -> str:
    """Name the holder of the writer's lock for people."""
    if peer.pid:
        return f"a kproxy (process {peer.pid}, user {peer.uid})"
    return "a kproxy (in a container, so its process is not seen from here)"


def _rivals(facts: NodeFacts) -> Finding:
    if not facts.rivals:
        return Finding(name="kube-proxy", ok=True, message="no kube-proxy, nor rules of one")
    return Finding(
        name="kube-proxy",
        ok=False,
        fatal=False,
        message=f"{'; '.join(facts.rivals)}: two proxies for the same Services get in each other's way",
        remedy="stop kube-proxy, then let it remove its rules: kube-proxy --cleanup",
    )


def node_facts() -> NodeFacts:
    """Look at the node."""
    return NodeFacts(
        net_admin=has_capability(CAP_NET_ADMIN),
        ipv4_forwarding=_number("net/ipv4/ip_forward"),
        ipv6_forwarding=_number("net/ipv6/conf/all/forwarding"),
        ipv6_on=_number("net/ipv6/conf/all/disable_ipv6") == 0,
        bridges=_find_bridges(),
        bridge_netfilter={name: _number(f"net/bridge/bridge-nf-call-{name}") for name in ("iptables", "ip6tables")},
        rp_filter=_find_rp_filters(),
        conntrack_max=_number("net/netfilter/nf_conntrack_max"),
        conntrack_count=_number("net/netfilter/nf_conntrack_count"),
        holder=holder(),
        rivals=(*_kube_proxy_processes(), *_kube_proxy_tables()),
    )


def has_capability(number: int) -> bool:
    """Whether this process has a capability (linux/capability.h) in effect."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def _number(name: str) -> int | None:
    try:
        return int(sysctl.read(name))
    except (sysctl.SysctlError, ValueError):
        return None


def _find_bridges() -> tuple[str, ...]:
    try:
        with AddressSocket() as rtnetlink:
            return tuple(link.name for link in rtnetlink.links() if link.kind == "bridge")
    except KernelError:
        return ()


def _find_rp_filters() -> dict[str, int]:
    """The mode in force for an interface is the higher of its own and that of ``all``."""
    general = _number("net/ipv4/conf/all/rp_filter") or 0
    interfaces = sorted(path.name for path in Path("/proc/sys/net/ipv4/conf").glob("*"))
    own = {name: _number(f"net/ipv4/conf/{name}/rp_filter") or 0 for name in interfaces if name not in ("all", "default", "lo")}
    return {name: max(general, mode) for name, mode in own.items()}


def _kube_proxy_processes() -> Iterator[str]:
    """Tell of processes called kube-proxy that live in this network namespace."""
    try:
        here = Path("/proc/thread-self/ns/net").readlink()
    except OSError:
        return
    for folder in sorted(Path("/proc").glob("[1-9]*")):
        try:
            if (folder / "comm").read_text().strip() == "kube-proxy" and (folder / "ns" / "net").readlink() == here:
                yield f"kube-proxy runs here (process {folder.name})"
        except OSError:
            continue


def _kube_proxy_tables() -> Iterator[str]:
    """Tell of kube-proxy's rules in nf_tables, those of iptables-nft included; legacy iptables is not looked at."""
    try:
        with NftSocket() as nft:
            found = {(table.family, table.name) for table in nft.tables()}
            for family, shown in ((TableFamily.IPV4, "ip"), (TableFamily.IPV6, "ip6")):
                if (family, "kube-proxy") in found:
                    yield f"rules of kube-proxy are in the kernel (nftables table {shown} kube-proxy)"
                if (family, "nat") in found and any(chain.name == "KUBE-SERVICES" for chain in nft.chains(family, "nat")):
                    yield f"rules of kube-proxy are in the kernel (nftables chain {shown} nat KUBE-SERVICES)"
    except KernelError:
        return
