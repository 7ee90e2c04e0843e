"""Shows a program as text for people: first what each Service port's addresses lead to, then what is the same for all.

Elements of the maps that belong to one Service port are told there, in words; all others are shown as nft prints them. So nothing
is told twice and nothing is left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kproxy_core.model.addresses import Family
from kproxy_core.program.program import Program, objects
from kproxy_core.wire.nft_data import Verdict
from kproxy_core.wire.nft_objects import Set
from kproxy_nftables import numbered
from kproxy_nftables.objects import FAMILY_NAMES, TABLE, Chain, Key, Owned, Value
from kproxy_nftables.rule_text import rule_lines
from kproxy_nftables.service_text import service_text
from kproxy_nftables.sets import shapes
from kproxy_nftables.type_text import concatenation, type_text, types_of

_HOOK_NAMES: Final = ("prerouting", "input", "forward", "output", "postrouting")

_Elements = Mapping[str | bytes, Value]


def render(program: Program[Key, Value]) -> str:
    """Return the whole program as text, sorted, the same for the same objects."""
    everything = numbered.spread(objects(program))
    return "".join(
        line + "\n"
        for family in Family
        if (FAMILY_NAMES[family], "table") in everything
        for line in _table(family, program, everything)
    )


def _table(family: Family, program: Program[Key, Value], everything: Mapping[Key, Value]) -> Iterator[str]:
    name = FAMILY_NAMES[family]
    yield f"table {name} {TABLE} {{"
    told: set[Key] = set()
    fragments = [(str(key.name), fragment) for key, fragment in program.fragments.items() if key.family is family]
    for owner, fragment in sorted(fragments, key=lambda item: item[0]):
        text = service_text(family, fragment)
        told |= text.told
        if text.lines:
            yield f"\tservice {owner} {{ # id {fragment.id}"
            yield from (f"\t\t{line}" for line in text.lines)
            yield "\t}"
    places: dict[str, dict[str | bytes, Value]] = defaultdict(dict)
    counts: dict[str, int] = defaultdict(int)
    for (place, key), value in everything.items():
        if (place, key) in told:
            counts[place] += 1
        else:
            places[place][key] = value
    by_name = {shape.name: shape for shape in shapes(family).values()}
    for shape in by_name.values():
        place = f"{name} {shape.name}"
        yield from _set(shape, places.get(place, {}), counts[place])
    for chain_name, chain in sorted(places.get(f"{name} chain", {}).items(), key=lambda item: str(item[0])):
        if isinstance(chain, Chain):
            yield from _chain(str(chain_name), chain, by_name)
    yield "}"


def _set(shape: Set, elements: _Elements, told: int) -> Iterable[str]:
    kind = "set" if shape.data_type is None else "map"
    data = "" if shape.data_type is None else f" : {type_text(shape.data_type)}"
    yield f"\t{kind} {shape.name} {{"
    yield f"\t\ttype {type_text(shape.key_type)}{data}"
    if told:
        yield f"\t\t# {told} element{'' if told == 1 else 's'}, told with the services"
    rows = sorted((key, value) for key, value in elements.items() if isinstance(key, bytes)) if elements else []
    if rows:
        yield "\t\telements = {"
        yield from (f"\t\t\t{_element(shape, key, value)}," for key, value in rows)
        yield "\t\t}"
    yield "\t}"


def _element(shape: Set, key: bytes, value: Value) -> str:
    types = types_of(shape.key_type)
    text = concatenation(types, key[: shape.key_length])
    if len(key) > shape.key_length:
        last = concatenation(types[1:], key[shape.key_length + 4 :])
        text = f"{text}-{last}"
    match value:
        case Owned(data=data, owner=owner):
            return f'{text} comment "{owner}" : {concatenation(types_of(shape.data_type or 0), data)}'
        case Verdict():
            return f"{text} : {value}"
        case bytes() if value:
            return f"{text} : {concatenation(types_of(shape.data_type or 0), value)}"
        case _:
            return text


def _chain(name: str, chain: Chain, shapes_by_name: Mapping[str, Set]) -> Iterable[str]:
    yield f"\tchain {name} {{"
    if chain.hook is not None:
        yield f"\t\ttype nat hook {_HOOK_NAMES[chain.hook.number]} priority {chain.hook.priority}; policy accept;"
    for rule in chain.rules:
        if rule.comment:
            yield f"\t\t# {rule.comment}"
        first, *rest = rule_lines(rule, shapes_by_name) or [""]
        yield f"\t\t{first}"
        yield from (f"\t\t\t{line}" for line in rest)
    yield "\t}"
