"""What a Service port has in one of the maps keyed by id, as one object: rows of number and data, packed.

The elements of these maps are by far the most, one for each endpoint. As objects of their own they would take a fifth of the
daemon's memory, and be compared one by one. So an object's name is the id alone, and its value has a row for each element with
that id: the second part of the element's key, a slot or a sticky number, and its data. Rows are sorted as bytes, so that equal
elements are equal bytes, whoever put them together.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from kproxy_core.model.addresses import Family
from kproxy_core.wire.errors import RepeatedElementError
from kproxy_nftables import sets
from kproxy_nftables.objects import FAMILY_NAMES, Key, Value

_NUMBER_SIZE: Final = 4

_ROWS: Final = {
    f"{FAMILY_NAMES[family]} {shape.name}": struct.Struct(f"{_NUMBER_SIZE}s{shape.data_length}s")
    for family in Family
    for shape in sets.shapes(family).values()
    if shape.name in sets.NUMBERED
}

PLACES: Final = frozenset(_ROWS)
"""The places whose objects are of this kind."""

Pair = tuple[bytes, bytes]


def pack(rows: Iterable[Pair]) -> bytes:
    """Pack rows of number and data, in any order."""
    return b"".join(chain.from_iterable(sorted(rows)))


def unpack(place: str, packed: bytes) -> Iterator[Pair]:
    """Yield the rows of an object."""
    return _ROWS[place].iter_unpack(packed)


def spread(objects: Mapping[Key, Value]) -> dict[Key, Value]:
    """Return objects with each of this kind replaced by its elements, for who looks at elements one by one."""
    return {
        (place, part): data
        for (place, name), value in objects.items()
        for part, data in (
            ((name + number, data) for number, data in unpack(place, value))
            if place in _ROWS and isinstance(name, bytes) and isinstance(value, bytes)
            else ((name, value),)
        )
    }


def gathered(elements: Iterable[Pair]) -> dict[bytes, bytes]:
    """Make objects by id of the elements of a map, given as key and data in any order.

    Raises RepeatedElementError when a key comes twice.
    """
    found: dict[bytes, bytearray] = {}
    data = b""
    for key, data in elements:
        identity = key[:_NUMBER_SIZE]
        rows = found.get(identity)
        if rows is None:
            rows = found[identity] = bytearray()
        rows += key[_NUMBER_SIZE:] + data
    row = struct.Struct(f"{_NUMBER_SIZE}s{len(data)}s")
    return {identity: _in_order(row.iter_unpack(rows)) for identity, rows in found.items()}


def _in_order(rows: Iterable[Pair]) -> bytes:
    ordered = sorted(rows)
    if len(dict(ordered)) != len(ordered):
        raise RepeatedElementError("a number is there twice under an id")
    return b"".join(chain.from_iterable(ordered))


class Elements(Mapping[str | bytes, object]):
    """The elements of one map by key, each made when it is asked for: a first load has a hundred thousand of them."""

    def __init__(self, place: str, objects: Mapping[bytes, bytes]) -> None:
        self._rows = _ROWS[place]
        self._objects = objects

    def __len__(self) -> int:
        return sum(map(len, self._objects.values())) // self._rows.size

    def __iter__(self) -> Iterator[bytes]:
        for identity, packed in self._objects.items():
            for number, _ in self._rows.iter_unpack(packed):
                yield identity + number

    def __getitem__(self, key: str | bytes) -> bytes:
        identity, number = key[:_NUMBER_SIZE], key[_NUMBER_SIZE:]
        rows = self._rows.iter_unpack(self._objects.get(identity, b"") if isinstance(identity, bytes) else b"")
        for found, data in rows:
            if found == number:
                return bytes(data)
        raise KeyError(key)

    def pairs(self) -> Iterator[Pair]:
        """Yield keys and data."""
        for identity, packed in self._objects.items():
            for number, data in self._rows.iter_unpack(packed):
                yield identity + number, data


def differences(
    place: str, changed: Mapping[bytes, tuple[bytes, bytes]]
) -> tuple[dict[bytes, bytes], dict[bytes, tuple[bytes, bytes]], dict[bytes, bytes]]:
    """Tell objects' old and new values apart: added rows by id, other data (old and new) by element's key, removed rows by id."""
    added: dict[bytes, bytes] = {}
    swapped: dict[bytes, tuple[bytes, bytes]] = {}
    removed: dict[bytes, bytes] = {}
    for identity, (before, after) in changed.items():
        old, new = dict(unpack(place, before)), dict(unpack(place, after))
        fresh = [(number, data) for number, data in new.items() if number not in old]
        stale = [(number, data) for number, data in old.items() if number not in new]
        if fresh:
            added[identity] = pack(fresh)
        if stale:
            removed[identity] = pack(stale)
        for number, data in new.items():
            if old.get(number, data) != data:
                swapped[identity + number] = (old[number], data)
    return added, swapped, removed
