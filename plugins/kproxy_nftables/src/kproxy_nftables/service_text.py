"""Tells in words what the addresses of one Service port lead to."""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from ipaddress import ip_address, summarize_address_range
from typing import Final

from attrs import field, frozen

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.state import EndpointScope
from kproxy_core.program.program import Fragment
from kproxy_core.wire.nft_constants import DataType
from kproxy_nftables import numbered, sets
from kproxy_nftables.actions import Action, Ending, Mark, action_of
from kproxy_nftables.objects import FAMILY_NAMES, Key, Owned, Value, split_address_and_port
from kproxy_nftables.type_text import value_text

_ENDINGS: Final = {Ending.DROP: "drop", Ending.REJECT: "refuse", Ending.REJECT_RESTRICTED: "refuse allowed sources, drop others"}
_MARKS: Final = {Mark.UNLESS_LOCAL_POD: "masquerade unless from a local pod", Mark.ALWAYS: "masquerade"}
_SCOPES: Final = {
    "endpoints": (sets.ENDPOINTS, sets.STICKY_SLOTS, sets.STICKY_ENDPOINTS),
    "endpoints of this node": (sets.LOCAL_ENDPOINTS, sets.LOCAL_STICKY_SLOTS, sets.LOCAL_STICKY_ENDPOINTS),
}
_FRONTENDS: Final = (
    (sets.SERVICES, sets.ACTIONS, sets.OUTSIDE_ACTIONS),
    (sets.NODE_PORT_SERVICES, sets.NODE_PORT_ACTIONS, sets.OUTSIDE_NODE_PORT_ACTIONS),
)


@frozen
class ServiceText:
    """Lines, and the keys of the objects that they tell of."""

    lines: tuple[str, ...]
    told: frozenset[Key]


@frozen
class _Maps:
    """A Service port's elements by the map they are in, and which of them have been told."""

    family: Family
    elements: Mapping[str, Mapping[bytes, Value]]
    told: set[Key] = field(factory=set)

    def take(self, name: str, key: bytes) -> bytes | None:
        """Return the packed value of an element, which counts as told; None if there is none."""
        value = self.elements.get(name, {}).get(key)
        packed = value.data if isinstance(value, Owned) else value
        if not isinstance(packed, bytes):
            return None
        self.told.add((f"{FAMILY_NAMES[self.family]} {name}", key))
        return packed

    def keys(self, name: str) -> list[bytes]:
        """Return the keys in a map, sorted."""
        return sorted(self.elements.get(name, {}))


def service_text(family: Family, fragment: Fragment[Key, Value]) -> ServiceText:
    """Return a line for each address and kind of traffic, then lines for endpoints and allowed sources."""
    elements: dict[str, dict[bytes, Value]] = defaultdict(dict)
    for (place, key), value in numbered.spread(fragment.own).items():
        if isinstance(key, bytes):
            elements[place.partition(" ")[2]][key] = value
    maps = _Maps(family, elements)
    lines = (*_frontends(maps), *_endpoints(maps), *_allowed_sources(maps))
    return ServiceText(lines, frozenset(maps.told))


def _frontends(maps: _Maps) -> Iterator[str]:
    for services, inside, outside in _FRONTENDS:
        for key in maps.keys(services):
            maps.take(services, key)
            shown = _frontend_text(key)
            action = maps.take(inside, key)
            yield f"{shown} -> {_action_text(action)}"
            if (action := maps.take(outside, key)) is not None:
                yield f"{shown} from outside -> {_action_text(action)}"


def _frontend_text(key: bytes) -> str:
    """Spell ``address . protocol . port``, or ``protocol . port`` for a NodePort."""
    protocol = value_text(DataType.INET_PROTOCOL, key[-8:-4])
    port = value_text(DataType.INET_SERVICE, key[-4:])
    return f"{protocol} {_with_port(Address(key[:-8]), port)}" if len(key) > 8 else f"{protocol} node port {port}"


def _with_port(address: Address, port: int | str) -> str:
    return f"{address}:{port}" if address.family is Family.IPV4 else f"[{address}]:{port}"


def _action_text(packed: bytes | None) -> str:
    if packed is None:
        return "nothing"
    number = int.from_bytes(packed, sys.byteorder)
    action = action_of(number)
    return f"action {number}" if action is None else ", ".join(_action_words(action))


def _action_words(action: Action) -> Iterator[str]:
    if isinstance(action, Ending):
        yield _ENDINGS[action]
        return
    if action.restricted:
        yield "drop unless from allowed sources"
    yield f"choose among {action.count}{' of this node' if action.scope is EndpointScope.LOCAL else ''}"
    if action.timeout:
        yield f"sticky for {action.timeout} s"
    if action.mark in _MARKS:
        yield _MARKS[action.mark]


def _endpoints(maps: _Maps) -> Iterator[str]:
    for title, (endpoint_map, slot_map, sticky_map) in _SCOPES.items():
        counts = Counter(_endpoint_text(maps.take(endpoint_map, key)) for key in _by_slot(maps, endpoint_map))
        for key in _by_slot(maps, slot_map):
            number = maps.take(slot_map, key) or b""
            told = _endpoint_text(maps.take(sticky_map, key[:4] + number))
            counts[f"{told} (number {value_text(DataType.MARK, number)})"] += 1
        if counts:
            weighted = max(counts.values()) > 1
            texts = (f"{text} x{count}" if weighted else text for text, count in counts.items())
            yield f"{title}: {', '.join(texts)}"


def _by_slot(maps: _Maps, name: str) -> list[bytes]:
    return sorted(maps.keys(name), key=lambda key: int.from_bytes(key[4:], sys.byteorder))


def _endpoint_text(packed: bytes | None) -> str:
    return "nothing" if packed is None else _with_port(*split_address_and_port(packed))


def _allowed_sources(maps: _Maps) -> Iterator[str]:
    size = maps.family.bits // 8
    networks: list[str] = []
    for key in maps.keys(sets.SOURCE_RANGES):
        maps.take(sets.SOURCE_RANGES, key)
        first, last = ip_address(key[4 : 4 + size]), ip_address(key[-size:])
        networks += map(str, summarize_address_range(first, last))
    if networks:
        yield f"allowed sources: {', '.join(networks)}"
