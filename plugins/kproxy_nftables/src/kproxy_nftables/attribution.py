"""Tells whose each object is that was read from the kernel: by the comments in ``services``, then by ids and frontends."""

import sys
from collections import defaultdict
from collections.abc import Mapping

from kproxy_core.model.names import ServicePortKey, ServicePortName, parse_service_port_name
from kproxy_core.program.program import Fragment, Program
from kproxy_core.wire.nft_data import Verdict
from kproxy_nftables import sets
from kproxy_nftables.objects import FAMILIES_BY_NAME, Key, Owned, Value


def attribute(objects: Mapping[Key, Value]) -> Program[Key, Value]:
    """Make a Program of flat objects; what cannot be attributed is common, and so removed unless it is wanted."""
    places: dict[str, list[tuple[Key, Value]]] = defaultdict(list)
    for key, value in objects.items():
        places[key[0]].append((key, value))
    fragments: dict[ServicePortKey, Fragment[Key, Value]] = {}
    common: dict[Key, Value] = {}
    for family_name, family in FAMILIES_BY_NAME.items():
        by_id = _by_id(family_name, places, common)
        for identity, owner in _owners(by_id).items():
            own = by_id.pop(identity)
            fragments[ServicePortKey(family, owner)] = Fragment(id=int.from_bytes(identity, sys.byteorder), own=own)
        for orphans in by_id.values():
            common.update(orphans)
    return Program(fragments=fragments, common=common)


def _by_id(
    family_name: str, places: Mapping[str, list[tuple[Key, Value]]], common: dict[Key, Value]
) -> dict[bytes, dict[Key, Value]]:
    """Gather one family's elements by the packed id that they carry or that their frontend has; the rest goes to ``common``."""
    by_id: dict[bytes, dict[Key, Value]] = defaultdict(dict)
    frontends: dict[str, dict[str | bytes, bytes]] = {}
    for services in (sets.SERVICES, sets.NODE_PORT_SERVICES):
        owned = [(key, value) for key, value in places.get(f"{family_name} {services}", ()) if isinstance(value, Owned)]
        frontends[services] = {key[1]: value.data for key, value in owned}
        for key, entry in owned:
            by_id[entry.data][key] = entry
    for place, items in places.items():
        name_of_family, _, set_name = place.partition(" ")
        if name_of_family != family_name or set_name in frontends:
            continue
        if set_name in sets.KEYED_BY_ID:
            for key, value in items:
                by_id[key[1][:4]][key] = value  # type: ignore[index]
        elif set_name in sets.KEYED_BY_FRONTEND:
            ids = frontends[sets.KEYED_BY_FRONTEND[set_name]]
            for key, value in items:
                (by_id[ids[key[1]]] if key[1] in ids else common)[key] = value
        else:
            common.update(items)
    return by_id


def _owners(by_id: Mapping[bytes, Mapping[Key, Value]]) -> dict[bytes, ServicePortName]:
    """Return the owner of each id; an id with two owners has none, nor has an owner's second id."""
    result: dict[bytes, ServicePortName] = {}
    taken: set[str] = set()
    for identity, own in by_id.items():
        texts = {value.owner for value in own.values() if isinstance(value, Owned)}
        text = texts.pop() if len(texts) == 1 else ""
        name = parse_service_port_name(text) if text not in taken else None
        if name is not None:
            taken.add(text)
            result[identity] = name
    return result


def with_shared(program: Program[Key, Value], port: ServicePortKey) -> dict[Key, Value]:
    """Return a Service port's objects and those that its actions lead to."""
    fragment = program.fragments.get(port)
    if fragment is None:
        return {}
    found = dict(fragment.own)
    for (place, _), value in fragment.own.items():
        family_name, _, set_name = place.partition(" ")
        if set_name in sets.KEYED_BY_FRONTEND and isinstance(value, bytes):
            node_port = sets.KEYED_BY_FRONTEND[set_name] == sets.NODE_PORT_SERVICES
            dispatch = f"{family_name} {sets.NODE_PORT_DISPATCH if node_port else sets.DISPATCH}"
            verdict = program.common.get((dispatch, value))
            if isinstance(verdict, Verdict):
                found[dispatch, value] = verdict
                chain = (f"{family_name} chain", verdict.chain or "")
                if chain in program.common:
                    found[chain] = program.common[chain]
    return found
