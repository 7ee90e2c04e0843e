"""The kinds of value in a configuration file, each with the sentence that says what is expected."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import yaml

from kproxy_core.config.positions import Kind
from kproxy_core.config.values import parse_duration

_BOOL: Final = "tag:yaml.org,2002:bool"
_INT: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
_STR: Final = "tag:yaml.org,2002:str"
_TRUE: Final = frozenset({"true", "yes", "on", "y"})


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
    if not isinstance(node, yaml.ScalarNode) or node.tag != _INT:
        raise ValueError(f"a whole number is expected, not {_shown(node)}")
    return int(str(node.value).replace("_", ""), 0 if node.value[:2].lower() in ("0x", "0o", "0b") else 10)


def _number(node: yaml.Node) -> float:
    if not isinstance(node, yaml.ScalarNode) or node.tag not in (_INT, _FLOAT):
        raise ValueError(f"a number is expected, not {_shown(node)}")
    return float(node.value)


def _duration(node: yaml.Node) -> float:
    """Read seconds; a bare number is refused as Kubernetes refuses it (0 apart): it would be nanoseconds to some."""
    if isinstance(node, yaml.ScalarNode) and node.tag == _INT and node.value == "0":
        return 0.0
    if not isinstance(node, yaml.ScalarNode) or node.tag != _STR:
        raise ValueError(f"a duration such as 500ms, 30s or 1h30m is expected, not {_shown(node)}")
    text = str(node.value)
    return -parse_duration(text[1:]) if text.startswith("-") else parse_duration(text)


def _time(node: yaml.Node) -> float:
    """Read a duration, or a whole number of nanoseconds."""
    if isinstance(node, yaml.ScalarNode) and node.tag == _INT:
        return _integer(node) / 1e9
    return _duration(node)


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
QUANTITY: Final = Kind(_scalar)
"""A number with an optional unit such as 64Ki, kept as text."""


def choice(*choices: str) -> Kind:
    """Make the kind of a text that is one of some, or empty."""
    return Kind(_choice(*choices))
