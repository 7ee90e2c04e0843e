"""Reads YAML nodes field by field, and keeps everything that is wrong with them, with lines and the names that were meant."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import yaml
from attrs import frozen

from kproxy_core.config.positions import Problem
from kproxy_core.sources.documents import read_text

T = TypeVar("T")

_NULL = "tag:yaml.org,2002:null"


def near(word: str, known: Iterable[str]) -> str:
    """What may have been meant, or all that there is, as the end of a sentence."""
    names = sorted(known)
    by_lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[found[0]]}?" if found else f" (there are: {', '.join(names)})"


def line_of(node: yaml.Node) -> int:
    """The line at which a node begins, from 1."""
    return int(node.start_mark.line) + 1


def split_words(text: str) -> list[str]:
    """Words with blanks between; what is in braces is one."""
    words: list[str] = []
    depth = 0
    for word in text.split():
        if depth:
            words[-1] += f" {word}"
        else:
            words.append(word)
        depth += word.count("{") - word.count("}")
    return words


class Problems:
    """All that is wrong with a file, in the order of its lines."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def add(self, node: yaml.Node, path: str, message: str) -> None:
        """Note one."""
        self._found.append(Problem(line=line_of(node), field=path, message=message))

    def all(self) -> tuple[Problem, ...]:
        """Return them by line."""
        return tuple(sorted(self._found))


@frozen
class Field:
    """A YAML node, where in the document it is, and where problems go. Reading never raises: what cannot be read is a default."""

    node: yaml.Node
    path: str
    problems: Problems

    @property
    def line(self) -> int:
        """Its line."""
        return line_of(self.node)

    def wrong(self, message: str) -> None:
        """Note that something is wrong with it."""
        self.problems.add(self.node, self.path, message)

    def check(self, function: Callable[[], T]) -> T | None:
        """What a function gives; None when it raises ``ValueError``, which is noted."""
        try:
            return function()
        except ValueError as error:
            self.wrong(str(error))
            return None

    def text(self) -> str:
        """A scalar as it is written; nothing is the empty text."""
        if not isinstance(self.node, yaml.ScalarNode):
            self.wrong("a text is expected, not a list or a mapping")
            return ""
        return "" if self.node.tag == _NULL and not self.node.style else str(self.node.value)

    def words(self) -> tuple[str, ...]:
        """Words with blanks between, or a list of them."""
        if isinstance(self.node, yaml.SequenceNode):
            return tuple(each.text() for each in self.items())
        return tuple(split_words(self.text()))

    def parts(self) -> tuple[str, ...]:
        """The items of a list, or of a text with commas between."""
        if isinstance(self.node, yaml.SequenceNode):
            return tuple(each.text().strip() for each in self.items())
        return tuple(part.strip() for part in self.text().split(","))

    def choices(self, known: Iterable[str]) -> tuple[str, ...]:
        """Words of which each is known."""
        allowed = tuple(known)
        found = self.words()
        for word in found:
            if word not in allowed:
                self.wrong(f"{word!r} is unknown{near(word, allowed)}")
        return tuple(word for word in found if word in allowed)

    def choice(self, known: Iterable[str]) -> str:
        """One known word; the first known one when it is not."""
        allowed = tuple(known)
        word = self.text()
        if word not in allowed:
            self.wrong(f"{word!r} is unknown{near(word, allowed)}")
            return allowed[0]
        return word

    def number(self, least: int = 0, most: int = 1 << 31) -> int:
        """A whole number."""
        text = self.text()
        if not text.isdecimal() or not least <= int(text) <= most:
            self.wrong(f"a whole number from {least} to {most} is expected, not {text!r}")
            return least
        return int(text)

    def seconds(self) -> float:
        """A number of seconds, with or without a fraction."""
        try:
            return float(self.text())
        except ValueError:
            self.wrong(f"a number of seconds is expected, not {self.text()!r}")
            return 0.0

    def truth(self) -> bool:
        """True or false."""
        return self.choice(("false", "true")) == "true"

    def items(self) -> list["Field"]:
        """The items of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.wrong("a list is expected")
            return []
        return [Field(item, f"{self.path}[{index}]", self.problems) for index, item in enumerate(self.node.value)]

    def fields(self, known: Iterable[str], needed: Iterable[str] = ()) -> dict[str, "Field"]:
        """The fields of a mapping by name; unknown, repeated and missing ones are noted."""
        if not isinstance(self.node, yaml.MappingNode):
            self.wrong("a mapping is expected")
            return {}
        allowed = tuple(known)
        found: dict[str, Field] = {}
        for key, value in self.node.value:
            name = str(key.value)
            where = f"{self.path}.{name}" if self.path else name
            if name not in allowed:
                self.problems.add(key, where, f"no field of this name{near(name, allowed)}")
            elif name in found:
                self.problems.add(key, where, f"given twice, first in line {found[name].line}")
            else:
                found[name] = Field(value, where, self.problems)
        for name in needed:
            if name not in found:
                self.wrong(f"{name} is missing")
        return found

    def only(self, known: Iterable[str]) -> tuple[str, "Field"] | None:
        """The one field of a mapping that has exactly one."""
        found = self.fields(known)
        if len(found) == 1:
            return next(iter(found.items()))
        if found:
            self.wrong(f"one of these is expected alone: {', '.join(found)}")
        return None

    def plain(self) -> Any:
        """Plain data as Kubernetes reads it: true, false, null and numbers are what they look like, all else is text."""
        return read_text(yaml.serialize(self.node).encode()).documents[0].data

    def mapping(self) -> Mapping[str, Any]:
        """A mapping of plain data."""
        if not isinstance(self.node, yaml.MappingNode):
            self.wrong("a mapping is expected")
            return {}
        data: Mapping[str, Any] = self.plain() or {}
        return data
