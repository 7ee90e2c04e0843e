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
    fragments: dict[ServicePortKey, Fragment[Key, Value]] = {}
    common: dict[Key, Value] = {}
    for family_name, family in FAMILIES_BY_NAME.items():
        by_id = _by_id(family_name, objects, common)
        for identity, owner in _owners(by_id).items():
            own = by_id.pop(identity)
            fragments[ServicePortKey(family, owner)] = Fragment(id=int.from_bytes(identity, sys.byteorder), own=own)
        for orphans in by_id.values():
            common.update(orphans)
    return Program(fragments=fragments, common=common)


def _by_id(family_name: str, objects: Mapping[Key, Value], common: dict[Key, Value]) -> dict[bytes, dict[Key, Value]]:
    """Gather one family's elements by the packed id that they carry or that their frontend has; the rest goes to ``common``."""
    by_id: dict[bytes, dict[Key, Value]] = defaultdict(dict)
    services = {f"{family_name} {name}": f"{family_name} {of}" for name, of in sets.KEYED_BY_FRONTEND.items()}
    keyed_by_id = {f"{family_name} {name}" for name in sets.KEYED_BY_ID}
    for key, value in objects.items():
        place, name = key
        if place in services:
            owned = objects.get((services[place], name))
            (by_id[owned.data] if isinstance(owned, Owned) else common)[key] = value
        elif isinstance(value, Owned) and place.startswith(f"{family_name} "):
            by_id[value.data][key] = value
        elif place in keyed_by_id:
            by_id[name[:4]][key] = value  # type: ignore[index]
        elif place.partition(" ")[0] == family_name:
            common[key] = value
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
