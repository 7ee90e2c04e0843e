"""The dispatch tree: from an address, or a NodePort, to the few rules that may concern it.

Two levels of 32 branches by the last ten bits of the address, which differ most: both ServiceCIDRs and pools of load balancers
are handed out from within. The masks are not contiguous prefixes, which iptables never asked for. NodePorts branch by ranges of
512, then of 32. So the last of 10,000 frontends is met after some forty rules, like the first.
"""

from functools import lru_cache
from typing import Final

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.names import Protocol
from kproxy_iptables.objects import VERSIONS, Key, host, protocol_word

ADDRESSES: Final = "KPROXY-SERVICES"
NODE_PORTS: Final = "KPROXY-NODEPORTS"
_ADDRESS_CHAIN: Final = "KPROXY-IP-"
_NODE_PORT_CHAIN: Final = "KPROXY-NP-"
_BITS: Final = 5
_WIDE: Final = 9
_NARROW: Final = 5

Branches = dict[Key, str]


def is_branch(chain: str) -> bool:
    """Whether a chain of the nat table is part of the tree."""
    return chain.startswith((_ADDRESS_CHAIN, _NODE_PORT_CHAIN)) or chain in (ADDRESSES, NODE_PORTS)


def roots(family: Family) -> Branches:
    """Where the tree begins."""
    return {(_branch(family), ADDRESSES): "", (_branch(family), NODE_PORTS): ""}


def address_rule(family: Family, address: Address, protocol: Protocol, port: int) -> tuple[str, Branches]:
    """The rule that an address's frontend has in the tree, up to what it leads to; and the branches that lead there."""
    chain, branches = _address_branches(family, int.from_bytes(address[-2:], "big") & ((1 << 2 * _BITS) - 1))
    word = protocol_word(protocol)
    return f"{chain} -d {host(address)} -p {word} -m {word} --dport {port}", branches


def node_port_rule(family: Family, protocol: Protocol, port: int) -> tuple[str, Branches]:
    """The same for a NodePort."""
    chain, branches = _node_port_branches(family, protocol, port >> _NARROW)
    word = protocol_word(protocol)
    return f"{chain} -p {word} -m {word} --dport {port}", branches


def _branch(family: Family) -> str:
    return f"{VERSIONS[family]} nat branch"


@lru_cache(maxsize=4096)
def _address_branches(family: Family, low: int) -> tuple[str, Branches]:
    first, second = low & ((1 << _BITS) - 1), low >> _BITS
    size = family.bits // 8

    def bits(value: int) -> str:
        return str(Address(value.to_bytes(size, "big")))

    outer = f"{_ADDRESS_CHAIN}{first}"
    inner = f"{outer}-{second}"
    mask = (1 << _BITS) - 1
    return inner, {
        (_branch(family), outer): f"{ADDRESSES} -d {bits(first)}/{bits(mask)} -j {outer}",
        (_branch(family), inner): f"{outer} -d {bits(second << _BITS)}/{bits(mask << _BITS)} -j {inner}",
    }


@lru_cache(maxsize=4096)
def _node_port_branches(family: Family, protocol: Protocol, narrow: int) -> tuple[str, Branches]:
    wide, rest = narrow >> (_WIDE - _NARROW), narrow & ((1 << (_WIDE - _NARROW)) - 1)
    word = protocol_word(protocol)
    outer = f"{_NODE_PORT_CHAIN}{word.upper()}-{wide}"
    inner = f"{outer}-{rest}"

    def ports(number: int, bits: int) -> str:
        return f"-p {word} -m {word} --dport {number << bits}:{((number + 1) << bits) - 1}"

    return inner, {
        (_branch(family), outer): f"{NODE_PORTS} {ports(wide, _WIDE)} -j {outer}",
        (_branch(family), inner): f"{outer} {ports(narrow, _NARROW)} -j {inner}",
    }
