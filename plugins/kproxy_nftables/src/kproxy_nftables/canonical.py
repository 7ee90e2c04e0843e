"""The meaning of a program, modulo ids and slots: what the laws of the contract compare."""

from collections import Counter

from kproxy_core.program.program import Program, objects
from kproxy_nftables import numbered, sets
from kproxy_nftables.objects import Key, Owned, Value

Canonical = Counter[tuple[object, ...]]


def canonical(program: Program[Key, Value]) -> Canonical:
    """Return the objects with each id replaced by its owner and slots left out, counted."""
    everything = numbered.spread(objects(program))
    owners = {value.data: value.owner for value in everything.values() if isinstance(value, Owned)}
    return Counter(_canonical(key, value, owners) for key, value in everything.items())


def _canonical(key: Key, value: Value, owners: dict[bytes, str]) -> tuple[object, ...]:
    place, name = key
    set_name = place.partition(" ")[2]
    if isinstance(value, Owned):
        return place, name, value.owner
    if set_name == sets.SOURCE_RANGES and isinstance(name, bytes):
        middle = len(name) // 2
        return place, owners.get(name[:4], name[:4]), name[4:middle], name[middle + 4 :]
    if set_name in sets.KEYED_BY_ID and isinstance(name, bytes):
        return place, owners.get(name[:4], name[:4]), value
    return place, name, value
