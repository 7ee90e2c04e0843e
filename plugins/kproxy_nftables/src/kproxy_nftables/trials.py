"""What to try on a kernel to know whether this mode works there: transactions that take everything back themselves."""

from collections.abc import Iterable, Sequence
from typing import Final

from attrs import evolve, frozen

from kproxy_core.model.addresses import Family
from kproxy_core.model.state import EndpointScope, NodeContext
from kproxy_core.wire import nft_objects
from kproxy_core.wire.nfnetlink import Family as NetlinkFamily
from kproxy_core.wire.nft_expressions import Immediate
from kproxy_core.wire.nft_operations import Operation, add, delete
from kproxy_nftables import sets
from kproxy_nftables.actions import Mark, Pick, Site, action_chain, reject_chain
from kproxy_nftables.objects import FAMILY_NAMES, HELD, Chain, Rule
from kproxy_nftables.scaffold import OUTPUT, POSTROUTING, PREROUTING, scaffold

_TABLE: Final = "kproxy-probe"


@frozen(kw_only=True)
class _Feature:
    name: str
    chains: tuple[Chain, ...]
    remedy: str
    with_sets: bool = True
    fatal: bool = True


@frozen(kw_only=True)
class Trial:
    """A transaction to commit. If it is refused, ``remedy`` says what to do; ``fatal`` if the mode cannot do without."""

    name: str
    operations: tuple[Operation, ...]
    remedy: str
    fatal: bool


def holding(family: Family) -> Trial:
    """Return what to try to know whether tables can be kept out of a foreign flush."""
    table = nft_objects.Table(family=NetlinkFamily(family), name=_TABLE, flags=HELD)
    return Trial(
        name=f"tables that no foreign flush removes ({family.label})",
        operations=(add(table), delete(table)),
        remedy="use Linux 6.9 or later; on this one a flush of all rules is repaired within a second, and resets connections",
        fatal=False,
    )


def trials(families: Iterable[Family]) -> tuple[Trial, ...]:
    """Return what to try in these families."""
    return tuple(trial for family in families for trial in (*_trials(family), holding(family)))


def _trials(family: Family) -> Iterable[Trial]:
    return (
        Trial(
            name=f"{feature.name} ({family.label})",
            operations=tuple(_operations(family, feature)),
            remedy=feature.remedy,
            fatal=feature.fatal,
        )
        for feature in _features(family)
    )


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
        fatal=False,
    )


def _without_jumps(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Leave out verdicts: the chains they lead to are not part of the trial."""
    return tuple(
        evolve(rule, expressions=tuple(expression for expression in rule.expressions if not isinstance(expression, Immediate)))
        for rule in rules
    )


def _operations(family: Family, feature: _Feature) -> list[Operation]:
    """Make a table of its own with the feature in it, and delete it in the same transaction."""
    netlink_family = NetlinkFamily(family)
    table = nft_objects.Table(family=netlink_family, name=_TABLE)
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
