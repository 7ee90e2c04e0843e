"""What is there once per node: the sets, the chains that lead into the dispatch tree, and those that refuse and masquerade.

The nat table asks each new connection's first packet only, and ends with a translation. What was meant for a Service and was not
translated is refused or dropped by the filter table, since iptables knows no other place for that.
"""

from collections.abc import Iterator
from typing import Final

from attrs import frozen

from kproxy_core.model.addresses import Family
from kproxy_core.model.state import NodeContext
from kproxy_iptables import sets, tree
from kproxy_iptables.objects import ROUTE_LOCALNET, SETTING, VERSIONS, Key, Value, host
from kproxy_iptables.origins import FROM_NODE, MARK_OTHERS, joined, local_pod_matches, mark, unmark

PREROUTING: Final = "KPROXY-PREROUTING"
OUTPUT: Final = "KPROXY-OUTPUT"
POSTROUTING: Final = "KPROXY-POSTROUTING"
INPUT: Final = "KPROXY-INPUT"
FORWARD: Final = "KPROXY-FORWARD"
FIREWALL: Final = "KPROXY-FIREWALL"
FIREWALL_NODE_PORTS: Final = "KPROXY-FIREWALL-NP"
FIREWALL_SELF: Final = "KPROXY-FIREWALL-SELF"
FIREWALL_NODE_PORT_SELF: Final = "KPROXY-FIREWALL-NP-SELF"
REFUSE: Final = "KPROXY-REFUSE"

HOOKS: Final = {
    "nat": {"PREROUTING": PREROUTING, "OUTPUT": OUTPUT, "POSTROUTING": POSTROUTING},
    "filter": {"INPUT": INPUT, "FORWARD": FORWARD, "OUTPUT": OUTPUT},
}
"""Which chain of ours each built-in chain leads to."""

_UNTRANSLATED: Final = "-m conntrack ! --ctstate INVALID,RELATED,ESTABLISHED,UNTRACKED,DNAT"
"""Matches packets of new connections that nobody has sent elsewhere."""
_LOOPBACK: Final = {Family.IPV4: "127.0.0.0/8", Family.IPV6: "::1/128"}
_UNREACHABLE: Final = {Family.IPV4: "icmp-port-unreachable", Family.IPV6: "icmp6-port-unreachable"}


@frozen(kw_only=True)
class Features:
    """What the node and the operator make of this mode.

    ``localhost_node_ports``: NodePorts answer on 127.0.0.1, if nodePortAddresses select it. ``drop_invalid``: packets that
    conntrack calls INVALID are not forwarded: untranslated, they would reset the client's connection (kubernetes#74839).
    ``random_fully``: this iptables can choose source ports at random.
    """

    families: frozenset[Family] = frozenset(Family)
    localhost_node_ports: bool = True
    drop_invalid: bool = True
    random_fully: bool = True


def scaffold(node: NodeContext, features: Features) -> dict[Key, Value]:
    """Render what is there without any Service."""
    result: dict[Key, Value] = {}
    for family in sorted(features.families):
        version = VERSIONS[family]
        result.update(sets.definitions(family))
        result.update(tree.roots(family))
        result.update({(f"{version} nat chain", name): rules for name, rules in _nat(family, node, features).items()})
        result.update({(f"{version} filter chain", name): rules for name, rules in _filter(family, node, features).items()})
        for table, hooks in HOOKS.items():
            result.update({(f"{version} {table} hook", built_in): (_hook(chain),) for built_in, chain in hooks.items()})
    if Family.IPV4 in features.families and _localhost_matches(node, features):
        result[SETTING, ROUTE_LOCALNET] = "1"
    return result


def _hook(chain: str) -> str:
    return f'-m comment --comment "kproxy: Services" -j {chain}'


# -- nat


def _nat(family: Family, node: NodeContext, features: Features) -> dict[str, tuple[str, ...]]:
    bit = node.masquerade_bit
    entry = (*_mark_cluster(family, node), f"-j {tree.ADDRESSES}")
    chains = {
        PREROUTING: (*entry, *(f"{match} -j {tree.NODE_PORTS}" for match in _node_port_matches(family, node))),
        OUTPUT: (*entry, *(f"{match} -j {tree.NODE_PORTS}" for match in _own_node_port_matches(family, node, features))),
        POSTROUTING: tuple(_masquerade(family, bit, features)),
    }
    if _needs_chain(family, node):
        returns = (joined(match, "-j RETURN") for match in local_pod_matches(family, node.local_detector))
        chains[MARK_OTHERS] = (*returns, mark(bit))
    return chains


def _mark_cluster(family: Family, node: NodeContext) -> Iterator[str]:
    """Mark whoever comes to a cluster address and is not a local pod: the answer must come back through this node."""
    to_cluster = f"-m set --match-set {sets.set_name(family, sets.CLUSTER_IPS)} dst"
    pods = local_pod_matches(family, node.local_detector)
    if node.masquerade_all:
        yield f"{to_cluster} {mark(node.masquerade_bit)}"
    elif _needs_chain(family, node):
        yield f"{to_cluster} -j {MARK_OTHERS}"
    elif pods:
        yield f"! {pods[0]} {to_cluster} {mark(node.masquerade_bit)}"


def _needs_chain(family: Family, node: NodeContext) -> bool:
    pods = local_pod_matches(family, node.local_detector)
    return not node.masquerade_all and (len(pods) > 1 or "" in pods)


def _node_port_matches(family: Family, node: NodeContext) -> Iterator[str]:
    """Match addresses that NodePorts answer on, loopback aside: a neighbour may send to 127.0.0.1, too (CVE-2020-8558)."""
    if node.node_port_any:
        yield f"! -d {_LOOPBACK[family]} -m addrtype --dst-type LOCAL"
        return
    for address in node.node_port_addresses:
        if address.family is family:
            yield f"-d {host(address)}"


