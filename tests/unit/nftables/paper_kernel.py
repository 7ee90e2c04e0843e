"""nf_tables on paper: takes the plugin's transactions as the kernel would, and shows every state they lead through.

It knows the mode's wire format and nothing of its layout.
"""

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import evolve, field, frozen

from kproxy_core.wire import netlink, nfnetlink
from kproxy_core.wire.nft_constants import MessageKind, SetFlag
from kproxy_core.wire.nft_data import Verdict
from kproxy_core.wire.nft_elements import Element, decode_elements
from kproxy_core.wire.nft_expressions import AnyExpression, Dynset, Immediate, Lookup
from kproxy_core.wire.nft_objects import Chain, DumpedRule, Set, Table
from kproxy_core.wire.nft_operations import Operation


class RefusedError(Exception):
    """The kernel refuses a transaction; ``index`` is the operation's."""

    def __init__(self, number: int, index: int, operation: Operation) -> None:
        super().__init__(f"{errno.errorcode[number]} for operation {index}: {operation.kind.name}")
        self.number = number
        self.index = index


@frozen
class PaperChain:
    """A chain and its rules, each with its comment."""

    chain: Chain
    rules: tuple[tuple[tuple[AnyExpression, ...], str], ...] = ()


@frozen
class PaperSet:
    """A set and its elements by key (of a range: its start)."""

    shape: Set
    elements: Mapping[bytes, Element] = field(factory=dict)


@frozen
class PaperTable:
    """A table; never mutated."""

    table: Table
    chains: Mapping[str, PaperChain] = field(factory=dict)
    sets: Mapping[str, PaperSet] = field(factory=dict)


Tables = Mapping[int, PaperTable]
"""A state of the kernel: our table of each family."""


def commit(tables: Tables, operations: Sequence[Operation]) -> Tables:
    """The state after a transaction. Raises :class:`RefusedError`; then nothing has changed."""
    now: dict[int, PaperTable] = dict(tables)
    for index, operation in enumerate(operations):
        try:
            _HANDLERS[operation.kind](now, operation)
        except _NoError as no:
            raise RefusedError(no.number, index, operation) from None
    return now


class _NoError(Exception):
    def __init__(self, number: int) -> None:
        self.number = number


def _payload(operation: Operation) -> bytes:
    return nfnetlink.family_header(operation.family) + operation.attributes


def _require(condition: object, number: int) -> None:
    if not condition:
        raise _NoError(number)


def _table_of(now: dict[int, PaperTable], operation: Operation) -> PaperTable:
    _require(operation.family in now, errno.ENOENT)
    return now[operation.family]


def _text(operation: Operation, kind: int) -> str:
    return netlink.decode_string(netlink.attributes(operation.attributes)[kind])


def _new_table(now: dict[int, PaperTable], operation: Operation) -> None:
    table = Table.decode(_payload(operation))
    before = now.get(operation.family)
    now[operation.family] = PaperTable(table) if before is None else evolve(before, table=table)


def _delete_table(now: dict[int, PaperTable], operation: Operation) -> None:
    _require(operation.family in now, errno.ENOENT)
    del now[operation.family]


def _new_chain(now: dict[int, PaperTable], operation: Operation) -> None:
    table, chain = _table_of(now, operation), Chain.decode(_payload(operation))
    before = table.chains.get(chain.name)
    if before is not None:
        _require(before.chain.base == chain.base, errno.EEXIST)
        return
    now[operation.family] = evolve(table, chains={**table.chains, chain.name: PaperChain(chain)})


def _delete_chain(now: dict[int, PaperTable], operation: Operation) -> None:
    table, name = _table_of(now, operation), _text(operation, 3)
    _require(name in table.chains, errno.ENOENT)
    _require(not table.chains[name].rules and name not in set(_led_to(table)), errno.EBUSY)
    now[operation.family] = evolve(table, chains={key: chain for key, chain in table.chains.items() if key != name})


def _led_to(table: PaperTable) -> Iterator[str]:
    for chain in table.chains.values():
        for expressions, _ in chain.rules:
            for expression in expressions:
                if isinstance(expression, Immediate) and isinstance(expression.data, Verdict) and expression.data.chain:
                    yield expression.data.chain
    for target in table.sets.values():
        for element in target.elements.values():
            if isinstance(element.data, Verdict) and element.data.chain:
                yield element.data.chain


