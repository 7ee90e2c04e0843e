"""Program: the kernel objects a node should have, or has, by Service port.

An object is a key with a value; both are the backend's and opaque here, hashable and comparable. A key names the object in the
kernel (a map and its element's key, a chain's name), the value is what it holds. The same type serves for what is wanted and for
what was read back, so that one diff serves a first start, a restart and a single change.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from attrs import field, frozen

from kproxy_core.model.names import ServicePortKey

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")
U = TypeVar("U")


class ContractError(Exception):
    """A backend broke the contract: two owners of one key, or two values for one shared key. Always the backend's fault."""


@frozen(kw_only=True)
class Fragment(Generic[K, V]):
    """The objects of one Service port.

    ``id`` is the number by which the kernel's objects refer to the Service port, stable over changes and restarts, 0 where the
    backend needs none. ``own`` objects belong to this Service port alone; ``shared`` ones may be wanted by several, always with
    the same value, and stay until the last of them goes.
    """

    id: int = 0
    own: Mapping[K, V] = field(factory=dict)
    shared: Mapping[K, V] = field(factory=dict)

    @property
    def provisional(self) -> bool:
        """Whether the Service port is to be compiled once more as soon as this is in the kernel, to let go of something."""
        return False

    def check_id(self, before: "Fragment[K, V] | None", fresh: int) -> None:
        """Raise :class:`ContractError` unless the id is that of ``before``, or ``fresh`` where that has none."""
        expected = before.id if before is not None and before.id else fresh
        if self.id not in (0, expected):
            raise ContractError(f"id {self.id} was chosen instead of {expected}")


@frozen(kw_only=True)
class Program(Generic[K, V]):
    """The objects of a node.

    ``common`` holds what belongs to no single Service port: the scaffold and the shared objects; if read from the kernel
    also what is ours but could not be attributed. ``uses`` counts the fragments that want each shared key (empty when read).
    Mappings are never mutated.
    """

    fragments: Mapping[ServicePortKey, Fragment[K, V]] = field(factory=dict)
    common: Mapping[K, V] = field(factory=dict)
    uses: Mapping[K, int] = field(factory=dict)

    @property
    def highest_id(self) -> int:
        """The highest id in use, 0 when none is."""
        return max((fragment.id for fragment in self.fragments.values()), default=0)


def objects(program: Program[K, V]) -> dict[K, V]:
    """Return every object of the program in one mapping."""
    flat = dict(program.common)
    for fragment in program.fragments.values():
        flat.update(fragment.own)
    return flat


def link(fragments: Mapping[ServicePortKey, Fragment[K, V]], scaffold: Mapping[K, V]) -> Program[K, V]:
    """Make a Program of fragments and the scaffold.

    Raises :class:`ContractError` when two fragments give one shared key different values, or share a key with the scaffold.
    """
    return replace(Program(common=scaffold), fragments)


def replace(
    program: Program[K, V],
    updates: Mapping[ServicePortKey, Fragment[K, V] | None],
    scaffold: Mapping[K, V] | None = None,
) -> Program[K, V]:
    """Return the program with some fragments replaced (None removes), and the scaffold if one is given.

    ``replace`` fragment by fragment equals ``link`` of the final ones. The work is proportional to the updates, apart from one
    shallow copy of each top-level mapping. ``program`` must come from ``link`` or ``replace``, not from the kernel.
    """
    fragments = _copied(program.fragments)
    common = _copied(program.common)
    uses = _copied(program.uses)
    if scaffold is not None:
        common = {key: value for key, value in common.items() if key in uses} | dict(scaffold)
    # All old fragments let go before any new one takes hold: a shared value may change for all of its users at once.
    for key in updates:
        old = fragments.pop(key, None)
        if old is not None:
            _release(old.shared, common, uses)
    for key, new in updates.items():
        if new is not None:
            fragments[key] = new
            _acquire(new.shared, common, uses)
    return Program(fragments=fragments, common=common, uses=uses)


def _copied(mapping: Mapping[T, U]) -> dict[T, U]:
    # CPython copies a dict from which keys were deleted block by block with copy(), but key by key with dict().
    return mapping.copy() if isinstance(mapping, dict) else dict(mapping)


def _release(shared: Mapping[K, V], common: dict[K, V], uses: dict[K, int]) -> None:
    for key in shared:
        left = uses.pop(key) - 1
        if left:
            uses[key] = left
        else:
            del common[key]


def _acquire(shared: Mapping[K, V], common: dict[K, V], uses: dict[K, int]) -> None:
    for key, value in shared.items():
        if key not in common:
            common[key] = value
        elif key not in uses or common[key] != value:
            raise ContractError(f"shared object {key!r} is wanted with two values")
        uses[key] = uses.get(key, 0) + 1


def owners(program: Program[K, V], keys: Iterable[K]) -> dict[K, ServicePortKey]:
    """Tell which Service port each of these own keys belongs to; shared and unknown keys are left out. Linear in the program."""
    wanted = set(keys)
    return {key: port for port, fragment in program.fragments.items() for key in wanted & fragment.own.keys()}
