"""Pieces of rules: what they load into which register.

All rules use the sixteen 32-bit registers in the same way. R0 onwards holds the key of the first lookup (six registers for
IPv6), R14 the id of the Service port, R15 the packet's mark while the mark is borrowed.

Why borrowed: nft 1.0.6 aborts when it lists a rule in which one map's result is part of another lookup's key, for every user
of the host. So a result travels through ``meta mark``: saved, set, loaded again, restored, with nothing in between that could
end the rule. Kernels from 6.12 refuse rules that read a register which the same rule has not set, so each rule loads all it
needs.
"""

from typing import Final

from kproxy_core.model.addresses import Family, Network
from kproxy_core.model.state import LocalByInterface, LocalByNetwork, LocalDetector
from kproxy_core.wire.nft_constants import CompareOp, MetaKey, PayloadBase, Register
from kproxy_core.wire.nft_expressions import Bitwise, Compare, Lookup, MetaLoad, MetaSet, PayloadLoad
from kproxy_core.wire.nft_layout import Expression
from kproxy_nftables.objects import number

Expressions = tuple[Expression, ...]

R: Final = tuple(int(Register.R0) + i for i in range(16))
ID: Final = R[14]
SAVED_MARK: Final = R[15]

_SOURCE_OFFSET: Final = {Family.IPV4: 12, Family.IPV6: 8}
_DESTINATION_OFFSET: Final = {Family.IPV4: 16, Family.IPV6: 24}

SAVE_MARK: Final = MetaLoad(dreg=SAVED_MARK, key=MetaKey.MARK)
RESTORE_MARK: Final = MetaSet(key=MetaKey.MARK, sreg=SAVED_MARK)


def words(family: Family) -> int:
    """Return how many registers an address takes."""
    return family.bits // 32


def source(family: Family, register: int) -> PayloadLoad:
    """Load the source address."""
    return PayloadLoad(dreg=register, base=PayloadBase.NETWORK, offset=_SOURCE_OFFSET[family], length=family.bits // 8)


def destination(family: Family, register: int) -> PayloadLoad:
    """Load the destination address."""
    return PayloadLoad(dreg=register, base=PayloadBase.NETWORK, offset=_DESTINATION_OFFSET[family], length=family.bits // 8)


def _protocol_and_port(register: int) -> Expressions:
    return (
        MetaLoad(dreg=register, key=MetaKey.L4PROTO),
        PayloadLoad(dreg=register + 1, base=PayloadBase.TRANSPORT, offset=2, length=2),
    )


def frontend_key(family: Family) -> Expressions:
    """Load ``destination address . protocol . port`` into R0 onwards."""
    return (destination(family, R[0]), *_protocol_and_port(R[words(family)]))


def node_port_key() -> Expressions:
    """Load ``protocol . port`` into R0 and R1."""
    return _protocol_and_port(R[0])


def pass_through_mark(register: int, *targets: int) -> Expressions:
    """Copy a register into others by way of the mark, which must have been saved; it is left changed."""
    return (MetaSet(key=MetaKey.MARK, sreg=register), *(MetaLoad(dreg=target, key=MetaKey.MARK) for target in targets))


def find(key: Expressions, map_name: str, register: int) -> Expressions:
    """Save the mark, load a key into R0 and look it up; the rule ends here when it is not there."""
    return (SAVE_MARK, *key, Lookup(set_name=map_name, sreg=R[0], dreg=register))


def set_mark_bit(bit: int) -> Expressions:
    """Set one bit (0 to 31) of the packet's mark."""
    value = 1 << bit
    return (
        MetaLoad(dreg=R[0], key=MetaKey.MARK),
        Bitwise(sreg=R[0], dreg=R[0], mask=number(0xFFFFFFFF ^ value), xor=number(value)),
        MetaSet(key=MetaKey.MARK, sreg=R[0]),
    )


def unless_local(family: Family, detector: LocalDetector) -> Expressions:
    """Go on only for traffic that the detector does not call a local pod's.

    A detector that knows no network of this family tells nothing apart: everything goes on.
    """
    match detector:
        case None:
            return ()
        case LocalByInterface(name=name, prefix=prefix):
            data = name.encode() if prefix else name.encode() + b"\0"
            return (MetaLoad(dreg=R[0], key=MetaKey.IIFNAME), Compare(sreg=R[0], op=CompareOp.NEQ, data=data))
        case LocalByNetwork(networks=networks):
            return tuple(
                expression
                for network in networks
                if network.family is family
                for expression in (source(family, R[0]), *compare_network(network, CompareOp.NEQ))
            )


def compare_network(network: Network, op: CompareOp) -> Expressions:
    """Go on only if the address in R0 lies in the network (EQ), or outside of it (NEQ)."""
    size = len(network.address)
    bits = size * 8
    mask = ((1 << bits) - (1 << (bits - network.length))).to_bytes(size, "big")
    narrow = () if network.length == bits else (Bitwise(sreg=R[0], dreg=R[0], mask=mask, xor=bytes(size)),)
    return (*narrow, Compare(sreg=R[0], op=op, data=bytes(network.address)))


def detects(family: Family, detector: LocalDetector) -> bool:
    """Whether the detector can tell local pods in this family."""
    match detector:
        case None:
            return False
        case LocalByInterface():
            return True
        case LocalByNetwork(networks=networks):
            return any(network.family is family for network in networks)
