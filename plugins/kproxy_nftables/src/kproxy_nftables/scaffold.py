"""What is there once per node: the tables, their sets, and the base chains that lead each new connection to its action.

All chains are of type nat: the kernel asks them about the first packet of a connection only, so that established traffic meets no
rule of ours. Hooks and priorities are those of destination and source NAT (``dstnat`` -100, ``srcnat`` 100), as in kube-proxy.
"""

from collections.abc import Iterable
from typing import Final

from kproxy_core.model.addresses import Address, Family, Network
from kproxy_core.model.state import NodeContext
from kproxy_core.wire import nft_data
from kproxy_core.wire.nft_constants import CompareOp, CtKey, CtStatus, FibFlag, FibResult, MetaKey, NatFlag, Register, RouteType
from kproxy_core.wire.nft_constants import Hook as HookNumber
from kproxy_core.wire.nft_expressions import (
    Bitwise,
    Compare,
    CtLoad,
    Fib,
    Lookup,
    Masquerade,
    MetaLoad,
    MetaSet,
    verdict,
)
from kproxy_nftables import sets
from kproxy_nftables.actions import REJECT_CHAIN, reject_chain
from kproxy_nftables.objects import FAMILY_NAMES, Chain, Hook, Key, Rule, Value, number, table_value
from kproxy_nftables.registers import (
    RESTORE_MARK,
    Expressions,
    R,
    compare_network,
    destination,
    find,
    frontend_key,
    node_port_key,
    pass_through_mark,
    set_mark_bit,
    source,
    unless_local,
    words,
)

PREROUTING: Final = "prerouting"
OUTPUT: Final = "output"
POSTROUTING: Final = "postrouting"
NODE_PORTS: Final = "node-ports"
NODE_PORTS_FROM_NODE: Final = "node-ports-from-node"

_DSTNAT: Final = -100
_SRCNAT: Final = 100
_LOOPBACK: Final = {
    Family.IPV4: Network(Address(b"\x7f\0\0\0"), 8),
    Family.IPV6: Network(Address(bytes(15) + b"\x01"), 128),
}


def scaffold(node: NodeContext, families: Iterable[Family] = Family, flags: int = 0) -> dict[Key, Value]:
    """Render the families' tables, with these flags, without any Service."""
    result: dict[Key, Value] = {}
    for family in families:
        name = FAMILY_NAMES[family]
        result[name, "table"] = table_value(flags)
        result.update(sets.shapes(family))
        result.update({(f"{name} chain", chain): content for chain, content in _chains(family, node).items()})
        for address in node.node_port_addresses:
            if address.family is family and not node.node_port_any:
                result[f"{name} {sets.NODE_PORT_IPS}", bytes(address)] = b""
    return result


def _chains(family: Family, node: NodeContext) -> dict[str, Chain]:
    outside = unless_local(family, node.local_detector)
    to_node_ports = _to_node_port_address(family, node.node_port_any)
    return {
        REJECT_CHAIN: reject_chain(family),
        NODE_PORTS: Chain(
            rules=(
                _dispatch(sets.OUTSIDE_NODE_PORT_ACTIONS, sets.NODE_PORT_DISPATCH, node_port_key(), outside),
                _dispatch(sets.NODE_PORT_ACTIONS, sets.NODE_PORT_DISPATCH, node_port_key()),
            )
        ),
        NODE_PORTS_FROM_NODE: Chain(rules=(_dispatch(sets.NODE_PORT_ACTIONS, sets.NODE_PORT_DISPATCH, node_port_key()),)),
        PREROUTING: Chain(
            hook=Hook(number=HookNumber.PREROUTING, priority=_DSTNAT),
            rules=(
                _dispatch(sets.OUTSIDE_ACTIONS, sets.DISPATCH, frontend_key(family), outside),
                _dispatch(sets.ACTIONS, sets.DISPATCH, frontend_key(family)),
                Rule(expressions=(*to_node_ports, verdict(nft_data.jump(NODE_PORTS)))),
                *_unserved(family, node.service_cidrs),
            ),
        ),
        OUTPUT: Chain(
            hook=Hook(number=HookNumber.OUTPUT, priority=_DSTNAT),
            rules=(
                _dispatch(sets.ACTIONS, sets.DISPATCH, frontend_key(family)),
                Rule(expressions=(*to_node_ports, verdict(nft_data.jump(NODE_PORTS_FROM_NODE)))),
                *_unserved(family, node.service_cidrs),
            ),
        ),
        POSTROUTING: Chain(
            hook=Hook(number=HookNumber.POSTROUTING, priority=_SRCNAT),
            rules=(_hairpin(family, node.masquerade_bit), _masquerade(node.masquerade_bit)),
        ),
    }


