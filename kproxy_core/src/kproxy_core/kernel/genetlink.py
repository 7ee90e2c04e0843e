"""Families of generic netlink: finding out their numbers."""

from __future__ import annotations

from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.wire import genetlink
from kproxy_core.wire.genetlink import GenericFamily


def find_family(socket: NetlinkSocket, name: str) -> GenericFamily:
    """The family of a name, whose module the kernel loads if it must; the socket is one of Protocol.GENERIC.

    Raises NotFoundError when the kernel does not have it.
    """
    (answer,) = socket.request(genetlink.CONTROLLER, genetlink.family_request(name), f"look for the netlink family {name}")
    return GenericFamily.decode(answer.payload)
