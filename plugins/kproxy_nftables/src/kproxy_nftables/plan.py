"""Orders the kernel operations of a delta: what is led to, what leads to it, entrances that are closed, what is let go.

New data comes before what leads to it, and what leads to data goes before the data. So each part of a transaction that had
to be cut (an unprivileged user namespace limits its size) is consistent alone. A swap of an element is a deletion and an
addition that are never separated. A Service port that loses a frontend to nobody while it gets other endpoints (it was deleted,
perhaps, and made anew under its name) loses it first: clients of that frontend must not be given the new endpoints. A frontend
that passes to another Service port is the old one's until then, with its new endpoints, so that it is never nobody's.

A packet meets a commit at any point of its way through the rules. It may have found an action with three endpoints just before,
and find only two of them after it; or find an action just after it whose chain, by the generation of rules that it began with, is
still empty. So these are transactions of their own in any case, see :func:`phases`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Final

from attrs import evolve

from kproxy_core.model.addresses import Family
from kproxy_core.program.delta import Delta, patch
from kproxy_core.program.program import Program, objects
from kproxy_core.wire import nft_objects
from kproxy_core.wire.nfnetlink import Family as NetlinkFamily
from kproxy_core.wire.nft_constants import MessageKind, TableFlag
from kproxy_core.wire.nft_data import Verdict
from kproxy_core.wire.nft_elements import Element, ElementCodec
from kproxy_core.wire.nft_objects import Flowtable, NamedObject, Set
from kproxy_core.wire.nft_operations import Operation, add, cut_before, delete, flush_chain
from kproxy_nftables import numbered, sets
from kproxy_nftables.objects import FAMILIES_BY_NAME, FAMILY_NAMES, TABLE, Chain, Hook, Key, Owned, Value, table_flags

_SHAPES: Final = {f"{FAMILY_NAMES[family]} {shape.name}": shape for family in Family for shape in sets.shapes(family).values()}
_CODECS: Final = {place: ElementCodec.of(shape) for place, shape in _SHAPES.items()}

_DATA: Final = (sets.HAIRPIN, *sorted(sets.KEYED_BY_ID), sets.DISPATCH, sets.NODE_PORT_DISPATCH)
"""What ways lead to, in the order in which it is made; an endpoint put into a slot that is in use gets connections at once."""
_WAYS: Final = (
    sets.SERVICES,
    sets.NODE_PORT_SERVICES,
    # Outside traffic asks these first: without them it would take the way of inside traffic for a moment.
    sets.OUTSIDE_ACTIONS,
    sets.OUTSIDE_NODE_PORT_ACTIONS,
    sets.ACTIONS,
    sets.NODE_PORT_ACTIONS,
    sets.CLUSTER_IPS,
    sets.NODE_PORT_IPS,
)
"""What leads a packet to them, in the order in which it is made."""
_ENTRANCES: Final = _WAYS[2:]
"""Where a packet begins: what it finds first. The ids of Services are asked for later, by those on their way."""
_MAKING_ORDER: Final = (*_DATA, *_WAYS)
_PHASE: Final = "phase"
"""Label of an operation with which a transaction begins."""
_PIECE: Final = 8192
"""Elements encoded at a time."""
_SWAP_SIZE: Final = 500
"""Elements swapped between two places where a transaction may be cut."""


Items = dict[str | bytes, object] | numbered.Elements
Places = dict[str, Items]
"""Objects by place and name."""
Change = tuple[Places, Places, Places]
"""What is to be added, changed and removed."""


def plan(before: Program[Key, Value], delta: Delta[Key, Value]) -> list[Operation]:
    """Order a delta; see ``Backend.plan``.

    A table in which a set has another shape (made by another version), or whose flags cannot be changed into the wanted ones, is
    made anew from scratch, in the same transaction.
    """
    stale = {_family_name(key) for key, (old, new) in delta.changed.items() if _is_beyond_change(key, old, new)}
    if not stale:
        return _plan(delta)
    after = patch(objects(before), delta)
    fresh = {key: value for key, value in after.items() if _family_name(key) in stale}
    kept = Delta(
        added={key: value for key, value in delta.added.items() if _family_name(key) not in stale},
        changed={key: value for key, value in delta.changed.items() if _family_name(key) not in stale},
        removed={key: value for key, value in delta.removed.items() if _family_name(key) not in stale},
    )
    removal = [delete(_table(name)) for name in sorted(stale)]
    return [*removal, *_plan(Delta(added=fresh)), *_plan(kept)]


def _is_beyond_change(key: Key, old: Value, new: Value) -> bool:
    """Tell whether an object is one that the kernel lets nobody change in this way (nf_tables_updtable, nf_tables_newset)."""
    if key[1] == "table" and isinstance(old, bytes) and isinstance(new, bytes):
        before, after = table_flags(old), table_flags(new)
        # A table that outlives its holder, and has none any more, can be taken over; any other cannot be.
        return bool((before ^ after) & TableFlag.PERSIST or before & ~after & TableFlag.OWNER)
    return key[0].endswith(" set")


def phases(plan: Sequence[Operation]) -> tuple[Sequence[Operation], ...]:
    """Divide a plan into transactions, none of them empty: see the beginning of this module."""
    starts = [0, *(index for index, operation in enumerate(plan) if operation.label == _PHASE), len(plan)]
    return tuple(plan[start:end] for start, end in pairwise(starts) if start < end)


def _in_phases(*parts: Sequence[Operation]) -> list[Operation]:
    """Join parts, each of which begins a transaction of its own; the first goes along with whatever comes before it."""
    first, *others = [part for part in parts if part] or [()]
    return [*first, *(each for part in others for each in (evolve(part[0], label=_PHASE, cut=True), *part[1:]))]


def _family_name(key: Key) -> str:
    return key[0].partition(" ")[0]


def _table(name: str, flags: int = 0) -> nft_objects.Table:
    return nft_objects.Table(family=NetlinkFamily(FAMILIES_BY_NAME[name]), name=TABLE, flags=flags)


def _plan(delta: Delta[Key, Value]) -> list[Operation]:
    gone = {key[0] for key in delta.removed if key[1] == "table"}
    added, changed = _by_place(delta.added), _by_place(delta.changed)
    removed = _by_place({key: value for key, value in delta.removed.items() if _family_name(key) not in gone})
    _spread(added, changed, removed)
    is_delicate = _is_delicate(added)
    tables = _make_tables(delta)
    shut = _shut_beforehand((added, changed, removed))
    data = _make_data(delta, (added, changed, removed))
    ways = _make_ways((added, changed, removed))
    closed = _delete_all(_ENTRANCES, removed)
    let_go = [*_delete_all(_MAKING_ORDER, removed), *_unmake(removed), *(delete(_table(name)) for name in sorted(gone))]
    making = (data, ways) if is_delicate else ([*data, *ways],)
    if _has_base_chain(ways) and any(key[1] == "table" for key in delta.changed):
        return _in_phases(tables, shut, *making, closed, let_go)
    return [*tables, *_in_phases(shut, *making, closed, let_go)]


def _has_base_chain(operations: Iterable[Operation]) -> bool:
    """Tell whether a chain is made: the kernel takes no base chain into a table whose flags the same transaction changes."""
    return any(operation.kind is MessageKind.NEWCHAIN for operation in operations)


def _make_tables(delta: Delta[Key, Value]) -> list[Operation]:
    """Make tables, or give them other flags, which takes over those that have lost their holder."""
    wanted = [(key, value) for key, value in delta.added.items() if key[1] == "table"]
    wanted += [(key, value) for key, (_, value) in delta.changed.items() if key[1] == "table"]
    return [add(_table(key[0], table_flags(value))) for key, value in wanted if isinstance(value, bytes)]


def _shut_beforehand(places: Change) -> list[Operation]:
    """Delete the frontends that Service ports lose whose data are about to change; their addresses refuse connections then.

    And addresses that answer on NodePorts no more: what is new would answer there. Takes what it does out of what is removed.
    """
    added, changed, removed = places
    operations = _delete_all((sets.NODE_PORT_IPS,), removed)
    for ways, services in sets.KEYED_BY_FRONTEND.items():
        for family_name in FAMILIES_BY_NAME:
            lost = removed.get(f"{family_name} {services}")
            if lost:
                renewed = _renewed(family_name, added) | _renewed(family_name, changed)
                keys = [key for key, owned in lost.items() if isinstance(owned, Owned) and owned.data in renewed]
                place = f"{family_name} {ways}"
                operations += _delete_elements(place, _pick(removed, place, keys))
    return operations


def _renewed(family_name: str, places: Places) -> set[str | bytes]:
    """Return the ids whose data are among these."""
    return {key[:4] for name in sets.KEYED_BY_ID for key in places.get(f"{family_name} {name}", ())}


def _is_delicate(added: Places) -> bool:
    """Tell whether there is something new that is not there at once for every packet.

    That is a chain, as told above, and source ranges: a set of ranges is renewed only after the commit of all else. In a new
    table nobody is served yet.
    """
    return any(
        added.get(f"{name} {kind}") and "table" not in added.get(name, {})
        for name in FAMILIES_BY_NAME
        for kind in ("chain", sets.SOURCE_RANGES)
    )


def _make_data(delta: Delta[Key, Value], places: Change) -> list[Operation]:
    added, changed, removed = places
    operations = [add(shape) for shape in delta.added.values() if isinstance(shape, Set)]
    operations += _make_chains(added, changed, hooked=False)
    for family_name in FAMILIES_BY_NAME:
        operations += _replace_ranges(f"{family_name} {sets.SOURCE_RANGES}", added, removed)
    for name in _DATA:
        operations += _make_elements(name, added, changed)
    return operations


def _make_ways(places: Change) -> list[Operation]:
    added, changed, _ = places
    operations: list[Operation] = []
    for family_name in FAMILIES_BY_NAME:
        for services in (sets.SERVICES, sets.NODE_PORT_SERVICES):
            operations += _move_frontends(family_name, services, places)
    for name in _WAYS:
        operations += _make_elements(name, added, changed)
    return [*operations, *_make_chains(added, changed, hooked=True)]


def _delete_all(names: Sequence[str], removed: Places) -> list[Operation]:
    """Delete what is to be removed from these sets, in the opposite of the order of making, and take it out of ``removed``."""
    operations: list[Operation] = []
    for name in reversed(names):
        for family_name in FAMILIES_BY_NAME:
            place = f"{family_name} {name}"
            operations += _delete_elements(place, removed.pop(place, {}))
    return operations


def _by_place(items: Mapping[Key, object]) -> Places:
    places: dict[str, dict[str | bytes, object]] = defaultdict(dict)
    for (place, name), value in items.items():
        places[place][name] = value
    return dict(places)


def _spread(added: Places, changed: Places, removed: Places) -> None:
    """Take the objects apart that stand for several elements, so that a changed one becomes no more than what differs in it."""
    for place in numbered.PLACES & (added.keys() | changed.keys() | removed.keys()):
        more, swapped, less = numbered.differences(place, changed.pop(place, {}))  # type: ignore[arg-type]
        added[place] = numbered.Elements(place, {**added.get(place, {}), **more})  # type: ignore[dict-item]
        changed[place] = dict(swapped.items())
        removed[place] = numbered.Elements(place, {**removed.get(place, {}), **less})  # type: ignore[dict-item]


# -- chains


def _make_chains(added: Places, changed: Places, hooked: bool) -> list[Operation]:
    """Make new chains, all of them before any rule that may lead to them, and give chains that differ new rules."""
    made: list[Operation] = []
    filled: list[Operation] = []
    for family_name in FAMILIES_BY_NAME:
        place = f"{family_name} chain"
        for name, chain in added.get(place, {}).items():
            if isinstance(chain, Chain) and isinstance(name, str) and (chain.hook is not None) == hooked:
                made += cut_before([add(_chain(family_name, name, chain.hook))])
                filled += cut_before(_fill(family_name, name, chain))
        for name, pair in changed.get(place, {}).items():
            if isinstance(pair, tuple) and isinstance(name, str) and (pair[1].hook is not None) == hooked:
                filled += cut_before([*_empty(family_name, name, *pair), *_fill(family_name, name, pair[1])])
    return [*made, *filled]


def _empty(family_name: str, name: str, old: Chain, new: Chain) -> list[Operation]:
    chain = _chain(family_name, name, old.hook)
    if old.hook == new.hook:
        return [flush_chain(chain)]
    # The kernel changes no hook or priority of a base chain (EOPNOTSUPP, EEXIST): it is made anew.
    return [flush_chain(chain), delete(chain), add(_chain(family_name, name, new.hook))]


def _chain(family_name: str, name: str, hook: Hook | None) -> nft_objects.Chain:
    base = None
    if hook is not None:
        base = nft_objects.BaseChain(type=hook.type, hook=hook.number, priority=hook.priority, policy=hook.policy)
    return nft_objects.Chain(family=NetlinkFamily(FAMILIES_BY_NAME[family_name]), table=TABLE, name=name, base=base)


def _fill(family_name: str, name: str, chain: Chain) -> list[Operation]:
    family = NetlinkFamily(FAMILIES_BY_NAME[family_name])
    return [
        add(nft_objects.Rule(family=family, table=TABLE, chain=name, expressions=rule.expressions, comment=rule.comment or None))
        for rule in chain.rules
    ]


def _unmake(removed: Places) -> list[Operation]:
    """Remove chains, emptied first since they may lead to one another, sets, whose verdicts may lead to chains, and the rest."""
    chains = [
        _chain(family_name, name, None)
        for family_name in FAMILIES_BY_NAME
        for name in removed.get(f"{family_name} chain", {})
        if isinstance(name, str)
    ]
    shapes = [
        shape
        for family_name in FAMILIES_BY_NAME
        for shape in removed.get(f"{family_name} set", {}).values()
        if isinstance(shape, Set)
    ]
    strange = [
        each
        for family_name in FAMILIES_BY_NAME
        for place in ("named object", "flowtable")
        for each in removed.get(f"{family_name} {place}", {}).values()
        if isinstance(each, NamedObject | Flowtable)
    ]
    return [*map(flush_chain, chains), *map(delete, shapes), *map(delete, strange), *map(delete, chains)]


# -- elements


def _make_elements(name: str, added: Places, changed: Places) -> list[Operation]:
    operations: list[Operation] = []
    for family_name in FAMILIES_BY_NAME:
        place = f"{family_name} {name}"
        operations += _add_elements(place, added.get(place, {}))
        operations += _swap_elements(place, changed.get(place, {}))
    return operations


def _add_elements(place: str, elements: Items) -> list[Operation]:
    if not elements:
        return []
    codec = _CODECS[place]
    sample = next(iter(elements.values()))
    if isinstance(sample, Owned):
        operations = codec.add_commented([(key, owned.data, owned.owner) for key, owned in elements.items()])  # type: ignore[attr-defined,misc]
    elif isinstance(sample, Verdict):
        operations = codec.add_elements([Element(key=key, data=data) for key, data in elements.items()])  # type: ignore[arg-type]
    elif place in _RANGES:
        operations = codec.add_elements([_range(place, key) for key in elements])
    elif codec.data_length:
        # Piece by piece: a first load has a hundred thousand, and a list of pairs costs as much memory as their encoding.
        items = elements.pairs() if isinstance(elements, numbered.Elements) else iter(elements.items())
        operations = []
        while piece := list(islice(items, _PIECE)):
            operations += codec.add(piece)  # type: ignore[arg-type]
    else:
        operations = codec.add_keys(list(elements))  # type: ignore[arg-type]
    return [evolve(operation, cut=True) for operation in operations]


_RANGES: Final = frozenset(f"{name} {sets.SOURCE_RANGES}" for name in FAMILIES_BY_NAME)


def _range(place: str, key: str | bytes) -> Element:
    """Split the key of a source range, ``id . first . id . last``."""
    if not isinstance(key, bytes):
        raise TypeError(f"no element: {key!r}")
    size = _CODECS[place].key_length
    return Element(key=key[:size], key_end=key[size:])


def _delete_elements(place: str, elements: Items) -> list[Operation]:
    if not elements:
        return []
    codec = _CODECS[place]
    if place in _RANGES:
        operations = codec.delete_elements([_range(place, key) for key in elements])
    else:
        operations = codec.delete(list(elements))  # type: ignore[arg-type]
    return [evolve(operation, cut=True) for operation in operations]


def _replace_ranges(place: str, added: Places, removed: Places) -> list[Operation]:
    """Give Service ports other source ranges, the old ones first: an interval set refuses ranges that overlap others.

    Takes what it does out of ``added`` and ``removed``.
    """
    fresh, stale = _by_id(added.get(place, {})), _by_id(removed.get(place, {}))
    operations: list[Operation] = []
    for identity in fresh.keys() & stale.keys():
        swap = _delete_elements(place, _pick(removed, place, stale[identity]))
        swap += _add_elements(place, _pick(added, place, fresh[identity]))
        operations += cut_before([evolve(operation, cut=False) for operation in swap])
    return operations


def _by_id(items: Items) -> dict[str | bytes, list[str | bytes]]:
    """Return the keys of elements by the id that they begin with."""
    found: dict[str | bytes, list[str | bytes]] = defaultdict(list)
    for key in items:
        found[key[:4]].append(key)
    return found


def _move_frontends(family_name: str, services: str, places: Change) -> list[Operation]:
    """Give frontends to other Service ports: id and actions in one step, since the one makes no sense without the other.

    Takes what it does out of ``places``.
    """
    place = f"{family_name} {services}"
    added, changed, removed = places
    moved = list(changed.get(place, {}))
    ways = [f"{family_name} {name}" for name, of in sets.KEYED_BY_FRONTEND.items() if of == services]
    operations: list[Operation] = []
    for start in range(0, len(moved), _SWAP_SIZE):
        keys = moved[start : start + _SWAP_SIZE]
        block = _swap_elements(place, _pick(changed, place, keys))
        for way in ways:
            block += _delete_elements(way, _pick(removed, way, keys))
            block += _add_elements(way, _pick(added, way, keys))
            block += _swap_elements(way, _pick(changed, way, keys))
        operations += cut_before([evolve(operation, cut=False) for operation in block])
    return operations


def _pick(places: Places, place: str, keys: Iterable[str | bytes]) -> Items:
    items = places.get(place, {})
    assert isinstance(items, dict), f"{place} is never picked from"
    return {key: items.pop(key) for key in keys if key in items}


def _swap_elements(place: str, elements: Items) -> list[Operation]:
    """Give elements another value: the kernel takes that as a deletion and an addition only."""
    operations: list[Operation] = []
    items: Sequence[tuple[str | bytes, object]] = list(elements.items())
    for start in range(0, len(items), _SWAP_SIZE):
        chunk = {key: pair[1] for key, pair in items[start : start + _SWAP_SIZE] if isinstance(pair, tuple)}
        swap = [*_delete_elements(place, chunk), *_add_elements(place, chunk)]
        operations += cut_before([evolve(operation, cut=False) for operation in swap])
    return operations
