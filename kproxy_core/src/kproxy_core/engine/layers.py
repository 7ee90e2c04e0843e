"""Programs of several modes as one: every key carries the name of its mode, and each mode sees its own part only."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final, TypeVar

from attrs import field, frozen

from kproxy_core.model.names import ServicePortKey
from kproxy_core.model.state import Frontend
from kproxy_core.program.delta import Delta
from kproxy_core.program.program import Fragment, Program

V = TypeVar("V")

LayeredKey = tuple[str, Hashable]
"""A mode's name, and a key of its own."""
AnyFragment = Fragment[Any, Any]
AnyProgram = Program[Any, Any]

_MISSING: Final = object()


@frozen(kw_only=True)
class LayeredFragment(Fragment[LayeredKey, Any]):
    """The objects of one Service port in all modes.

    ``ids`` has the id in each mode that renders anything of it; ``id`` is the highest of them. ``frontends`` are those that each
    mode renders, not known of what was read. ``provisional`` as in :class:`~kproxy_core.program.program.Fragment`.
    """

    ids: Mapping[str, int] = field(factory=dict)
    frontends: Mapping[str, frozenset[Frontend]] = field(factory=dict)
    provisional: bool = False

    def check_id(self, before: AnyFragment | None, fresh: int) -> None:
        """Ids are kept mode by mode."""
        for mode, number in self.ids.items():
            Fragment(id=number).check_id(None if before is None else part_of(before, mode), fresh)


def layered(parts: Mapping[str, AnyFragment], frontends: Mapping[str, frozenset[Frontend]], provisional: bool) -> LayeredFragment:
    """Put the fragments of a Service port together, by mode."""
    return LayeredFragment(
        id=max((part.id for part in parts.values()), default=0),
        own={(mode, key): value for mode, part in parts.items() for key, value in part.own.items()},
        shared={(mode, key): value for mode, part in parts.items() for key, value in part.shared.items()},
        ids={mode: part.id for mode, part in parts.items()},
        frontends=frontends,
        provisional=provisional,
    )


def layered_program(programs: Mapping[str, AnyProgram]) -> AnyProgram:
    """Put together what was read, by mode."""
    parts: dict[ServicePortKey, dict[str, AnyFragment]] = {}
    for mode, program in programs.items():
        for port, fragment in program.fragments.items():
            parts.setdefault(port, {})[mode] = fragment
    return Program(
        fragments={port: layered(of_modes, {}, provisional=False) for port, of_modes in parts.items()},
        common={(mode, key): value for mode, program in programs.items() for key, value in program.common.items()},
    )


def part_of(fragment: AnyFragment, mode: str) -> AnyFragment | None:
    """Return a mode's part of a fragment, None if it has none."""
    own, shared = _untagged(fragment.own, mode), _untagged(fragment.shared, mode)
    number = fragment.ids.get(mode) if isinstance(fragment, LayeredFragment) else None
    return Fragment(id=number or 0, own=own, shared=shared) if number is not None or own or shared else None


def program_of(program: AnyProgram, mode: str) -> AnyProgram:
    """Return a mode's part of a program: a view, since most plans look at little of it or nothing."""
    return Program(
        fragments=_Fragments(program.fragments, mode), common=_Part(program.common, mode), uses=_Part(program.uses, mode)
    )


def delta_of(delta: Delta[LayeredKey, Any], mode: str) -> Delta[Any, Any]:
    """Return a mode's part of a delta."""
    return Delta(
        added=_untagged(delta.added, mode), changed=_untagged(delta.changed, mode), removed=_untagged(delta.removed, mode)
    )


def _untagged(objects: Mapping[LayeredKey, V], mode: str) -> dict[Any, V]:
    return {key[1]: value for key, value in objects.items() if key[0] == mode}


class _Part(Mapping[Any, V]):
    """The entries of one mode."""

    def __init__(self, whole: Mapping[LayeredKey, V], mode: str) -> None:
        self._whole = whole
        self._mode = mode

    def __getitem__(self, key: Any) -> V:
        return self._whole[self._mode, key]

    def __iter__(self) -> Iterator[Any]:
        return (key[1] for key in self._whole if key[0] == self._mode)

    def __len__(self) -> int:
        return sum(key[0] == self._mode for key in self._whole)


class _Fragments(Mapping[ServicePortKey, AnyFragment]):
    """The fragments of one mode."""

    def __init__(self, whole: Mapping[ServicePortKey, AnyFragment], mode: str) -> None:
        self._whole = whole
        self._mode = mode

    def __getitem__(self, port: ServicePortKey) -> AnyFragment:
        part = part_of(self._whole[port], self._mode)
        if part is None:
            raise KeyError(port)
        return part

    def __iter__(self) -> Iterator[ServicePortKey]:
        return (port for port, whole in self._whole.items() if part_of(whole, self._mode) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
