"""What this node offers: which variant of iptables it uses, which families, matches, targets and types of sets it has."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from attrs import evolve

from kproxy_core.kernel import sysctl
from kproxy_core.kernel.errors import KernelError, PermissionDeniedError
from kproxy_core.kernel.ipset import IpSetSocket
from kproxy_core.kernel.iptables import IptablesError, IptablesPrograms, Variant, plain_variant
from kproxy_core.model.addresses import Family
from kproxy_core.plugin.backend import Finding, Support
from kproxy_iptables.objects import TABLES
from kproxy_iptables.scaffold import Features
from kproxy_iptables.trials import RANDOM_FULLY, Trial, trial_sets, trials
from kproxy_iptables.variants import Choice, Holding, choose, holding

LOCK_PATIENCE: Final = 5
"""Seconds to wait for the lock of the legacy tables at a time; then it is reported, and tried again later."""
_IPV6_INTERFACES: Final = Path("/proc/net/if_inet6")
_BE_LIBERAL: Final = "net/netfilter/nf_conntrack_tcp_be_liberal"
log = logging.getLogger("kproxy.iptables")
_NOT_INSTALLED: Final = "install the package iptables (it brings ip6tables, too)"
_RIGHTS: Final = "run as root, or with CAP_NET_ADMIN and CAP_NET_RAW in the network namespace's user namespace"
_NO_RAW_SOCKET: Final = "Can't open socket"
"""What iptables' extension for sets says; it asks about them by a raw socket."""


def families_of_kernel() -> tuple[Family, ...]:
    """The families that this kernel has; without IPv6, IPv4 is to be served all the same."""
    return tuple(family for family in Family if family is Family.IPV4 or _IPV6_INTERFACES.exists())


def look(variant: Variant) -> Holding:
    """What a variant holds in the current network namespace.

    Raises IptablesError.
    """
    with IptablesPrograms(variant) as programs:
        if not programs.has(Family.IPV4):
            return Holding(installed=False)
        families = [family for family in families_of_kernel() if programs.has(family)]
        # Kubelet has its chains in mangle.
        return holding(
            (f"{family.label} {table} ({variant.value})", programs.save(family, table))
            for family in families
            for table in (*TABLES, "mangle")
        )


def chosen(wanted: str | None) -> tuple[Choice | None, dict[str, Holding]]:
    """The variant that this host uses (or the wanted one), and what each holds.

    Raises IptablesError.
    """
    holdings = {variant.value: look(variant) for variant in Variant}
    if wanted is not None:
        return (Choice(variant=wanted, reason="it was chosen so") if holdings[wanted].installed else None), holdings
    default = plain_variant(Family.IPV4)
    return choose(holdings, default.value if default is not None else ""), holdings


def features_here(wanted: Features, programs: IptablesPrograms) -> Features:
    """What is wanted, less what this node has not."""
    families = frozenset(family for family in families_of_kernel() if programs.has(family) and _translates(programs, family))
    can_randomise = programs.restore(Family.IPV4, (RANDOM_FULLY.text,), wait=LOCK_PATIENCE, test=True)
    return evolve(
        wanted,
        families=families,
        random_fully=can_randomise.ok or bool(can_randomise.lock_remedy),
        drop_invalid=wanted.drop_invalid and not _is_liberal(),
    )


def _translates(programs: IptablesPrograms, family: Family) -> bool:
    """Whether the kernel has a nat table of a family. Without that of IPv6, IPv4 is to be served all the same."""
    done = programs.restore(family, ("*nat\nCOMMIT\n",), wait=LOCK_PATIENCE, test=True)
    if not done.ok and not done.lock_remedy and family is Family.IPV6:
        log.warning("%s is not served: %s", family.label, done.message.splitlines()[0])
        return False
    return True


def _is_liberal() -> bool:
    try:
        return sysctl.read(_BE_LIBERAL) == "1"
    except KernelError:
        return False


# -- probing


def probe(wanted: str | None) -> Support:
    """Look for the programs, say which variant it would be, try each set type, match and target, and leave nothing behind."""
    try:
        choice, holdings = chosen(wanted)
    except IptablesError as error:
        return Support(findings=(Finding(name="iptables", ok=False, message=str(error), remedy=_RIGHTS),))
    if choice is None:
        words = f"iptables{f' ({wanted})' if wanted else ''} is not installed"
        return Support(findings=(Finding(name="iptables", ok=False, message=words, remedy=_NOT_INSTALLED),))
    return Support(findings=tuple(_findings(choice, holdings)))


def _findings(choice: Choice, holdings: dict[str, Holding]) -> Iterator[Finding]:
    yield Finding(name="iptables", ok=True, message=f"the variant {choice.variant} is used: {choice.reason}")
    yield from _leftovers(choice, holdings)
    with IptablesPrograms(Variant(choice.variant)) as programs:
        for family in families_of_kernel():
            if programs.has(family):
                yield from _tried(programs, family)
            else:
                message = f"no programs for {family.label}: it is not served"
                yield Finding(name="ip6tables", ok=False, message=message, remedy=_NOT_INSTALLED, fatal=False)


def _leftovers(choice: Choice, holdings: dict[str, Holding]) -> Iterator[Finding]:
    for variant, held in holdings.items():
        if variant != choice.variant and held.ours:
            message = f"the variant {variant} still has {', '.join(held.ours)}, which the kernel obeys, too"
            remedy = "kproxy run removes them as soon as its rules are in force, kproxy cleanup removes all"
            yield Finding(name="other variant", ok=False, message=message, remedy=remedy, fatal=False)


def _tried(programs: IptablesPrograms, family: Family) -> Iterator[Finding]:
    made: list[str] = []
    try:
        with IpSetSocket() as socket:
            try:
                for wanted in trial_sets(family):
                    socket.create(wanted, exclusive=False)
                    made.append(wanted.name)
                    timeouts = "" if wanted.timeout is None else " with timeouts"
                    yield Finding(name=f"{family.label} {wanted.type.value}{timeouts}", ok=True, message="works")
                yield from (_finding(programs, family, trial) for trial in trials(family))
            finally:
                for name in made:
                    socket.destroy(name)
    except KernelError as error:
        remedy = _RIGHTS if isinstance(error, PermissionDeniedError) else "use a kernel with the modules ip_set and ip_set_hash_*"
        yield Finding(name=f"{family.label} ipset", ok=False, message=str(error), remedy=remedy)


def _finding(programs: IptablesPrograms, family: Family, trial: Trial) -> Finding:
    done = programs.restore(family, (trial.text,), wait=LOCK_PATIENCE, test=True)
    name = f"{family.label} {trial.name}"
    if done.ok:
        return Finding(name=name, ok=True, message="works")
    remedy = done.lock_remedy or (_RIGHTS if _NO_RAW_SOCKET in done.message else trial.remedy)
    return Finding(name=name, ok=False, message=done.message.splitlines()[0], remedy=remedy, fatal=trial.fatal)
