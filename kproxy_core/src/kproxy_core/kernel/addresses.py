"""The addresses of one network namespace, and when they change."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from attrs import frozen

from kproxy_core.kernel.closing import Closing
from kproxy_core.kernel.errors import OverrunError
from kproxy_core.kernel.namespaces import Namespace
from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.wire import rtnetlink
from kproxy_core.wire.netlink import Protocol
from kproxy_core.wire.rtnetlink import Address, Link, RouteGroup, RouteMessage


@frozen(kw_only=True)
class NodeAddress:
    """An address of the node and where it is; see wire.rtnetlink for scopes and flags."""

    address: IPv4Address | IPv6Address
    prefix_length: int
    link: str
    scope: int
    flags: int
    usable: bool
    """False while duplicate address detection runs, or when it found a duplicate."""


class AddressSocket(Closing):
    """Addresses and links of one network namespace, for one thread at a time."""

    def __init__(self, *, namespace: Namespace | None = None) -> None:
        self._netlink = NetlinkSocket(Protocol.ROUTE, namespace=namespace)

    def close(self) -> None:
        """Close it."""
        self._netlink.close()

    def links(self) -> tuple[Link, ...]:
        """All links, by index."""
        listed = self._netlink.dump(RouteMessage.GETLINK, rtnetlink.link_request(), "list links")
        return tuple(sorted((Link.decode(message) for message in listed), key=lambda link: link.index))

    def addresses(self) -> tuple[NodeAddress, ...]:
        """All addresses of both families, those on links that vanish meanwhile left out."""
        names = {link.index: link.name for link in self.links()}
        listed = self._netlink.dump(RouteMessage.GETADDR, rtnetlink.address_request(), "list addresses")
        found = [Address.decode(message) for message in listed]
        return tuple(_node_address(address, names[address.index]) for address in found if address.index in names)


class AddressWatch(Closing):
    """Notices that addresses or links changed; for one thread at a time."""

    def __init__(self, *, namespace: Namespace | None = None) -> None:
        self._netlink = NetlinkSocket(Protocol.ROUTE, namespace=namespace)
        for group in RouteGroup:
            self._netlink.join(group)

    def fileno(self) -> int:
        """Readable when there is something to drain."""
        return self._netlink.fileno()

    def close(self) -> None:
        """Close it."""
        self._netlink.close()

    def drain(self) -> bool:
        """Whether anything may have changed since the last call, without waiting; lost notifications count as a change."""
        try:
            return bool(self._netlink.received())
        except OverrunError:
            return True


def _node_address(address: Address, link: str) -> NodeAddress:
    return NodeAddress(
        address=address.address,
        prefix_length=address.prefix_length,
        link=link,
        scope=address.scope,
        flags=address.flags,
        usable=address.usable,
    )
