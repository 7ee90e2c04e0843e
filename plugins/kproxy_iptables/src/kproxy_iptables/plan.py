"""Orders the kernel operations of a delta, so that no new connection is lost between any two of them.

A table changes as a whole, but sets and tables change one after another. So:

1. what rules ask for, and what refuses those who are not forwarded any more, is put into sets;
2. the tables change, nat before filter: who is translated meets no refusal;
3. sets let go of what no rule asks for any more, and of refusals of those who are forwarded now.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from attrs import frozen

from kproxy_core.model.addresses import Family
from kproxy_core.program.delta import Delta, patch
from kproxy_core.program.program import Program, objects
from kproxy_core.wire.ipset import IpSet
from kproxy_iptables import sets
from kproxy_iptables.codec import rules_of
from kproxy_iptables.objects import FAMILIES, OTHER_VARIANT, PORT_CHAINS, SETTING, TABLES, VERSIONS, Key, Value
from kproxy_iptables.restore import Block, RestoreTables, TableChange


@frozen
class MakeSet:
    """Make a set, or remake one that is of another definition, with these elements in it."""

    wanted: IpSet
    keys: tuple[bytes, ...] = ()
    remake: bool = False


@frozen
class DestroySet:
    """Destroy a set that no rule uses any more."""

    name: str


@frozen
class AddElements:
    """Add elements to a set."""

    target: IpSet
    keys: tuple[bytes, ...]


@frozen
class DeleteElements:
    """Delete elements from a set."""

    target: IpSet
    keys: tuple[bytes, ...]


@frozen
class WriteSetting:
    """Write a kernel setting; None for what it was before us."""

    name: str
    value: str | None


@frozen
class ClearVariant:
    """Remove what is ours from the variant of iptables that is not in use."""

    name: str


Step = MakeSet | DestroySet | AddElements | DeleteElements | RestoreTables | WriteSetting | ClearVariant

Places = dict[str, dict[str | bytes, object]]

FIXED_SETS: Final = {shape.name: shape for family in Family for shape in sets.definitions(family).values()}


def plan(before: Program[Key, Value], delta: Delta[Key, Value]) -> list[Step]:
    """Order a delta; see ``Backend.plan``."""
    added, changed, removed = _by_place(delta.added), _by_place(delta.changed), _by_place(delta.removed)
    remade = _remade(before, delta, changed)
    return [
        *(WriteSetting(str(name), None) for name in removed.get(SETTING, {})),
        *_make_sets(added),
        *remade,
        *_elements(AddElements, added),
        *_tables(added, changed, removed),
        *_elements(DeleteElements, removed),
        *(DestroySet(str(name)) for version in FAMILIES for name in removed.get(f"{version} set", {})),
        # After the rules that guard what it opens, and taken back before they go.
        *(WriteSetting(str(name), str(value)) for name, value in _settings(added, changed)),
        *(ClearVariant(str(name)) for name in removed.get(OTHER_VARIANT, {})),
    ]


def _by_place(items: Mapping[Key, object]) -> Places:
    places: Places = defaultdict(dict)
    for (place, name), value in items.items():
        places[place][name] = value
    return places


def _settings(added: Places, changed: Places) -> Iterator[tuple[str | bytes, object]]:
    yield from added.get(SETTING, {}).items()
    yield from ((name, pair[1]) for name, pair in changed.get(SETTING, {}).items() if isinstance(pair, tuple))


# -- sets


def _make_sets(added: Places) -> Iterator[Step]:
    for version in FAMILIES:
        yield from (MakeSet(wanted) for wanted in added.get(f"{version} set", {}).values() if isinstance(wanted, IpSet))


def _remade(before: Program[Key, Value], delta: Delta[Key, Value], changed: Places) -> list[Step]:
    """Make sets anew that another version, or somebody else, has defined otherwise, with all that is to be in them."""
    wanted = [
        pair[1]
        for version in FAMILIES
        for pair in changed.get(f"{version} set", {}).values()
        if isinstance(pair, tuple) and isinstance(pair[1], IpSet)
    ]
    if not wanted:
        return []
    after = patch(objects(before), delta)
    return [
        MakeSet(each, tuple(name for place, name in after if place == each.name and isinstance(name, bytes)), remake=True)
        for each in wanted
    ]


def _elements(kind: type[AddElements] | type[DeleteElements], places: Places) -> Iterator[Step]:
    for place, items in places.items():
        if place in FIXED_SETS and items:
            yield kind(FIXED_SETS[place], tuple(name for name in items if isinstance(name, bytes)))


# -- tables


def _tables(added: Places, changed: Places, removed: Places) -> Iterator[RestoreTables]:
    for family, version in VERSIONS.items():
        changes = [_table(version, table, (added, changed, removed)) for table in TABLES]
        needed = tuple(change for change in changes if len(change))
        if needed:
            yield RestoreTables(family, needed)


def _table(version: str, table: str, places: tuple[Places, Places, Places]) -> TableChange:
    added, changed, removed = places
    place = f"{version} {table} chain"
    filled = {str(name): value for name, value in added.get(place, {}).items()}
    filled.update((str(name), pair[1]) for name, pair in changed.get(place, {}).items() if isinstance(pair, tuple))
    of_ports = sorted((name for name in filled if name.startswith(PORT_CHAINS)), key=_rank)
    others = [name for name in filled if not name.startswith(PORT_CHAINS)]
    apart = tuple(Block((place, name), _declared(name), f"-A {name} ", _rules(filled[name])) for name in of_ports)
    together = (
        *_branches_declared(version, table, added),
        *(Block((place, name), _declared(name)) for name in others),
        *(Block((place, name), "", f"-A {name} ", _rules(filled[name])) for name in others),
        *_loose(version, table, places),
        *_let_go(version, table, removed),
    )
    return TableChange(table=table, apart=apart, together=together)


def _rank(chain: str) -> int:
    return next(index for index, prefix in enumerate(PORT_CHAINS) if chain.startswith(prefix))


def _rules(value: object) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _declared(chain: str) -> str:
    """The line that makes a chain, or empties it."""
    return f":{chain} - [0:0]"


def _branches_declared(version: str, table: str, added: Places) -> Iterator[Block]:
    place = f"{version} {table} branch"
    yield from (Block((place, name), _declared(str(name))) for name in added.get(place, {}))


def _loose(version: str, table: str, places: tuple[Places, Places, Places]) -> Iterator[Block]:
    """Rules that are added and deleted one by one: those of the tree, and those in built-in chains."""
    added, changed, removed = places
    kinds = [f"{version} {table} {kind}" for kind in ("rule", "branch", "hook")]
    for place in kinds:
        for name, value in removed.get(place, {}).items():
            yield from _one_by_one("-D ", (place, name), value)
        for name, pair in changed.get(place, {}).items():
            if isinstance(pair, tuple):
                yield from _one_by_one("-D ", (place, name), pair[0])
    for place in kinds:
        verb = "-I " if place.endswith(" hook") else "-A "
        for name, value in added.get(place, {}).items():
            yield from _one_by_one(verb, (place, name), value)
        for name, pair in changed.get(place, {}).items():
            if isinstance(pair, tuple):
                yield from _one_by_one(verb, (place, name), pair[1])


def _one_by_one(verb: str, key: Key, value: object) -> Iterator[Block]:
    if isinstance(value, str | tuple):
        rules = tuple(rules_of(key, value))
        if rules:
            yield Block(key, "", verb, rules)


def _let_go(version: str, table: str, removed: Places) -> Iterator[Block]:
    """Remove chains, all of them emptied before, since they may lead to one another."""
    keys: list[Key] = [
        (place, name) for place in (f"{version} {table} chain", f"{version} {table} branch") for name in removed.get(place, {})
    ]
    yield from (Block(key, f"-F {key[1]!s}") for key in keys)
    yield from (Block(key, f"-X {key[1]!s}") for key in keys)
