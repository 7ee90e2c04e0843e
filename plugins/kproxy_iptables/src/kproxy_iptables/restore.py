"""The text for iptables-restore: what is to be written, in which order, and whose each line is."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain as joined_chain

from attrs import frozen

from kproxy_core.model.addresses import Family
from kproxy_iptables.objects import Key


@frozen
class Block:
    """Lines that belong together: one at the head (if any), and rules that all begin with the same words."""

    key: Key
    head: str = ""
    begin: str = ""
    rules: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rules) + bool(self.head)

    def __str__(self) -> str:
        head = f"{self.head}\n" if self.head else ""
        return head + "".join([f"{self.begin}{rule}\n" for rule in self.rules])


@frozen(kw_only=True)
class TableChange:
    """What changes in one table.

    ``apart`` are chains that each make sense alone, those that others lead to first: they may be written in several transactions.
    ``together`` leads into them, or lets go of them, in one transaction after those.
    """

    table: str
    apart: tuple[Block, ...] = ()
    together: tuple[Block, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.apart)) + sum(map(len, self.together))


@frozen(kw_only=True)
class Text:
    """A whole text, in parts that are pieces of whole lines.

    ``ends`` and ``keys`` say up to which line, counted from 1, each object's lines go; None is nobody's line.
    """

    parts: Sequence[str]
    transactions: int
    ends: Sequence[int]
    keys: Sequence[Key | None]

    def __str__(self) -> str:
        return "".join(self.parts)

    def key_at(self, line: int) -> Key | None:
        """Whose a line is."""
        index = bisect_right(self.ends, line - 1)
        return self.keys[index] if index < len(self.keys) else None


def write(changes: Iterable[TableChange], lines_at_once: int | None) -> Text:
    """Write changes down, table after table.

    ``lines_at_once`` limits transactions of what is written apart; None for one transaction for a table.
    """
    parts: list[str] = []
    ends: list[int] = []
    keys: list[Key | None] = []

    def put(part: str, count: int, key: Key | None) -> None:
        parts.append(part)
        ends.append(count + (ends[-1] if ends else 0))
        keys.append(key)

    transactions = 0
    for change in changes:
        for blocks in _transactions(change, lines_at_once):
            transactions += 1
            put(f"*{change.table}\n", 1, None)
            for block in blocks:
                put(str(block), len(block), block.key)
            put("COMMIT\n", 1, None)
    return Text(parts=parts, transactions=transactions, ends=ends, keys=keys)


def _transactions(change: TableChange, lines_at_once: int | None) -> Iterator[Iterable[Block]]:
    if lines_at_once is None or sum(map(len, change.apart)) <= lines_at_once:
        yield joined_chain(change.apart, change.together)
        return
    blocks: list[Block] = []
    lines = 0
    for block in change.apart:
        if lines + len(block) > lines_at_once and blocks:
            yield blocks
            blocks, lines = [], 0
        blocks.append(block)
        lines += len(block)
    if blocks:
        yield blocks
    if change.together:
        yield change.together


@frozen
class RestoreTables:
    """Write to the tables of one family, each of them in order."""

    family: Family
    changes: tuple[TableChange, ...]

    def __len__(self) -> int:
        return sum(map(len, self.changes))

    @property
    def touches_hooks(self) -> bool:
        """Whether rules in built-in chains are added or deleted."""
        return any(block.key[0].endswith(" hook") for change in self.changes for block in change.together)
