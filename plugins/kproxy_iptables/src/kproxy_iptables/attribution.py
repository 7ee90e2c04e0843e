"""Tells whose each object is that was read from the kernel: by comments, by the chains that rules lead to, and by frontends."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kproxy_core.model.addresses import Address, Family, parse_address
from kproxy_core.model.names import Protocol, ServicePortKey, ServicePortName, parse_service_port_name
from kproxy_core.program.program import Fragment, Program
from kproxy_iptables import sets
from kproxy_iptables.objects import ENDPOINT_CHAIN, FAMILIES, PORT_CHAINS, Key, Value

_COMMENT: Final = re.compile(r'--comment "([^"]*)"')
_CLIENTS: Final = re.compile(r"--add-set (\S+) src")
_WORDS: Final = {protocol.name.lower(): protocol for protocol in Protocol}
_OF_FRONTENDS: Final = (sets.REJECT, sets.DROP, sets.SELF, sets.RESTRICTED, sets.SOURCES)
_OF_NODE_PORTS: Final = (sets.NODE_PORT_REJECT, sets.NODE_PORT_DROP)


def attribute(objects: Mapping[Key, Value]) -> Program[Key, Value]:
    """Make a Program of flat objects; what cannot be attributed is common, and so removed unless it is wanted."""
    owners: dict[Key, ServicePortKey] = {}
    for version, family in FAMILIES.items():
        owners.update(_owners(version, family, objects))
    own: dict[ServicePortKey, dict[Key, Value]] = {}
    common: dict[Key, Value] = {}
    for key, value in objects.items():
        owner = owners.get(key)
        if owner is None:
            common[key] = value
        else:
            own.setdefault(owner, {})[key] = value
    return Program(fragments={port: Fragment(own=mine) for port, mine in own.items()}, common=common)


def _owners(version: str, family: Family, objects: Mapping[Key, Value]) -> Iterator[tuple[Key, ServicePortKey]]:
    chain_place, rule_place, set_place = f"{version} nat chain", f"{version} nat rule", f"{version} set"
    by_chain: dict[str, ServicePortKey] = {}
    names: dict[str, ServicePortName | None] = {}
    for key, value in objects.items():
        if key[0] == chain_place and isinstance(value, tuple) and str(key[1]).startswith(PORT_CHAINS):
            name = _named(value[0], names) if value else None
            if name is not None:
                owner = by_chain[str(key[1])] = ServicePortKey(family, name)
                yield key, owner
                yield from (((set_place, clients), owner) for clients in _clients(str(key[1]), value))
    by_frontend: dict[bytes, ServicePortKey] = {}
    for key, value in objects.items():
        if key[0] == rule_place:
            name = _named(str(value), names)
            found = by_chain.get(str(value).rpartition("-j ")[2]) if name is None else ServicePortKey(family, name)
            if found is not None:
                yield key, found
                by_frontend.update((frontend, found) for frontend in _frontends(family, str(key[1])))
    yield from _element_owners(family, objects, by_frontend)


def _named(rule: str, names: dict[str, ServicePortName | None]) -> ServicePortName | None:
    found = _COMMENT.search(rule)
    if found is None:
        return None
    text = found[1]
    if text not in names:
        names[text] = parse_service_port_name(text)
    return names[text]


def _clients(chain: str, rules: Iterable[str]) -> Iterator[str]:
    if chain.startswith(ENDPOINT_CHAIN):
        yield from (match[1] for rule in rules if (match := _CLIENTS.search(rule)))


def _frontends(family: Family, rule: str) -> Iterator[bytes]:
    """The keys by which the elements of a rule's frontend are found."""
    words = rule.split(" ")
    try:
        protocol, port = _WORDS[words[words.index("-p") + 1]], int(words[words.index("--dport") + 1])
        if "-d" in words:
            address = parse_address(words[words.index("-d") + 1].partition("/")[0])
            yield sets.frontend_key(address, protocol, port)
        else:
            yield from sets.node_port_keys(family, protocol, port)
            yield sets.frontend_key(Address(), protocol, port)
    except (ValueError, KeyError, IndexError):
        return  # not of our making


def _element_owners(
    family: Family, objects: Mapping[Key, Value], by_frontend: Mapping[bytes, ServicePortKey]
) -> Iterator[tuple[Key, ServicePortKey]]:
    size = family.bits // 8 + 3
    lengths = {sets.set_name(family, word): size for word in _OF_FRONTENDS}
    lengths.update((sets.set_name(family, word), size + 1) for word in _OF_NODE_PORTS)
    # Of a NodePort's own endpoints the address says nothing.
    starts = {sets.set_name(family, sets.NODE_PORT_SELF): family.bits // 8}
    lengths.update(dict.fromkeys(starts, size))
    for key in objects:
        place, name = key
        if place in lengths and isinstance(name, bytes):
            owner = by_frontend.get(name[starts.get(place, 0) : lengths[place]])
            if owner is not None:
                yield key, owner
