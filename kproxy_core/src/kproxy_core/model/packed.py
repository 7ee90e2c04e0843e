"""Packed: an immutable sequence of endpoints, held as their addresses and what they have in common.

A large cluster has hundreds of thousands of endpoints, and few kinds of them: ready, on this node or that one. As objects of
their own they would be a third of all the memory that a proxy takes. So each is made when somebody looks at it, and whoever has
to look at all of them asks for addresses and kinds instead.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import compress, repeat
from struct import Struct
from typing import Any, Final, TypeVar, overload

import msgspec
from msgspec.structs import replace

from kproxy_core.model.addresses import Address

MOST_KINDS: Final = 1 << 14
"""Kinds that are remembered, so that equal ones are one object; there are a few for each node of a cluster."""

NOWHERE: Final = Address(b"")
"""The address of a kind."""

_FEW: Final = 64
"""Up to so many addresses are taken apart by a form made for their number."""


class Addressed(msgspec.Struct, frozen=True, kw_only=True, gc=False, cache_hash=True):
    """Something that has an address and is one of many.

    A struct rather than an attrs class because those made on the way are many and short-lived: it is made in a tenth of the time,
    and never traversed by the garbage collector. A changed copy is made by ``msgspec.structs.replace``.
    """

    address: Address


E = TypeVar("E", bound=Addressed)


class Packed(Sequence[E]):
    """A sequence whose elements are made anew each time; it equals a tuple of the same ones.

    A *kind* is an endpoint as it is, but for its address, which is :data:`NOWHERE`. Take one from :func:`kind_of`, or share it in
    another way: it is what the sequence keeps.
    """

    __slots__ = ("_addresses", "_count", "_form", "_kinds")

    def __init__(self, addresses: Sequence[bytes] = (), kinds: Sequence[E] = ()) -> None:
        """Make a sequence of the address and the kind of each element."""
        self._count = count = len(addresses)
        length = len(addresses[0]) if addresses else 0
        # One behind the other, and how to take them apart; but a tuple where they are of both families, by mistake.
        self._addresses: bytes | tuple[bytes, ...] = b"".join(addresses)
        self._form = _form(length, count if count <= _FEW else 1)
        if len(self._addresses) != length * count:
            self._addresses = tuple(map(bytes, addresses))
        # A single one where all are of one kind.
        self._kinds = tuple(kinds) if count and kinds.count(kinds[0]) != count else tuple(kinds[:1])

    def __len__(self) -> int:
        return self._count

    @property
    def addresses(self) -> Sequence[bytes]:
        """The address of each element, as plain bytes."""
        if not isinstance(self._addresses, bytes):
            return self._addresses
        if self._count <= _FEW:
            return self._form.unpack(self._addresses)
        return [address for (address,) in self._form.iter_unpack(self._addresses)]

    @property
    def kinds(self) -> Iterable[E]:
        """The kind of each element."""
        return repeat(self._kinds[0], self._count) if len(self._kinds) == 1 else self._kinds

    @property
    def distinct_kinds(self) -> Sequence[E]:
        """The kinds of all elements, in no order; a kind that several have may be told once only."""
        return self._kinds

    def pairs(self) -> Iterable[tuple[bytes, E]]:
        """The address and the kind of each element: what is to be looked at where there may be many."""
        return zip(self.addresses, self.kinds, strict=True)

    def where(self, condition: Callable[[E], Any]) -> "Packed[E]":
        """Return the elements whose kind satisfies a condition, in order; the sequence itself if all do."""
        chosen = list(map(condition, self._kinds))
        if all(chosen):
            return self
        if not any(chosen):
            return Packed()
        return Packed(tuple(compress(self.addresses, chosen)), tuple(compress(self._kinds, chosen)))

    def __iter__(self) -> Iterator[E]:
        return (replace(kind, address=Address(address)) for address, kind in self.pairs())

    @overload
    def __getitem__(self, index: int) -> E: ...

    @overload
    def __getitem__(self, index: slice) -> "Packed[E]": ...

    def __getitem__(self, index: int | slice) -> "E | Packed[E]":
        if isinstance(index, slice):
            return Packed(self.addresses[index], tuple(self.kinds)[index])
        address = self.addresses[index]
        kind = self._kinds[0] if len(self._kinds) == 1 else self._kinds[index]
        return replace(kind, address=Address(address))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Packed):
            if self is other:
                return True
            return bool(self._count == other._count and self._addresses == other._addresses and self._kinds == other._kinds)
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._addresses, self._kinds))

    def __repr__(self) -> str:
        return repr(tuple(self))


def packed(endpoints: Iterable[E]) -> Packed[E]:
    """Pack endpoints, unless they are packed already."""
    if isinstance(endpoints, Packed):
        return endpoints
    listed = tuple(endpoints)
    return Packed([endpoint.address for endpoint in listed], [kind_of(endpoint) for endpoint in listed])


def kind_of(endpoint: E) -> E:
    """Return the kind of an endpoint, the same object for equal ones."""
    kind: E = _shared(replace(endpoint, address=NOWHERE))
    return kind


@lru_cache(maxsize=MOST_KINDS)
def _shared(kind: Any) -> Any:
    return kind


@lru_cache(maxsize=2 * _FEW)
def _form(length: int, count: int) -> Struct:
    return Struct(f"{length}s" * count)
