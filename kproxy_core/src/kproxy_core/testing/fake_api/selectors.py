"""Label and field selectors: text to predicate, as the API server reads them."""

import re
from collections.abc import Callable, Mapping

Predicate = Callable[[Mapping[str, str]], bool]

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<absent_key>{_KEY})"
    rf"|(?P<key>{_KEY})\s*(?:(?P<operator>==|=|!=)\s*(?P<value>[-A-Za-z0-9_.]*)"
    rf"|\s(?P<set_operator>in|notin)\s*\((?P<values>[^()]*)\))?)\s*"
)


class SelectorError(ValueError):
    """The text is no selector, or names a field that cannot be selected by."""


def label_selector(text: str) -> Predicate:
    """Parse a label selector: ``a=b``, ``a!=b``, ``a in (b,c)``, ``a notin (b)``, ``a``, ``!a``, joined by commas.

    A label that is absent satisfies ``!=`` and ``notin``. Raises SelectorError.
    """
    requirements = [_requirement(part, text) for part in _parts(text)]
    return lambda labels: all(requirement(labels) for requirement in requirements)


def field_selector(text: str, fields: frozenset[str]) -> Predicate:
    """Parse a field selector: ``=``, ``==`` and ``!=`` joined by commas. Raises SelectorError for a field not in ``fields``."""
    requirements = []
    for part in _parts(text):
        found = re.fullmatch(r"([^=!]+?)\s*(==|=|!=)\s*(.*)", part.strip())
        if found is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        field, operator, value = found.groups()
        if field not in fields:
            raise SelectorError(f"field label not supported: {field}")
        requirements.append(_compare(field, operator, value))
    return lambda values: all(requirement(values) for requirement in requirements)


def everything(_: Mapping[str, str]) -> bool:
    """Select all objects."""
    return True


def _parts(text: str) -> list[str]:
    """Split at the commas that are not within parentheses."""
    return [part for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _requirement(part: str, text: str) -> Predicate:
    found = _REQUIREMENT.fullmatch(part)
    if found is None:
        raise SelectorError(f"unable to parse requirement: found '{part.strip()}' in '{text}'")
    if found["absent"]:
        return _absent(found["absent_key"])
    key = found["key"]
    if found["set_operator"]:
        values = frozenset(value.strip() for value in found["values"].split(","))
        return _member(key, values, wanted=found["set_operator"] == "in")
    if found["operator"]:
        return _compare(key, found["operator"], found["value"])
    return lambda labels: key in labels


def _absent(key: str) -> Predicate:
    return lambda labels: key not in labels


def _compare(key: str, operator: str, value: str) -> Predicate:
    if operator == "!=":
        return lambda values: values.get(key) != value
    return lambda values: values.get(key) == value


def _member(key: str, values: frozenset[str], *, wanted: bool) -> Predicate:
    if wanted:
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values
