"""The kinds of value in a configuration file, each with the sentence that says what is expected."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import yaml

from kproxy_core.config.positions import Kind
from kproxy_core.config.values import parse_duration

_BOOL: Final = "tag:yaml.org,2002:bool"
_INT: Final = "tag:yaml.org,2002:int"
_STR: Final = "tag:yaml.org,2002:str"
_TRUE: Final = frozenset({"true", "yes", "on"})
_OCTAL: Final = re.compile(r"[-+]?0[0-7]+")
_DECIMAL: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_QUANTITY: Final = re.compile(r"\+?(?:\d+\.?\d*|\.\d+)(?:[KMGTPE]i|[numkMGTPE]|[eE][-+]?\d+)?", re.ASCII)


def _shown(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return repr(node.value)
    return "a list" if isinstance(node, yaml.SequenceNode) else "a section"


def _text(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode) or node.tag != _STR:
        raise ValueError(
            f"text is expected, not {_shown(node)}" + (" (put it in quotes)" if isinstance(node, yaml.ScalarNode) else "")
        )
    return str(node.value)


def _boolean(node: yaml.Node) -> bool:
    if not isinstance(node, yaml.ScalarNode) or node.tag != _BOOL:
        raise ValueError(f"true or false is expected, not {_shown(node)}")
    return node.value.lower() in _TRUE


def _integer(node: yaml.Node) -> int:
    """Read a whole number of 32 bits as go-yaml does: a leading zero means octal."""
    if not isinstance(node, yaml.ScalarNode) or node.tag != _INT or ":" in node.value:
        raise ValueError(f"a whole number is expected, not {_shown(node)}")
    text = str(node.value).replace("_", "")
    number = int(text, 8 if _OCTAL.fullmatch(text) else 0)
    if not -(1 << 31) <= number < 1 << 31:
        raise ValueError(f"a whole number of at most 32 bits is expected, not {_shown(node)}")
    return number


def _number(node: yaml.Node) -> float:
    # JSON's 1e3 is text to YAML 1.1, which wants a point in it.
    if not isinstance(node, yaml.ScalarNode) or node.style or not _DECIMAL.fullmatch(node.value):
        raise ValueError(f"a number is expected, not {_shown(node)}")
    return float(node.value)


def _duration(node: yaml.Node) -> float:
    """Read seconds; a number without a unit is refused as Kubernetes refuses it (0 apart): it would be nanoseconds to some."""
    if isinstance(node, yaml.ScalarNode) and node.value == "0":
        return 0.0
    if not isinstance(node, yaml.ScalarNode) or node.tag != _STR:
        raise ValueError(f"a duration such as 500ms, 30s or 1h30m is expected, not {_shown(node)}")
    sign, text = (-1, node.value[1:]) if node.value.startswith("-") else (1, node.value)
    if not text[-1:].isalpha():
        raise ValueError(f"a duration with a unit, such as 500ms, 30s or 1h30m, is expected, not {_shown(node)}")
    return sign * parse_duration(text)


def _time(node: yaml.Node) -> float:
    """Read a duration, or a whole number of nanoseconds."""
    if isinstance(node, yaml.ScalarNode) and node.tag == _INT and node.value.isdecimal():
        return int(node.value) / 1e9
    return _duration(node)


def _quantity(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode) or not _QUANTITY.fullmatch(node.value):
        raise ValueError(f"a quantity of bytes such as 0, 4096 or 64Ki is expected, not {_shown(node)}")
    return str(node.value)


def _list_of(read: Callable[[yaml.Node], Any]) -> Callable[[yaml.Node], tuple[Any, ...]]:
    def read_list(node: yaml.Node) -> tuple[Any, ...]:
        if not isinstance(node, yaml.SequenceNode):
            raise ValueError(f"a list is expected, not {_shown(node)}")
        return tuple(read(item) for item in node.value)

    return read_list


def _map_of(read: Callable[[yaml.Node], Any]) -> Callable[[yaml.Node], Mapping[str, Any]]:
    def read_map(node: yaml.Node) -> Mapping[str, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise ValueError(f"a map is expected, not {_shown(node)}")
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise ValueError(f"a map from names is expected, not one from {_shown(key_node)}")
            if key_node.value in result:
                raise ValueError(f"{key_node.value!r} is given twice")
            try:
                result[str(key_node.value)] = read(value_node)
            except ValueError as error:
                raise ValueError(f"{key_node.value}: {error}") from None
        return result

    return read_map


def _scalar(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise ValueError(f"a single value is expected, not {_shown(node)}")
    return str(node.value)


def _choice(*choices: str) -> Callable[[yaml.Node], str]:
    def read(node: yaml.Node) -> str:
        text = _text(node)
        if text and text not in choices:
            raise ValueError(f"one of {', '.join(choices)} is expected, not {text!r}")
        return text

    return read


TEXT: Final = Kind(_text)
BOOLEAN: Final = Kind(_boolean)
INTEGER: Final = Kind(_integer)
NUMBER: Final = Kind(_number)
DURATION: Final = Kind(_duration)
TIME: Final = Kind(_time)
TEXTS: Final = Kind(_list_of(_text))
MAPS: Final = Kind(_list_of(_map_of(_scalar)))
GATES: Final = Kind(_map_of(_boolean))
QUANTITY: Final = Kind(_quantity)
"""A number with an optional unit such as 64Ki, kept as text."""


def choice(*choices: str) -> Kind:
    """Make the kind of a text that is one of some, or empty."""
    return Kind(_choice(*choices))
