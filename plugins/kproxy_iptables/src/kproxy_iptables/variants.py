"""Which variant of iptables the host uses: the one to write to, since those who use the one do not see the rules of the other."""

from collections.abc import Iterable, Mapping
from typing import Final

from attrs import frozen

from kproxy_iptables.objects import CHAIN_PREFIX

NFT: Final = "nf_tables"
LEGACY: Final = "legacy"
KUBELET_CHAINS: Final = ("KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY")
"""Kubelet makes the first since Kubernetes 1.24 so that others find out which variant it uses, and had the second before."""


@frozen(kw_only=True)
class Holding:
    """What one variant holds: whether kubelet's chains are there, how many rules of others, and which chains of ours by table."""

    installed: bool = True
    hinted: bool = False
    rules: int = 0
    ours: tuple[str, ...] = ()


@frozen(kw_only=True)
class Choice:
    """The variant that the host uses, and how that is known, as a sentence's end."""

    variant: str
    reason: str


def holding(saved: Iterable[tuple[str, str]]) -> Holding:
    """Sum up what iptables-save prints: pairs of where (``IPv4 nat``) and the text."""
    hinted, rules, ours = False, 0, []
    for where, text in saved:
        hinted |= any(f":{chain} " in text for chain in KUBELET_CHAINS)
        lines = text.split("\n")
        chains = sum(line.startswith(f":{CHAIN_PREFIX}") for line in lines)
        rules += sum(line.startswith("-A ") and CHAIN_PREFIX not in line for line in lines)
        if chains:
            ours.append(f"{chains} chains in {where}")
    return Holding(hinted=hinted, rules=rules, ours=tuple(ours))


def choose(holdings: Mapping[str, Holding], default: str) -> Choice | None:
    """Choose: kubelet's hint, then where others have more rules, then where ours are, then what plain ``iptables`` is.

    None when neither is installed.
    """
    installed = {variant: held for variant, held in holdings.items() if held.installed}
    if not installed:
        return None
    if len(installed) == 1:
        return Choice(variant=next(iter(installed)), reason="the other one is not installed")
    nft, legacy = installed[NFT], installed[LEGACY]
    if nft.hinted != legacy.hinted:
        return Choice(variant=NFT if nft.hinted else LEGACY, reason="kubelet has its chains there")
    if nft.rules != legacy.rules:
        variant = NFT if nft.rules > legacy.rules else LEGACY
        return Choice(variant=variant, reason=f"{max(nft.rules, legacy.rules)} rules of others are there")
    if bool(nft.ours) != bool(legacy.ours):
        return Choice(variant=NFT if nft.ours else LEGACY, reason="kproxy's rules are there")
    return Choice(variant=default if default in installed else NFT, reason="the program iptables is of this variant")
