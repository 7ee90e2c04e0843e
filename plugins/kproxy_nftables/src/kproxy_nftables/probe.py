"""Tries on the kernel what this mode needs, in transactions that take everything back themselves."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from kproxy_core.kernel.errors import KernelError, PermissionDeniedError
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.model.addresses import Family
from kproxy_core.model.state import EndpointScope, NodeContext
from kproxy_core.plugin.backend import Finding, Support
from kproxy_core.wire import nft_objects
from kproxy_core.wire.nfnetlink import Family as NetlinkFamily
from kproxy_core.wire.nft_operations import Operation, add, delete
from kproxy_nftables import sets
from kproxy_nftables.actions import Mark, Pick, Site, action_chain, reject_chain
from kproxy_nftables.objects import FAMILY_NAMES, Chain, Rule
from kproxy_nftables.scaffold import OUTPUT, POSTROUTING, PREROUTING, scaffold

_IPV6_SWITCH: Final = Path("/proc/net/if_inet6")


@frozen(kw_only=True)
class _Feature:
    name: str
    chains: tuple[Chain, ...]
    with_sets: bool = True
    remedy: str


def probe() -> Support:
    """Try each feature in each family; IPv6 is not asked for where the kernel runs without it."""
    try:
        with NftSocket() as socket:
            families = [family for family in Family if family is Family.IPV4 or _IPV6_SWITCH.exists()]
            return Support(findings=tuple(_try(socket, family, feature) for family in families for feature in _features(family)))
    except KernelError as error:
        return Support(findings=(_unreachable(error),))


def _unreachable(error: KernelError) -> Finding:
    remedy = "use a kernel with CONFIG_NF_TABLES"
    if isinstance(error, PermissionDeniedError):
        remedy = "run as root, or with CAP_NET_ADMIN in the network namespace's user namespace"
    return Finding(name="nf_tables", ok=False, message=str(error), remedy=remedy)


def _features(family: Family) -> Iterable[_Feature]:
    chains = {str(name): value for (_, name), value in scaffold(NodeContext()).items() if isinstance(value, Chain)}
    everywhere = {
        str(name): value
        for (place, name), value in scaffold(NodeContext(node_port_any=True)).items()
        if isinstance(value, Chain) and place == f"{FAMILY_NAMES[family]} chain"
    }
    hook = chains[PREROUTING].hook
    site = Site(family=family, node_port=False, detector=None, masquerade_bit=14)
    pick = Pick(count=2, scope=EndpointScope.CLUSTER, mark=Mark.ALWAYS)

    def hooked(chain: Chain | None) -> tuple[Chain, ...]:
        return (Chain(rules=() if chain is None else chain.rules, hook=hook),)

    yield _Feature(
        name="nat chains",
        chains=tuple(Chain(rules=(), hook=chains[name].hook) for name in (PREROUTING, OUTPUT, POSTROUTING)),
        with_sets=False,
        remedy="load nf_tables and nft_chain_nat (CONFIG_NF_TABLES, CONFIG_NFT_NAT)",
    )
    yield _Feature(name="sets and maps", chains=(), remedy="use Linux 5.6 or later: sets of concatenated ranges are needed")
    yield _Feature(
        name="picking at random",
        chains=hooked(action_chain(pick, site)),
        remedy="load nft_numgen and nft_nat (CONFIG_NFT_NUMGEN)",
    )
    yield _Feature(
        name="session affinity",
        chains=hooked(action_chain(evolve(pick, timeout=10), site)),
        remedy="use Linux 5.6 or later: rules must be able to delete set elements",
    )
    yield _Feature(
        name="rejecting before routing",
        chains=hooked(reject_chain(family)),
        with_sets=False,
        remedy="load nft_reject (CONFIG_NFT_REJECT), Linux 5.9 or later",
    )
    yield _Feature(
        name="masquerading", chains=(everywhere[POSTROUTING],), remedy="load nft_masq and nft_ct (CONFIG_NFT_MASQ, CONFIG_NFT_CT)"
    )
    yield _Feature(
        name="local addresses",
        chains=hooked(Chain(rules=_without_jumps(everywhere[PREROUTING].rules))),
        remedy="load nft_fib_ipv4 and nft_fib_ipv6, needed only for NodePorts on every address (CONFIG_NFT_FIB)",
    )


def _without_jumps(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Leave out verdicts: the chains they lead to are not part of the trial."""
    return tuple(
        evolve(rule, expressions=tuple(expression for expression in rule.expressions if expression.NAME != "immediate"))
        for rule in rules
    )


def _try(socket: NftSocket, family: Family, feature: _Feature) -> Finding:
    label = f"{feature.name} ({family.label})"
    result = socket.commit(_trial(family, feature))
    if result.ok:
        return Finding(name=label, ok=True, message="works")
    error = result.errors[0]
    remedy = feature.remedy
    if error.error in (1, 13):
        remedy = "run as root, or with CAP_NET_ADMIN in the network namespace's user namespace"
    words = f" ({error.text})" if error.text else ""
    fatal = feature.name != "local addresses"
    return Finding(name=label, ok=False, message=os.strerror(error.error) + words, remedy=remedy, fatal=fatal)


def _trial(family: Family, feature: _Feature) -> list[Operation]:
    """Make a table of its own with the feature in it, and delete it in the same transaction."""
    netlink_family = NetlinkFamily(family)
    table = nft_objects.Table(family=netlink_family, name=f"kproxy-probe-{os.getpid()}")
    operations = [add(table)]
    if feature.with_sets:
        operations += [add(evolve(shape, table=table.name)) for shape in sets.shapes(family).values()]
    for index, chain in enumerate(feature.chains):
        name = f"probe-{index}"
        base = None
        if chain.hook is not None:
            base = nft_objects.BaseChain(type="nat", hook=chain.hook.number, priority=chain.hook.priority)
        operations.append(add(nft_objects.Chain(family=netlink_family, table=table.name, name=name, base=base)))
        operations += [
            add(nft_objects.Rule(family=netlink_family, table=table.name, chain=name, expressions=rule.expressions))
            for rule in chain.rules
        ]
    return [*operations, delete(table)]
