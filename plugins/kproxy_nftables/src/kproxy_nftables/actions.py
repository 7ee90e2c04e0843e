"""Actions: what may happen to a connection, each with a number that frontends refer to and a chain that does it.

An action depends on no Service: all Services with three endpoints and the same policies share one chain. So the number of
chains and rules depends on how many kinds of Service there are, not on how many Services, and the verdict maps are small.
"""

import enum
from functools import lru_cache
from typing import Final

from attrs import frozen

from kproxy_core.model.addresses import Family
from kproxy_core.model.names import Protocol
from kproxy_core.model.state import EndpointScope, LocalDetector
from kproxy_core.wire import nft_data
from kproxy_core.wire.nft_constants import (
    ICMP_PORT_UNREACHABLE,
    ICMPV6_PORT_UNREACHABLE,
    DynsetOp,
    MetaKey,
    NatType,
    RejectType,
)
from kproxy_core.wire.nft_expressions import (
    Compare,
    Dynset,
    Lookup,
    MetaLoad,
    Nat,
    Numgen,
    Reject,
    verdict,
)
from kproxy_nftables import sets
from kproxy_nftables.objects import Chain, Rule
from kproxy_nftables.registers import (
    ID,
    RESTORE_MARK,
    Expressions,
    R,
    find,
    frontend_key,
    node_port_key,
    pass_through_mark,
    set_mark_bit,
    source,
    unless_local,
    words,
)

REJECT_CHAIN: Final = "refuse"
"""Not ``reject``: that is a word of nft's language, so nobody could ask nft for a chain of that name."""

MAX_STICKY_SLOTS: Final = 2047
"""Endpoints that a sticky Service port uses at most: count and timeout share the action's 32 bits."""

_FLAG_COMBINATIONS: Final = 12
_TIMEOUTS: Final = 86401
_FIRST_FORWARD: Final = 16


class Mark(enum.IntEnum):
    """When a connection is marked for masquerading, hairpin aside."""

    NEVER = 0
    UNLESS_LOCAL_POD = 1
    ALWAYS = 2


class Ending(enum.IntEnum):
    """Actions that need no endpoint."""

    DROP = 1
    REJECT = 2
    REJECT_RESTRICTED = 3


@frozen(kw_only=True, cache_hash=True)
class Pick:
    """Forward to one of ``count`` endpoints.

    ``timeout`` is the session affinity's in seconds (1 to 86400), 0 without. ``restricted``: the source ranges are asked first.
    """

    count: int
    scope: EndpointScope
    mark: Mark
    restricted: bool = False
    timeout: int = 0


Action = Pick | Ending


def action_number(action: Action) -> int:
    """Return the 32-bit number of an action, a different one for each."""
    if isinstance(action, Ending):
        return int(action)
    flags = action.mark * 4 + (action.scope is EndpointScope.LOCAL) * 2 + action.restricted
    if not action.timeout:
        return _FIRST_FORWARD + action.count * _FLAG_COMBINATIONS + flags
    return (1 << 31) + (action.count * _TIMEOUTS + action.timeout) * _FLAG_COMBINATIONS + flags


def action_of(number: int) -> Action | None:
    """Return the action that has a number; None if there is no such action."""
    if number < _FIRST_FORWARD:
        return Ending(number) if number in set(Ending) else None
    sticky = number >> 31
    rest, flags = divmod(number - (1 << 31 if sticky else _FIRST_FORWARD), _FLAG_COMBINATIONS)
    count, timeout = divmod(rest, _TIMEOUTS) if sticky else (rest, 0)
    mark, scope_and_restriction = divmod(flags, 4)
    scope = EndpointScope.LOCAL if scope_and_restriction & 2 else EndpointScope.CLUSTER
    return Pick(count=count, scope=scope, mark=Mark(mark), restricted=bool(scope_and_restriction & 1), timeout=timeout)


def chain_name(action: Action, node_port: bool) -> str:
    """Return the name of the action's chain, for people: ``pick-3-local-masquerade-unless-pod``."""
    prefix = "node-port-" if node_port else ""
    if isinstance(action, Ending):
        return REJECT_CHAIN if action is Ending.REJECT else f"{prefix}{action.name.lower().replace('_', '-')}"
    parts = ["pick", str(action.count)]
    parts += ["local"] if action.scope is EndpointScope.LOCAL else []
    parts += {Mark.NEVER: [], Mark.UNLESS_LOCAL_POD: ["masquerade-unless-pod"], Mark.ALWAYS: ["masquerade"]}[action.mark]
    parts += ["restricted"] if action.restricted else []
    parts += [f"sticky-{action.timeout}"] if action.timeout else []
    return prefix + "-".join(parts)


def action_verdict(action: Action, node_port: bool) -> nft_data.Verdict:
    """Return what the dispatch map holds for the action."""
    return nft_data.DROP if action is Ending.DROP else nft_data.goto(chain_name(action, node_port))


@frozen(kw_only=True, cache_hash=True)
class Site:
    """What the rules of an action depend on besides it."""

    family: Family
    node_port: bool
    detector: LocalDetector
    masquerade_bit: int

    @property
    def key(self) -> Expressions:
        """Load the frontend's key into R0 onwards."""
        return node_port_key() if self.node_port else frontend_key(self.family)

    @property
    def services(self) -> str:
        """The map from frontends to ids."""
        return sets.NODE_PORT_SERVICES if self.node_port else sets.SERVICES


