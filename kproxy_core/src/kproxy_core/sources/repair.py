"""Converts an API object in spite of malformed fields: each costs the smallest list item or optional field around it.

msgspec reports one error at a time, with its path. The part it names is taken out and the rest tried again. Objects that are
well-formed, all that an API server sends, never come here.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec
from attrs import field, frozen

T = TypeVar("T")
Path = tuple[str | int, ...]

MOST_REPAIRS = 1000
"""Malformed parts of one object; beyond that it is given up. As many endpoints as an EndpointSlice may have."""

_PATH = re.compile(r" - at (?:`key` in )?`\$(.*)`$")
_TOKEN = re.compile(r"\.(\w+)|\[(\d+)\]")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_EXPECTED = re.compile(r"Expected `(\w+)")

_REMEDIES: Mapping[str, str] = {
    "int": "write a whole number without quotes",
    "str": "write text; put numbers and words such as true in quotes",
    "bool": "write true or false without quotes",
    "array": "write a list",
    "object": "write a mapping",
}


@frozen(kw_only=True)
class Complaint:
    """What was malformed, where, and what to write instead."""

    path: Path
    message: str
    remedy: str = ""


@frozen(kw_only=True)
class Repaired(Generic[T]):
    """The object without its malformed parts, None when nothing could be saved; ``complaints`` name the parts in order."""

    value: T | None
    complaints: tuple[Complaint, ...] = field(factory=tuple)

    def lost(self, *path: str) -> bool:
        """Whether something at or below this path was taken out."""
        return any(complaint.path[: len(path)] == path for complaint in self.complaints)


def field_path(path: Path) -> str:
    """Write a path as Diagnostics do: ``spec.ports[0].port``."""
    return "".join(f"[{token}]" if isinstance(token, int) else f".{token}" for token in path).removeprefix(".")


def convert(raw: object, wire_type: type[T]) -> Repaired[T]:
    """Convert plain data to a wire type, taking out what is malformed. Never raises for data, and leaves ``raw`` as it is."""
    complaints: dict[Path, Complaint] = {}
    for _ in range(MOST_REPAIRS):
        try:
            return Repaired(value=msgspec.convert(raw, wire_type), complaints=tuple(complaints.values()))
        except msgspec.ValidationError as error:
            complaint, target = _read(str(error))
            # A required field that was taken out is missing next: it has been told, and costs what it is in.
            complaints.setdefault(complaint.path, complaint)
            if not target:
                return Repaired(value=None, complaints=tuple(complaints.values()))
            raw = _without(raw, target)
        except UnicodeEncodeError:
            raw = as_unicode(raw)
    given_up = Complaint(path=(), message="too many malformed fields; the object is left out")
    return Repaired(value=None, complaints=(*complaints.values(), given_up))


def as_unicode(raw: object) -> object:
    """A copy of JSON data with question marks for lone surrogates (RFC 8259, section 8.2), which are in no UTF-8 text.

    JSON may escape them and YAML may not, so there is nothing else here than JSON has, such as cycles. msgspec raises
    ``UnicodeEncodeError`` at one instead of telling where it is.
    """
    plain: object = json.loads(json.dumps(raw, ensure_ascii=False).encode("utf-8", "replace"))
    return plain


def _read(text: str) -> tuple[Complaint, Path]:
    """Take an error of msgspec apart: what to tell, and the path of what to take out (empty: everything)."""
    found = _PATH.search(text)
    path: Path = tuple(int(index) if index else name for name, index in _TOKEN.findall(found.group(1))) if found else ()
    message = text[: found.start()] if found else text
    missing = _MISSING.match(message)
    if missing:
        return Complaint(path=(*path, missing.group(1)), message="required, but missing"), path
    expected = _EXPECTED.match(message)
    remedy = _REMEDIES.get(expected.group(1), "") if expected else ""
    wording = message.replace("`", "").replace(" | null", "")
    return Complaint(path=path, message=f"{wording[:1].lower()}{wording[1:]}; left out", remedy=remedy), path


def _without(raw: Any, path: Path) -> Any:
    """A copy without the part at ``path``; only the containers on the way are copied, because YAML aliases share them."""
    token, rest = path[0], path[1:]
    if isinstance(raw, list):
        assert isinstance(token, int)
        # None keeps the numbers of the other items as the user counts them.
        return [*raw[:token], _without(raw[token], rest) if rest else None, *raw[token + 1 :]]
    if rest:
        return {**raw, token: _without(raw[token], rest)}
    if token in ("labels", "annotations") and isinstance(raw[token], dict):
        return {**raw, token: _texts(raw[token])}
    return {key: value for key, value in raw.items() if key != token}


def _texts(mapping: dict[Any, Any]) -> dict[str, str]:
    """Labels and annotations as text: whether one is there matters even where its value is malformed."""
    return {str(key): value if isinstance(value, str) else "" for key, value in mapping.items()}
