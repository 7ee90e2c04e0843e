"""The addresses of the node's interfaces, as the engine wants them, whenever they change."""

from collections.abc import Iterable
from typing import Protocol

from kproxy_core.kernel.addresses import AddressSocket, AddressWatch, NodeAddress
from kproxy_core.model.addresses import Address


class AddressFeed(Protocol):
    """Where the daemon gets the node's addresses from."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when they may have changed, or -1 when they never do."""
        ...

    def poll(self) -> tuple[Address, ...] | None:
        """Return all of them if they have changed since the last call, without waiting, else None."""
        ...

    def close(self) -> None:
        """Stop watching."""
        ...


class FixedAddresses:
    """Addresses that were given, and stay."""

    def __init__(self, addresses: Iterable[Address]) -> None:
        self._addresses: tuple[Address, ...] | None = tuple(addresses)

    def fileno(self) -> int:
        """Nothing will change."""
        return -1

    def poll(self) -> tuple[Address, ...] | None:
        """Return them the first time."""
        addresses, self._addresses = self._addresses, None
        return addresses

    def close(self) -> None:
        """Do nothing."""


class KernelAddresses:
    """The addresses of the interfaces in the current network namespace."""

    def __init__(self) -> None:
        # Watched before they are first listed, so that no change falls in between.
        self._watch = AddressWatch()
        self._socket = AddressSocket()
        self._last: tuple[Address, ...] | None = None
        self._is_stale = True

    def fileno(self) -> int:
        """Readable when something about addresses or links has changed."""
        return self._watch.fileno()

    def poll(self) -> tuple[Address, ...] | None:
        """List them if the kernel has told of a change, or if the last listing failed."""
        self._is_stale |= self._watch.drain()
        if not self._is_stale:
            return None
        addresses = usable(self._socket.addresses())
        self._is_stale = False
        if addresses == self._last:
            return None
        self._last = addresses
        return addresses

    def close(self) -> None:
        """Close both sockets."""
        self._watch.close()
        self._socket.close()


def usable(addresses: Iterable[NodeAddress]) -> tuple[Address, ...]:
    """Return those that the node answers on already, in the order of the interfaces, each once."""
    return tuple(dict.fromkeys(Address(found.address.packed) for found in addresses if found.usable))