@lru_cache(maxsize=4096)
def action_chain(action: Action, site: Site) -> Chain | None:
    """Return the chain of an action; None for those that need none of their own."""
    match action:
        case Ending.DROP | Ending.REJECT:
            return None
        case Ending.REJECT_RESTRICTED:
            return Chain(rules=(_restrict(site), Rule(expressions=(verdict(nft_data.goto(REJECT_CHAIN)),))))
        case Pick():
            return Chain(rules=_pick_rules(action, site))


def reject_chain(family: Family) -> Chain:
    """Return the chain that refuses: RST for TCP, since an ICMP error alone is lost on a socket that is locked."""
    icmp_code = ICMP_PORT_UNREACHABLE if family is Family.IPV4 else ICMPV6_PORT_UNREACHABLE
    is_tcp = (MetaLoad(dreg=R[0], key=MetaKey.L4PROTO), Compare(sreg=R[0], data=bytes([Protocol.TCP])))
    return Chain(
        rules=(
            Rule(expressions=(*is_tcp, Reject(type=RejectType.TCP_RST))),
            Rule(expressions=(Reject(type=RejectType.ICMP_UNREACH, code=icmp_code),)),
        )
    )


def _pick_rules(pick: Pick, site: Site) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    if pick.restricted:
        rules.append(_restrict(site))
    if pick.mark is not Mark.NEVER:
        condition = unless_local(site.family, site.detector) if pick.mark is Mark.UNLESS_LOCAL_POD else ()
        rules.append(Rule(expressions=(*condition, *set_mark_bit(site.masquerade_bit)), comment="to be masqueraded"))
    if pick.timeout:
        rules += [_sticky_hit(pick, site), _sticky_miss(pick, site, remember=True), _sticky_miss(pick, site, remember=False)]
    else:
        rules.append(_pick_at_random(pick, site))
    # A packet may have found the action before a commit, and the id after it, of an address that has changed hands. What goes on
    # untranslated would be so for the whole connection; what is dropped is sent again.
    rules.append(Rule(expressions=(verdict(nft_data.DROP),), comment="no such endpoint"))
    return tuple(rules)


def _id(site: Site) -> Expressions:
    return find(site.key, site.services, ID)


def _restrict(site: Site) -> Rule:
    return Rule(
        expressions=(
            *_id(site),
            *pass_through_mark(ID, R[0]),
            RESTORE_MARK,
            source(site.family, R[1]),
            Lookup(set_name=sets.SOURCE_RANGES, sreg=R[0], flags=1),
            verdict(nft_data.DROP),
        ),
        comment="not in loadBalancerSourceRanges",
    )


def _pick_at_random(pick: Pick, site: Site) -> Rule:
    endpoints = sets.ENDPOINTS if pick.scope is EndpointScope.CLUSTER else sets.LOCAL_ENDPOINTS
    return Rule(
        expressions=(
            *_id(site),
            *pass_through_mark(ID, R[6]),
            RESTORE_MARK,
            Numgen(dreg=R[7], modulus=pick.count),
            Lookup(set_name=endpoints, sreg=R[6], dreg=R[0]),
            _dnat(site.family, 0),
        )
    )


def _dnat(family: Family, register: int) -> Nat:
    return Nat(type=NatType.DNAT, family=family, address=R[register], port=R[register + words(family)])


def _sticky_maps(pick: Pick) -> tuple[str, str]:
    if pick.scope is EndpointScope.CLUSTER:
        return sets.STICKY_SLOTS, sets.STICKY_ENDPOINTS
    return sets.LOCAL_STICKY_SLOTS, sets.LOCAL_STICKY_ENDPOINTS


def _sticky_endpoint(endpoints: str, register: int) -> Expressions:
    """Look up the endpoint of ``id . number in register``; the rule ends here when it is none of this Service port's any more."""
    return (
        *pass_through_mark(register, R[7]),
        *pass_through_mark(ID, R[6]),
        RESTORE_MARK,
        Lookup(set_name=endpoints, sreg=R[6], dreg=R[8]),
    )


def _sticky_hit(pick: Pick, site: Site) -> Rule:
    """Send a remembered client where it went before, and remember it for another timeout, if its endpoint is still usable."""
    _, endpoints = _sticky_maps(pick)
    return Rule(
        expressions=(
            *_id(site),
            *pass_through_mark(ID, R[0]),
            RESTORE_MARK,
            source(site.family, R[1]),
            Lookup(set_name=sets.AFFINITY, sreg=R[0], dreg=R[5]),
            *_sticky_endpoint(endpoints, R[5]),
            _remember(pick, DynsetOp.UPDATE),
            _dnat(site.family, 8),
        ),
        comment="a client that is known",
    )


def _sticky_miss(pick: Pick, site: Site, remember: bool) -> Rule:
    """Pick at random and remember, or, where nothing more can be remembered, just pick."""
    slots, endpoints = _sticky_maps(pick)
    # An update keeps the old value, so what may be left of a vanished endpoint goes first.
    note = (_remember(pick, DynsetOp.DELETE), _remember(pick, DynsetOp.ADD)) if remember else ()
    return Rule(
        expressions=(
            *_id(site),
            *pass_through_mark(ID, R[0], R[6]),
            RESTORE_MARK,
            source(site.family, R[1]),
            Numgen(dreg=R[7], modulus=pick.count),
            Lookup(set_name=slots, sreg=R[6], dreg=R[5]),
            *_sticky_endpoint(endpoints, R[5]),
            *note,
            _dnat(site.family, 8),
        ),
        comment="a client that is new" if remember else "a client too many to remember",
    )


def _remember(pick: Pick, op: DynsetOp) -> Dynset:
    timeout = 0 if op is DynsetOp.DELETE else pick.timeout * 1000
    return Dynset(set_name=sets.AFFINITY, op=op, key=R[0], data=R[7], timeout=timeout)
