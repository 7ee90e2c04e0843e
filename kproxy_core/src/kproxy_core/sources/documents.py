"""Reads YAML and JSON text into plain data, document by document, with line numbers and duplicate keys told.

YAML is read by the rules that Kubernetes users expect rather than all of YAML 1.1: true, false, null and decimal numbers are what
they look like, everything else is text; ``no`` is no boolean and a date is no date. PyYAML takes duplicate keys silently and the
last one wins; here it still does, but not silently.
"""

import json
import re
from collections.abc import Hashable, Iterator
from typing import Any, ClassVar

import yaml
from attrs import frozen

_SafeLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C, if PyYAML was built with it, is ten times as fast."""


class BrokenTextError(ValueError):
    """Text that cannot be read at all; ``line`` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@frozen
class Document:
    """One document: its data and the line it begins at."""

    data: object
    line: int


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
        raise BrokenTextError(error.lineno, f"{error.msg}, column {error.colno}") from error
    except (RecursionError, ValueError) as error:
        raise BrokenTextError(1, f"{error}") from error
    return Documents(documents=(Document(data, 1),), duplicates=tuple(duplicates))


def _read_yaml(text: str) -> Documents:
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:
        raise _broken(error) from error
    try:
        documents = tuple(_documents(loader))
    except yaml.YAMLError as error:
        raise _broken(error) from error
    except Exception as error:
        # A tag promises a value that is none (``!!int ""``, ``!!bool x``): PyYAML lets through whatever that raises.
        raise BrokenTextError(1, f"{type(error).__name__}: {error}") from error
    finally:
        loader.dispose()
    return Documents(documents=documents, duplicates=tuple(loader.duplicates))


def _documents(loader: _Loader) -> Iterator[Document]:
    while loader.check_node():
        node = loader.get_node()
        data = loader.construct_document(node)
        if data is not None:
            yield Document(data, node.start_mark.line + 1)


def _broken(error: yaml.YAMLError) -> BrokenTextError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    return BrokenTextError(mark.line + 1 if mark else 1, f"{problem}" + (f", column {mark.column + 1}" if mark else ""))