def _own_node_port_matches(family: Family, node: NodeContext, features: Features) -> Iterator[str]:
    """The same for what this node sends, to loopback addresses, too, if they are wanted."""
    loopback = _localhost_matches(node, features) if family is Family.IPV4 else ()
    if node.node_port_any and loopback == (f"-d {_LOOPBACK[family]}",):
        yield "-m addrtype --dst-type LOCAL"
        return
    yield from _node_port_matches(family, node)
    yield from loopback


def _localhost_matches(node: NodeContext, features: Features) -> tuple[str, ...]:
    if not features.localhost_node_ports:
        return ()
    return tuple(f"-d {network}" for network in node.loopback_node_ports if network.family is Family.IPV4)


def _masquerade(family: Family, bit: int, features: Features) -> Iterator[str]:
    """Masquerade hairpins and what is marked; the mark is taken off first, lest encapsulation inherit it (kubernetes#88986)."""
    hairpin = sets.set_name(family, sets.HAIRPIN)
    yield f"-m conntrack --ctstate DNAT -m set --match-set {hairpin} dst,dst,src {mark(bit)}"
    yield f"-m mark ! --mark {1 << bit:#x}/{1 << bit:#x} -j RETURN"
    yield unmark(bit)
    yield "-j MASQUERADE --random-fully" if features.random_fully else "-j MASQUERADE"


# -- filter


def _filter(family: Family, node: NodeContext, features: Features) -> dict[str, tuple[str, ...]]:
    firewall = f"{_UNTRANSLATED} -j {FIREWALL}"
    return {
        INPUT: (*_guard_loopback(family, node, features), firewall),
        FORWARD: tuple(_forward(family, node, features, firewall)),
        OUTPUT: (firewall,),
        FIREWALL: tuple(_firewall(family, node, features)),
        FIREWALL_SELF: tuple(_let_through(family, node, sets.DROP)),
        FIREWALL_NODE_PORTS: (
            f"-m set --match-set {sets.set_name(family, sets.NODE_PORT_SELF)} dst,dst -g {FIREWALL_NODE_PORT_SELF}",
            f"-m set --match-set {sets.set_name(family, sets.NODE_PORT_REJECT)} dst,dst -j {REFUSE}",
            f"-m set --match-set {sets.set_name(family, sets.NODE_PORT_DROP)} dst,dst -j DROP",
        ),
        FIREWALL_NODE_PORT_SELF: tuple(_let_through(family, node, sets.NODE_PORT_DROP)),
        # RST for TCP, since an ICMP error alone is lost on a socket that is locked.
        REFUSE: (
            "-p tcp -j REJECT --reject-with tcp-reset",
            f"-j REJECT --reject-with {_UNREACHABLE[family]}",
        ),
    }


def _guard_loopback(family: Family, node: NodeContext, features: Features) -> Iterator[str]:
    """Keep neighbours from 127.0.0.1, which route_localnet opens to them (CVE-2020-8558), and from posing as it.

    What comes in by the loopback interface is this node's own, from whatever address.
    """
    if _opens_loopback(family, node, features):
        loopback, new = _LOOPBACK[family], "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT"
        yield f"-d {loopback} ! -i lo {new} -j DROP"
        yield f"-s {loopback} ! -i lo {new} -j DROP"


def _opens_loopback(family: Family, node: NodeContext, features: Features) -> bool:
    return family is Family.IPV4 and bool(_localhost_matches(node, features))


def _forward(family: Family, node: NodeContext, features: Features, firewall: str) -> Iterator[str]:
    """Forward what Services need also where the host's policy forwards nothing (Docker's, say), as kube-proxy does."""
    bit = node.masquerade_bit
    yield "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
    if features.drop_invalid:
        yield "-m conntrack --ctstate INVALID -j DROP"
    if _opens_loopback(family, node, features):
        yield f"-s {_LOOPBACK[family]} -j DROP"
    yield firewall
    yield f"-m mark --mark {1 << bit:#x}/{1 << bit:#x} -j ACCEPT"


def _let_through(family: Family, node: NodeContext, dropped: str) -> Iterator[str]:
    """Let inside traffic pass to what may have been translated to itself, and thus looks untranslated.

    These chains are gone to, not jumped to: a return passes over the rest of the rules that refuse.
    """
    yield from (joined(match, "-j RETURN") for match in local_pod_matches(family, node.local_detector))
    yield f"{FROM_NODE} -j RETURN"
    yield f"-m set --match-set {sets.set_name(family, dropped)} dst,dst -j DROP"


def _firewall(family: Family, node: NodeContext, features: Features) -> Iterator[str]:
    def name(word: str) -> str:
        return sets.set_name(family, word)

    yield f"-m set --match-set {name(sets.RESTRICTED)} dst,dst -m set ! --match-set {name(sets.SOURCES)} dst,dst,src -j DROP"
    yield f"-m set --match-set {name(sets.REJECT)} dst,dst -j {REFUSE}"
    yield f"-m set --match-set {name(sets.SELF)} dst,dst -g {FIREWALL_SELF}"
    yield f"-m set --match-set {name(sets.DROP)} dst,dst -j DROP"
    for match in _own_node_port_matches(family, node, features):
        yield f"{match} -j {FIREWALL_NODE_PORTS}"
    yield f"-m set --match-set {name(sets.CLUSTER_IPS)} dst -j {REFUSE}"
    for network in node.service_cidrs:
        if network.family is family:
            yield f"-d {network} -j DROP"
