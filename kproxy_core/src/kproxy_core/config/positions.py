"""Reads a YAML or JSON mapping into typed values, and tells everything that is wrong with it at once, with lines.

The shape to read is an attrs class: an attribute's metadata names its key in the file and the :class:`Kind` of its value, or
it is a section, another attrs class. Scalars are read as Kubernetes' own tools read configuration files (YAML 1.1 by go-yaml:
``yes`` is a boolean where one is wanted).
"""

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import attrs
import yaml
from attrs import field, frozen

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


@frozen(kw_only=True)
class Reading:
    """A value read, the line of each field that the file gives (by dotted path), and the problems."""

    value: Any
    lines: Mapping[str, int]
    problems: tuple[Problem, ...]


def read(text: str, shape: type[Any], removed: Mapping[str, str]) -> Reading:
    """Read ``text`` as ``shape``; fields that cannot be read keep their defaults.

    ``removed`` names fields that older versions had, with what to do: they are told, but harmless.
    """
    reader = _Reader(removed)
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        reader.problems.append(_syntax_problem(error))
        node = None
    else:
        if node is None:
            reader.problems.append(Problem(line=1, field="", message="the file is empty"))
    value = shape() if node is None else reader.section(node, shape, "")
    return Reading(value=value, lines=reader.lines, problems=tuple(sorted(reader.problems)))


def _syntax_problem(error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    text = getattr(error, "problem", None) or "cannot be read"
    return Problem(line=mark.line + 1 if mark else 1, field="", message=f"this is no YAML: {text}")


class _Reader:
    """Walks the nodes, keeping lines and problems."""

    def __init__(self, removed: Mapping[str, str]) -> None:
        self.lines: dict[str, int] = {}
        self.problems: list[Problem] = []
        self._removed = removed

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
            name = str(key_node.value)
            here = f"{path}.{name}" if path else name
            line = key_node.start_mark.line + 1
            if name in seen:
                self._problem(key_node, here, f"given twice, first in line {seen[name]}")
            elif name in attributes:
                self.lines[here] = line
                self._value(attributes[name], value_node, here, values)
            else:
                self._unknown(key_node, here, path, list(attributes))
            seen.setdefault(name, line)
        return shape(**values)

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
        by_lower = {name.lower(): name for name in known}
        name = path.rpartition(".")[2]
        near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
        within = f"of {parent}" if parent else "of a KubeProxyConfiguration"
        hint = f"; did you mean {by_lower[near[0]]}?" if near else f" (there are: {', '.join(sorted(known))})"
        self._problem(node, path, f"no field {within}{hint}")

    def _problem(self, node: yaml.Node, path: str, message: str, *, fatal: bool = True) -> None:
        self.problems.append(Problem(line=node.start_mark.line + 1, field=path, message=message, fatal=fatal))
