"""Moves generated clusters, and the packets that meet them, into the lab: to the addresses and names that it has."""

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from kproxy_core.model.addresses import Address, Network, parse_address, parse_network
from kproxy_core.model.packed import Packed, packed
from kproxy_core.testing.lab import BRIDGE, POD_INTERFACE_PREFIX
from kproxy_core.testing.strategies import pools

SECOND = ("172.18.0.50/24", "fd00:18::50/64")
"""A second address for the node's uplink in each family: some generated clusters have one."""

_ADDRESSES: Mapping[Address, Address] = {
    parse_address(old): parse_address(new)
    for old, new in {
        "192.0.2.1": "172.18.0.2",
        "192.0.2.2": "172.18.0.50",
        "192.0.2.9": "172.18.0.3",
        "2001:db8::1": "fd00:18::2",
        "2001:db8::2": "fd00:18::50",
        "2001:db8::9": "fd00:18::3",
        "10.244.1.1": "10.244.1.10",
        "10.244.1.2": "10.244.1.130",
        "10.244.2.1": "10.244.2.10",
        "fd00:244:1::1": "fd00:244:0:1::a",
        "fd00:244:1::2": "fd00:244:0:1::82",
        "fd00:244:2::1": "fd00:244:0:2::a",
        "198.51.100.1": "172.18.0.100",
        "198.51.101.1": "172.18.0.101",
        "2001:db8:c::1": "fd00:18::100",
        "2001:db8:d::1": "fd00:18::101",
    }.items()
}
_NETWORKS: Mapping[Network, Network] = {
    parse_network(old): parse_network(new)
    for old, new in {
        "fd00:244:1::/64": "fd00:244:0:1::/64",
        "198.51.100.0/24": "172.18.0.100/32",
        "192.0.2.0/24": "172.18.0.0/26",
        "192.0.2.2/32": "172.18.0.50/32",
        "2001:db8:c::/48": "fd00:18::100/128",
        "2001:db8::/64": "fd00:18::/120",
    }.items()
}
_NAMES = {
    pools.BRIDGE: BRIDGE,
    pools.PREFIX: POD_INTERFACE_PREFIX,
    "veth1": f"{POD_INTERFACE_PREFIX}a1",
    pools.NODE_NAME: "node",
    "n2": "node2",
}


def transposed(value: Any) -> Any:
    """The same value with the lab's addresses, networks and names."""
    if isinstance(value, Address | str):
        return _ADDRESSES.get(value, value) if isinstance(value, Address) else _NAMES.get(value, _as_key(value))
    if isinstance(value, dict | tuple | frozenset):
        return _container(value)
    if isinstance(value, Packed):
        return packed(map(transposed, value))
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: transposed(getattr(value, name)) for name in value.__struct_fields__})
    if not attrs.has(type(value)):
        return value
    fields = {field.name: transposed(getattr(value, field.name)) for field in attrs.fields(type(value))}
    return _NETWORKS.get(value, value) if isinstance(value, Network) else attrs.evolve(value, **fields)


def _container(value: Any) -> Any:
    if isinstance(value, dict):
        return {transposed(key): transposed(inner) for key, inner in value.items()}
    return type(value)(map(transposed, value)) if type(value) in (tuple, frozenset) else value


def _as_key(text: str) -> str:
    """Weights are keyed by addresses as text."""
    try:
        return str(transposed(parse_address(text)))
    except ValueError:
        return text
