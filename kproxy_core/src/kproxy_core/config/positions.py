"""Reads a YAML or JSON mapping into typed values, and tells everything that is wrong with it at once, with lines.

The shape to read is an attrs class: an attribute's metadata names its key in the file and the :class:`Kind` of its value, or
it is a section, another attrs class. Scalars are read as Kubernetes' own tools read configuration files (YAML 1.1 by go-yaml:
``yes`` is a boolean where one is wanted).
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import attrs
import yaml
from attrs import evolve, field, frozen

T = TypeVar("T")
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL: Final = "tag:yaml.org,2002:null"


@frozen(kw_only=True, order=True)
class Problem:
    """What is wrong with one field of a file. ``line`` counts from 1; ``fatal`` problems make the file unusable."""

    line: int
    field: str
    message: str
    fatal: bool = True

    @property
    def text(self) -> str:
        """The field and what is wrong with it."""
        return f"{self.field}: {self.message}" if self.field else self.message


@frozen
class Kind:
    """How a scalar, list or map is read: ``read`` gets the YAML node and raises ``ValueError`` saying what was expected."""

    read: Callable[[yaml.Node], Any]


def key(name: str, kind: Kind, default: Any, *, unless_zero: bool = False) -> Any:
    """Declare an attribute that is read from ``name``; with ``unless_zero`` a zero in the file stands for the default."""
    return field(default=default, metadata={"key": name, "kind": kind, "unless_zero": unless_zero})


def section(name: str, shape: type[Any]) -> Any:
    """Declare an attribute that is a section of the file."""
    return field(factory=shape, metadata={"key": name, "shape": shape})


def field_paths(shape: type[Any], parent: str = "") -> Iterator[str]:
    """Yield the dotted path of every field of a shape, sections aside."""
    for attribute in attrs.fields(shape):
        path = f"{parent}{attribute.metadata['key']}"
        if "shape" in attribute.metadata:
            yield from field_paths(attribute.metadata["shape"], f"{path}.")
        else:
            yield path


@frozen(kw_only=True)
class Reading:
    """A value read, the line of each field that the file gives (by dotted path), and the problems.

    ``unreadable`` tells that there is no document at all, so that nothing can be said of the value.
    """

    value: Any
    lines: Mapping[str, int]
    problems: tuple[Problem, ...]
    unreadable: bool = False


def read(text: str, shape: type[Any], removed: Mapping[str, str]) -> Reading:
    """Read ``text`` as ``shape``; fields that cannot be read keep their defaults.

    ``removed`` names fields that older versions had, with what to do: they are told, but harmless.
    """
    reader = _Reader(shape, removed)
    node = _document(text, reader.problems)
    value = shape() if node is None else reader.section(node, shape, "")
    # libyaml finds the end of an unfinished text in the line after the last.
    last = max(1, len(text.splitlines()))
    problems = tuple(sorted(evolve(problem, line=min(problem.line, last)) for problem in reader.problems))
    return Reading(value=value, lines=reader.lines, problems=problems, unreadable=node is None)


def _document(text: str, problems: list[Problem]) -> yaml.Node | None:
    """Return the one document there is to read."""
    try:
        documents = list(yaml.compose_all(text, Loader=_Loader))
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        problems.append(_syntax_problem(error, text))
        return None
    found = [document for document in documents if document is not None and document.tag != _NULL]
    if not found:
        problems.append(Problem(line=1, field="", message="the file is empty"))
        return None
    for other in found[1:]:
        line = other.start_mark.line + 1
        problems.append(Problem(line=line, field="", message="one document is expected, and another one begins here"))
    return found[0]


def _syntax_problem(error: Exception, text: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    position = getattr(error, "position", None)
    line = 1
    if mark is not None:
        line = mark.line + 1
    elif position is not None:
        line = text.count("\n", 0, position) + 1
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    if text.split("\n")[min(line - 1, text.count("\n"))].lstrip(" ").startswith("\t"):
        reason = f"{reason}; indent with blanks, not with tabs"
    return Problem(line=line, field="", message=f"this is no YAML: {reason}")


class _Reader:
    """Walks the nodes, keeping lines and problems."""

    def __init__(self, shape: type[Any], removed: Mapping[str, str]) -> None:
        self.lines: dict[str, int] = {}
        self.problems: list[Problem] = []
        self._removed = removed
        self._places: dict[str, list[str]] = {}
        for path in field_paths(shape):
            self._places.setdefault(path.rpartition(".")[2].lower(), []).append(path)

    def section(self, node: yaml.Node, shape: type[T], path: str) -> T:
        """Read a mapping into an attrs class."""
        if node.tag == _NULL:
            return shape()
        if not isinstance(node, yaml.MappingNode):
            self._problem(node, path, "a section with fields is expected here")
            return shape()
        attributes = {attribute.metadata["key"]: attribute for attribute in attrs.fields(shape)}  # type: ignore[arg-type]
        values: dict[str, Any] = {}
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(key_node, path, "the name of a field is expected here")
                continue
            name = str(key_node.value)
            here = f"{path}.{name}" if path else name
            if name in seen:
                self._problem(key_node, here, f"given twice, first in line {seen[name]}")
            elif name in attributes:
                self._remember(key_node, value_node, here)
                self._value(attributes[name], value_node, here, values)
            else:
                self._unknown(key_node, here, path, list(attributes))
            seen.setdefault(name, key_node.start_mark.line + 1)
        return shape(**values)

    def _remember(self, key_node: yaml.Node, value_node: yaml.Node, path: str) -> None:
        """Keep the line of a field, and those of its items, so that what is found later can point there."""
        self.lines[path] = key_node.start_mark.line + 1
        if isinstance(value_node, yaml.SequenceNode):
            self.lines.update({f"{path}[{index}]": item.start_mark.line + 1 for index, item in enumerate(value_node.value)})
        elif isinstance(value_node, yaml.MappingNode):
            self.lines.update({f"{path}.{item.value}": item.start_mark.line + 1 for item, _ in value_node.value})

    def _value(self, attribute: Any, node: yaml.Node, path: str, values: dict[str, Any]) -> None:
        if "shape" in attribute.metadata:
            values[attribute.name] = self.section(node, attribute.metadata["shape"], path)
            return
        if node.tag == _NULL:
            return
        try:
            value = attribute.metadata["kind"].read(node)
        except ValueError as error:
            self._problem(node, path, str(error))
            return
        if value or not attribute.metadata["unless_zero"]:
            values[attribute.name] = value

    def _unknown(self, node: yaml.Node, path: str, parent: str, known: list[str]) -> None:
        if path in self._removed:
            self._problem(node, path, f"no longer a field: {self._removed[path]}", fatal=False)
            return
        name = path.removeprefix(f"{parent}.")
        within = f"of {parent}" if parent else "of the file"
        elsewhere = [place for place in self._places.get(name.lower(), ()) if place.lower() != path.lower()]
        by_lower = {each.lower(): each for each in known}
        near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
        if near:
            hint = f"; did you mean {by_lower[near[0]]}?"
        elif elsewhere:
            hint = f"; did you mean {' or '.join(elsewhere)}?"
        else:
            hint = f" (there are: {', '.join(sorted(known))})"
        self._problem(node, path, f"no field {within}{hint}")

    def _problem(self, node: yaml.Node, path: str, message: str, *, fatal: bool = True) -> None:
        self.problems.append(Problem(line=node.start_mark.line + 1, field=path, message=message, fatal=fatal))
