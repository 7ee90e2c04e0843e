"""The way of a frontend's traffic to endpoints: straight into the chain that picks one, or through rules of its own before."""

from functools import lru_cache
from typing import Final

from attrs import frozen

from kproxy_core.model.addresses import Family
from kproxy_core.model.state import (
    Disposition,
    EndpointScope,
    Forward,
    FrontendKind,
    FrontendRule,
    LocalDetector,
    Masquerade,
    NodeContext,
)
from kproxy_iptables.origins import FROM_NODE, joined, local_pod_matches, mark, unmark
from kproxy_iptables.sets import SOURCES, set_name

STOP: Final = "-j ACCEPT"
"""Ends the way without an endpoint: the filter table drops or refuses whatever was not translated."""


@frozen
class Leading:
    """A rule that leads to the chain of an endpoint set: what it matches, and which set."""

    match: str
    scope: EndpointScope


Way = EndpointScope | tuple[str | Leading, ...] | None
"""An endpoint set; the rules of a chain, each whole or leading on; or None, where nobody is forwarded."""


@frozen(cache_hash=True)
class Site:
    """What ways depend on besides the Service port: the same for all of a node, and few of them."""

    family: Family
    detector: LocalDetector
    masquerade_bit: int
    masquerade_all: bool


@lru_cache(maxsize=16)
def _site(family: Family, detector: LocalDetector, masquerade_bit: int, masquerade_all: bool) -> Site:
    return Site(family, detector, masquerade_bit, masquerade_all)


def way(rule: FrontendRule, node: NodeContext, family: Family) -> Way:
    """The way of a frontend."""
    site = _site(family, node.local_detector, node.masquerade_bit, node.masquerade_all)
    by_origin = (rule.from_local_pod, rule.from_node, rule.from_outside)
    is_cluster_address = rule.frontend.kind is FrontendKind.CLUSTER_IP and rule.frontend.address is not None
    return _way(by_origin, rule.restricted, is_cluster_address, site)


@lru_cache(maxsize=1024)
def _way(by_origin: tuple[Disposition, ...], restricted: bool, is_cluster_address: bool, site: Site) -> Way:
    pods = local_pod_matches(site.family, site.detector)
    # Where local pods cannot be told from others, they are outside traffic.
    of_pods, of_node, of_outside = by_origin if pods else (by_origin[2], *by_origin[1:])
    scopes = {each.scope if isinstance(each, Forward) else None for each in (of_pods, of_node, of_outside)}
    if scopes == {None}:
        return None
    if is_cluster_address and not restricted and len(scopes) == 1 and _is_marked_on_entry(of_pods, of_node, of_outside, site):
        return scopes.pop()
    rules: list[str | Leading] = []
    if restricted:
        rules.append(f"-m set ! --match-set {set_name(site.family, SOURCES)} dst,dst,src {STOP}")
    if any(isinstance(each, Forward) and each.masquerade is Masquerade.HAIRPIN_ONLY for each in (of_pods, of_node, of_outside)):
        # An external address may be somebody's cluster address, too, for which the packet has been marked on entry.
        rules.append(unmark(site.masquerade_bit))
    if not of_pods == of_node == of_outside:
        for match in pods:
            rules += _send(match, of_pods, site)
    if of_node != of_outside:
        rules += _send(FROM_NODE, of_node, site)
    return (*rules, *_send("", of_outside, site))


def _send(match: str, disposition: Disposition, site: Site) -> list[str | Leading]:
    if not isinstance(disposition, Forward):
        return [joined(match, STOP)]
    marking = [joined(match, mark(site.masquerade_bit))] if disposition.masquerade is Masquerade.ALWAYS else []
    return [*marking, Leading(match, disposition.scope)]


def _is_marked_on_entry(of_pods: Disposition, of_node: Disposition, of_outside: Disposition, site: Site) -> bool:
    """Whether the rules for all cluster addresses (see scaffold) mark just who is to be masqueraded here."""
    marked = [isinstance(each, Forward) and each.masquerade is Masquerade.ALWAYS for each in (of_pods, of_node, of_outside)]
    if site.masquerade_all:
        return all(marked)
    if local_pod_matches(site.family, site.detector):
        return marked == [False, True, True]
    return not any(marked)
