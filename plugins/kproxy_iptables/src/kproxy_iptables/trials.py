"""What is tried to see whether a node can do this mode: one rule for each extension, and one set for each type."""

from collections.abc import Iterator
from typing import Final

from attrs import evolve, frozen

from kproxy_core.model.addresses import Family
from kproxy_core.wire.ipset import IpSet
from kproxy_iptables import sets
from kproxy_iptables.objects import SET_PREFIXES

TRIAL_CHAIN: Final = "KPROXY-TRIAL"
_MODULES: Final = "install the package iptables, and use a kernel with the module {}"


@frozen(kw_only=True)
class Trial:
    """A rule to be tried, in a table; what to do when it is refused; ``fatal`` ones this mode cannot do without."""

    name: str
    table: str
    rule: str
    remedy: str
    fatal: bool = True

    @property
    def text(self) -> str:
        """What iptables-restore is to be asked."""
        return f"*{self.table}\n:{TRIAL_CHAIN} - [0:0]\n-A {TRIAL_CHAIN} {self.rule}\nCOMMIT\n"


def trial_sets(family: Family) -> tuple[IpSet, ...]:
    """A set of each type that is used, under names that no other set has."""
    wanted = (*sets.definitions(family).values(), sets.clients_of(family, "trial", "trial"))
    by_type = {(each.type, each.timeout): each for each in wanted}
    return tuple(evolve(each, name=_trial_name(family, number)) for number, each in enumerate(by_type.values()))


def _trial_name(family: Family, number: int) -> str:
    return f"{SET_PREFIXES[family]}TRIAL-{number}"


RANDOM_FULLY: Final = Trial(
    name="MASQUERADE --random-fully",
    table="nat",
    rule="-j MASQUERADE --random-fully",
    remedy="iptables 1.6.2 and Linux 3.13 have it; without it two connections may race for one source port",
    fatal=False,
)


def trials(family: Family) -> Iterator[Trial]:
    """The rules to be tried; those about sets need :func:`trial_sets`."""
    address = "192.0.2.1:80" if family is Family.IPV4 else "[2001:db8::1]:80"
    first, clients = _trial_name(family, 0), trial_sets(family)[-1].name
    rules = (
        ("set", "nat", f"-m set --match-set {first} dst -j RETURN", "xt_set"),
        ("SET", "nat", f"-j SET --add-set {clients} src --exist --timeout 10", "xt_set"),
        ("statistic", "nat", "-m statistic --mode random --probability 0.50000000000 -j RETURN", "xt_statistic"),
        ("comment", "nat", '-m comment --comment "kproxy: a trial" -j RETURN', "xt_comment"),
        ("addrtype", "nat", "-m addrtype --dst-type LOCAL -j RETURN", "xt_addrtype"),
        ("conntrack", "nat", "-m conntrack --ctstate DNAT -j RETURN", "xt_conntrack"),
        ("mark", "nat", "-m mark --mark 0x4000/0x4000 -j RETURN", "xt_mark"),
        ("MARK", "nat", "-j MARK --set-xmark 0x4000/0x4000", "xt_mark"),
        ("tcp", "nat", "-p tcp -m tcp --dport 80 -j RETURN", "xt_tcpudp"),
        ("DNAT", "nat", f"-p tcp -j DNAT --to-destination {address}", "xt_nat"),
        ("MASQUERADE", "nat", "-j MASQUERADE", "xt_MASQUERADE"),
        ("REJECT", "filter", "-p tcp -j REJECT --reject-with tcp-reset", "ipt_REJECT"),
    )
    for name, table, rule, module in rules:
        yield Trial(name=name, table=table, rule=rule, remedy=_MODULES.format(module))
    yield Trial(
        name="sctp", table="nat", rule="-p sctp -m sctp --dport 80 -j RETURN", remedy=_MODULES.format("xt_sctp"), fatal=False
    )
    yield RANDOM_FULLY