def _dispatch(actions: str, dispatch: str, key: Expressions, condition: Expressions = ()) -> Rule:
    """Go to the action of the packet's frontend, if it is one."""
    return Rule(
        expressions=(
            *condition,
            *find(key, actions, R[6]),
            *pass_through_mark(R[6], R[7]),
            RESTORE_MARK,
            Lookup(set_name=dispatch, sreg=R[7], dreg=Register.VERDICT),
        )
    )


def _to_node_port_address(family: Family, any_address: bool) -> Expressions:
    if not any_address:
        return (destination(family, R[0]), Lookup(set_name=sets.NODE_PORT_IPS, sreg=R[0]))
    local = number(RouteType.LOCAL)
    return (
        Fib(dreg=R[0], result=FibResult.ADDRTYPE, flags=FibFlag.DADDR),
        Compare(sreg=R[0], data=local),
        destination(family, R[0]),
        *compare_network(_LOOPBACK[family], CompareOp.NEQ),
    )


def _unserved(family: Family, service_cidrs: tuple[Network, ...]) -> tuple[Rule, ...]:
    """Refuse other ports of cluster addresses in use, drop what goes to unused ones (as kube-proxy's nftables mode)."""
    return (
        Rule(
            expressions=(
                destination(family, R[0]),
                Lookup(set_name=sets.CLUSTER_IPS, sreg=R[0]),
                verdict(nft_data.goto(REJECT_CHAIN)),
            ),
            comment="a port that this service address does not serve",
        ),
        *(
            Rule(
                expressions=(destination(family, R[0]), *compare_network(cidr, CompareOp.EQ), verdict(nft_data.DROP)),
                comment="a service address that nobody has",
            )
            for cidr in service_cidrs
            if cidr.family is family
        ),
    )


def _hairpin(family: Family, bit: int) -> Rule:
    """Mark what comes back to the endpoint that sent it: it would otherwise answer itself directly, past the node."""
    return Rule(
        expressions=(
            CtLoad(dreg=R[0], key=CtKey.STATUS),
            Bitwise(sreg=R[0], dreg=R[0], mask=number(CtStatus.DNAT), xor=number(0)),
            Compare(sreg=R[0], op=CompareOp.NEQ, data=number(0)),
            source(family, R[0]),
            destination(family, R[words(family)]),
            Lookup(set_name=sets.HAIRPIN, sreg=R[0]),
            *set_mark_bit(bit),
        ),
        comment="an endpoint that reaches itself",
    )


def _masquerade(bit: int) -> Rule:
    """Masquerade what is marked, the mark taken off first: an encapsulated packet must not inherit it (kubernetes#88986)."""
    value = 1 << bit
    return Rule(
        expressions=(
            MetaLoad(dreg=R[0], key=MetaKey.MARK),
            Bitwise(sreg=R[0], dreg=R[1], mask=number(value), xor=number(0)),
            Compare(sreg=R[1], op=CompareOp.NEQ, data=number(0)),
            Bitwise(sreg=R[0], dreg=R[0], mask=number(0xFFFFFFFF ^ value), xor=number(0)),
            MetaSet(key=MetaKey.MARK, sreg=R[0]),
            Masquerade(flags=NatFlag.FULLY_RANDOM),
        )
    )
