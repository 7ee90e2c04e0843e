"""Tells whose each object is that was read from the kernel: by the comments in ``services``, then by ids and frontends."""

from collections import defaultdict
from typing import Final

from kproxy_core.model.names import ServicePortKey
from kproxy_core.program.program import Fragment, Program
from kproxy_core.wire.nft_data import Verdict
from kproxy_nftables import sets
from kproxy_nftables.objects import FAMILIES_BY_NAME, Key, Owned, Value, number, parse_owner


def attribute(objects: dict[Key, Value]) -> Program[Key, Value]:
    """Make a Program of flat objects; what cannot be attributed is common, and so removed unless it is wanted."""
    owners = _owners(objects)
    own: dict[ServicePortKey, dict[Key, Value]] = defaultdict(dict)
    common: dict[Key, Value] = {}
    for key, value in objects.items():
        identity = _identity(key, value, objects)
        owner = owners.get((key[0].partition(" ")[0], identity)) if identity is not None else None
        if owner is None:
            common[key] = value
        else:
            own[owner][key] = value
    ids = {owner: int.from_bytes(identity, _ORDER) for (_, identity), owner in owners.items()}
    return Program(fragments={owner: Fragment(id=ids[owner], own=mine) for owner, mine in own.items()}, common=common)


_ORDER: Final = "little" if number(1)[0] else "big"


def _owners(objects: dict[Key, Value]) -> dict[tuple[str, bytes], ServicePortKey]:
    """Return the owner of each id by family; an id with two owners, or an owner's second id, has none."""
    claims: dict[tuple[str, bytes], set[ServicePortKey]] = defaultdict(set)
    for (place, _), value in objects.items():
        if isinstance(value, Owned) and (name := parse_owner(value.owner)) is not None:
            family_name = place.partition(" ")[0]
            claims[family_name, value.data].add(ServicePortKey(FAMILIES_BY_NAME[family_name], name))
    result: dict[tuple[str, bytes], ServicePortKey] = {}
    taken: set[ServicePortKey] = set()
    for identity, candidates in claims.items():
        owner = next(iter(candidates))
        if len(candidates) == 1 and owner not in taken:
            taken.add(owner)
            result[identity] = owner
    return result


def _identity(key: Key, value: Value, objects: dict[Key, Value]) -> bytes | None:
    """Return the packed id that an element carries, or that its frontend has; None for what belongs to nobody alone."""
    place, name = key
    if isinstance(value, Owned):
        return value.data
    family_name, _, set_name = place.partition(" ")
    if not isinstance(name, bytes):
        return None
    if set_name in sets.KEYED_BY_ID:
        return name[:4]
    services = sets.KEYED_BY_FRONTEND.get(set_name)
    owned = objects.get((f"{family_name} {services}", name)) if services else None
    return owned.data if isinstance(owned, Owned) else None


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
