"""Reads YAML and JSON text into plain data, document by document, with line numbers and duplicate keys told.

YAML is read by the rules that Kubernetes users expect rather than all of YAML 1.1: true, false, null and decimal numbers are what
they look like, everything else is text; ``no`` is no boolean and a date is no date. PyYAML takes duplicate keys silently and the
last one wins; here it still does, but not silently.
"""

import json
import re
from collections.abc import Hashable, Iterator
from typing import Any, ClassVar, Final

import yaml
from attrs import frozen

_SafeLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C, if PyYAML was built with it, is ten times as fast."""


class BrokenTextError(ValueError):
    """Text that cannot be read at all; ``line`` counts from 1, ``remedy`` says what to do."""

    def __init__(self, line: int, message: str, remedy: str = "correct the file") -> None:
        super().__init__(message)
        self.line = line
        self.remedy = remedy


@frozen
class Document:
    """One document: its data, the line it begins at, and the lines at which its ``items`` begin, where these are known."""

    data: object
    line: int
    item_lines: tuple[int, ...] = ()


@frozen
class DuplicateKey:
    """A key that a mapping has twice; the last value counts. ``line`` is 0 where it is not known."""

    key: str
    line: int


@frozen(kw_only=True)
class Documents:
    """All documents of a text, empty ones left out."""

    documents: tuple[Document, ...] = ()
    duplicates: tuple[DuplicateKey, ...] = ()


class _Loader(_SafeLoader):  # type: ignore[misc, valid-type]
    """A safe loader with Kubernetes' idea of scalars."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.duplicates: list[DuplicateKey] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Construct a mapping and note the keys it has twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    self.duplicates.append(DuplicateKey(key.value, key.start_mark.line + 1))
                seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), list(_first))


def read_text(content: bytes) -> Documents:
    """Read a file's content, JSON if it looks like it, else YAML.

    Raises :class:`BrokenTextError` when any part of it cannot be read: half a file is no answer.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BrokenTextError(content.count(b"\n", 0, error.start) + 1, f"not UTF-8 text: {error.reason}") from error
    if text.lstrip().startswith("{"):
        try:
            return _read_json(text)
        except BrokenTextError:
            # A flow mapping of YAML begins like JSON, too.
            if text.lstrip().startswith('{"'):
                raise
    return _read_yaml(text)


def _read_json(text: str) -> Documents:
    duplicates: list[DuplicateKey] = []

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            keys = [key for key, _ in pairs]
            duplicates.extend(DuplicateKey(key, 0) for key in made if keys.count(key) > 1)
        return made

    try:
        data = json.loads(text, object_pairs_hook=mapping)
    except json.JSONDecodeError as error:
        remedy = "write one document a file, or one List" if error.msg == "Extra data" else "correct the file"
        raise BrokenTextError(error.lineno, f"{error.msg}, column {error.colno}", remedy) from error
    except (RecursionError, ValueError) as error:
        raise BrokenTextError(1, f"{error}") from error
    return Documents(documents=(Document(data, 1),), duplicates=tuple(duplicates))


def _read_yaml(text: str) -> Documents:
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:
        raise _broken(error, text) from error
    try:
        documents = tuple(_documents(loader))
    except BrokenTextError:
        raise
    except yaml.YAMLError as error:
        raise _broken(error, text) from error
    except Exception as error:
        # A tag promises a value that is none (``!!int ""``, ``!!bool x``): PyYAML lets through whatever that raises.
        raise BrokenTextError(1, f"{type(error).__name__}: {error}") from error
    finally:
        loader.dispose()
    return Documents(documents=documents, duplicates=tuple(loader.duplicates))


def _documents(loader: _Loader) -> Iterator[Document]:
    while loader.check_node():
        node = loader.get_node()
        _refuse_two_in_one(node)
        # Before its mappings are made, which clears those with merge keys.
        lines = _item_lines(node)
        data = loader.construct_document(node)
        if data is not None:
            yield Document(data, node.start_mark.line + 1, lines)


def _refuse_two_in_one(node: yaml.Node) -> None:
    """Refuse two objects without ``---`` between them: one mapping with keys twice, whose values would be mixed at random."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    again: dict[str, int] = {}
    for key, _ in node.value:
        if key.value in _HEADS:
            if key.value in seen:
                again.setdefault(key.value, key.start_mark.line + 1)
            seen.add(key.value)
    if len(again) > 1:
        message = f"{' and '.join(again)} are there twice: a second object begins here without a line --- before it"
        raise BrokenTextError(min(again.values()), message, "write a line with --- between the two objects")


_HEADS: Final = ("apiVersion", "kind", "metadata")


def _item_lines(node: yaml.Node) -> tuple[int, ...]:
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if key.value == "items" and isinstance(value, yaml.SequenceNode):
            return tuple(item.start_mark.line + 1 for item in value.value)
    return ()


def _broken(error: yaml.YAMLError, text: str) -> BrokenTextError:
    """What the parser stumbled over, in words for somebody who does not know its innards."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    if mark is None:
        return BrokenTextError(1, problem)
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    indentation = line[: len(line) - len(line.lstrip())]
    if "\t" in indentation:
        return BrokenTextError(mark.line + 1, "the line is indented with a tab, which YAML forbids", "indent with spaces only")
    remedy = next((remedy for fragment, remedy in _REMEDIES if fragment in problem), "correct the file")
    return BrokenTextError(mark.line + 1, f"{problem}, column {mark.column + 1}", remedy)


_REMEDIES: Final = (
    ("mapping values are not allowed", "check the indentation, and put text that holds a colon in quotes"),
    ("could not find expected ':'", "write a colon and a space after the key, and check the indentation"),
    ("did not find expected ',' or", "close the bracket or brace that was opened before"),
    ("did not find expected key", "check the indentation of this line and of those above"),
    ("did not find expected '-' indicator", "check the indentation of this line and of those above"),
    ("unexpected end of stream", "close the quotes that were opened before"),
    ("did not find expected alphabetic or numeric character", "put text that begins with * or & in quotes"),
    ("undefined alias", "put text that begins with * in quotes"),
    ("could not determine a constructor for the tag", "put text that begins with ! in quotes"),
    ("cannot start any token", "put text that begins with this character in quotes"),
    ("control characters are not allowed", "remove it"),
)
"""What to do, by a part of libyaml's complaint."""