def _new_rule(now: dict[int, PaperTable], operation: Operation) -> None:
    table = _table_of(now, operation)
    rule = DumpedRule.decode(_payload(evolve(operation, attributes=operation.attributes + netlink.u64be(3, 0))))
    chain = table.chains.get(rule.chain)
    if chain is None:
        raise _NoError(errno.ENOENT)
    for expression in rule.decoded():
        if isinstance(expression, Lookup | Dynset):
            _require(expression.set_name in table.sets, errno.ENOENT)
        if isinstance(expression, Immediate) and isinstance(expression.data, Verdict):
            _require(expression.data.chain is None or expression.data.chain in table.chains, errno.ENOENT)
    filled = evolve(chain, rules=(*chain.rules, (rule.decoded(), rule.comment or "")))
    now[operation.family] = evolve(table, chains={**table.chains, rule.chain: filled})


def _flush_chain(now: dict[int, PaperTable], operation: Operation) -> None:
    table, name = _table_of(now, operation), _text(operation, 2)
    _require(name in table.chains, errno.ENOENT)
    now[operation.family] = evolve(table, chains={**table.chains, name: evolve(table.chains[name], rules=())})


def _new_set(now: dict[int, PaperTable], operation: Operation) -> None:
    table, shape = _table_of(now, operation), Set.decode(_payload(operation))
    before = table.sets.get(shape.name)
    if before is not None:
        _require(before.shape == shape, errno.EEXIST)
        return
    now[operation.family] = evolve(table, sets={**table.sets, shape.name: PaperSet(shape)})


def _delete_set(now: dict[int, PaperTable], operation: Operation) -> None:
    table, name = _table_of(now, operation), _text(operation, 2)
    _require(name in table.sets, errno.ENOENT)
    asked = {e.set_name for c in table.chains.values() for rule, _ in c.rules for e in rule if isinstance(e, Lookup | Dynset)}
    _require(name not in asked, errno.EBUSY)
    now[operation.family] = evolve(table, sets={key: each for key, each in table.sets.items() if key != name})


def _new_elements(now: dict[int, PaperTable], operation: Operation) -> None:
    table, name = _table_of(now, operation), _text(operation, 2)
    _require(name in table.sets, errno.ENOENT)
    target = table.sets[name]
    elements = dict(target.elements)
    for element in decode_elements(_payload(operation)):
        if isinstance(element.data, Verdict):
            _require(element.data.chain is None or element.data.chain in table.chains, errno.ENOENT)
        same = elements.get(element.key)
        if same is not None:
            _require((same.data, same.key_end) == (element.data, element.key_end), errno.EEXIST)
        elif target.shape.flags & SetFlag.INTERVAL:
            _require(not any(overlap(target.shape, element, other) for other in elements.values()), errno.ENOTEMPTY)
        _require(not target.shape.size or len(elements) < target.shape.size or same is not None, errno.ENFILE)
        elements[element.key] = element
    now[operation.family] = evolve(table, sets={**table.sets, name: evolve(target, elements=elements)})


def overlap(shape: Set, one: Element, other: Element) -> bool:
    """Whether two ranges have a point in common: their intervals meet in every field."""
    start = 0
    for length in shape.field_lengths:
        part = slice(start, start + length)
        ends = (one.key_end or one.key)[part], (other.key_end or other.key)[part]
        if one.key[part] > ends[1] or other.key[part] > ends[0]:
            return False
        start += length
    return True


def _delete_elements(now: dict[int, PaperTable], operation: Operation) -> None:
    table, name = _table_of(now, operation), _text(operation, 2)
    _require(name in table.sets, errno.ENOENT)
    target = table.sets[name]
    elements = dict(target.elements)
    for element in decode_elements(_payload(operation)):
        _require(element.key in elements and elements[element.key].key_end == element.key_end, errno.ENOENT)
        del elements[element.key]
    now[operation.family] = evolve(table, sets={**table.sets, name: evolve(target, elements=elements)})


_HANDLERS: Mapping[MessageKind, Callable[[dict[int, PaperTable], Operation], None]] = {
    MessageKind.NEWTABLE: _new_table,
    MessageKind.DELTABLE: _delete_table,
    MessageKind.NEWCHAIN: _new_chain,
    MessageKind.DELCHAIN: _delete_chain,
    MessageKind.NEWRULE: _new_rule,
    MessageKind.DELRULE: _flush_chain,
    MessageKind.NEWSET: _new_set,
    MessageKind.DELSET: _delete_set,
    MessageKind.NEWSETELEM: _new_elements,
    MessageKind.DELSETELEM: _delete_elements,
}
