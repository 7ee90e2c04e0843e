"""IPVS of one network namespace: virtual servers and real servers, changed in bulk and listed."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from kproxy_core.kernel import namespaces
from kproxy_core.kernel.closing import Closing
from kproxy_core.kernel.errors import KernelError, NetlinkError, NotFoundError, netlink_error
from kproxy_core.kernel.genetlink import find_family
from kproxy_core.kernel.namespaces import Namespace
from kproxy_core.kernel.netlink_batch import NetlinkBatch
from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.wire import ipvs as wire
from kproxy_core.wire import netlink
from kproxy_core.wire.ipvs import Change, ListedRealServer, ListedVirtualServer, Place, Timeouts, VirtualServer
from kproxy_core.wire.ipvs_constants import FAMILY_NAME, Command
from kproxy_core.wire.ipvs_listing import SeenRealServer, parse_listing
from kproxy_core.wire.ipvs_words import describe, describe_change, reason
from kproxy_core.wire.netlink import Message, Protocol

_LISTING: Final = Path("/proc/thread-self/net/ip_vs")


class NoIpvsError(NotFoundError):
    """The kernel has no IPVS, or its module ip_vs cannot be loaded."""


@frozen(kw_only=True)
class RefusedChange:
    """A change that the kernel refused. index: which of those given. error: the errno. reason: what, and why, in words."""

    index: int
    change: Change
    error: int
    reason: str


@frozen(kw_only=True)
class ChangeResult:
    """What became of changes: how many took effect, and those that were refused, in order."""

    done: int
    refused: tuple[RefusedChange, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all of it took effect."""
        return not self.refused


class IpvsSocket(Closing):
    """IPVS of one network namespace, for one thread at a time. Raises NetlinkError and its kinds."""

    def __init__(self, *, namespace: Namespace | None = None) -> None:
        """Open it; NoIpvsError without IPVS."""
        self._namespace = namespace
        self._netlink = NetlinkSocket(Protocol.GENERIC, namespace=namespace)
        try:
            self._kind = find_family(self._netlink, FAMILY_NAME).id
        except BaseException as error:
            self._netlink.close()
            if isinstance(error, NotFoundError):
                raise NoIpvsError("the kernel has no IPVS, or cannot load its module ip_vs", error.error) from error
            raise

    def close(self) -> None:
        """Close it; the servers stay."""
        self._netlink.close()

    def change(self, changes: Sequence[Change]) -> ChangeResult:
        """Make changes in this order; each stands by itself, so that a refused one does not keep the others from being made.

        Raises OutcomeUnknownError when the kernel's answer is lost.
        """
        batch = NetlinkBatch(socket=self._netlink, kind=self._kind, what="change IPVS")
        refusals = batch.refusals(change.payload for change in changes)
        refused = tuple(_refused(index, changes[index], message) for index, message in sorted(refusals.items()))
        return ChangeResult(done=len(changes) - len(refused), refused=refused)

    def virtual_servers(self) -> list[ListedVirtualServer]:
        """All virtual servers of both families, other people's too."""
        listed = self._netlink.dump(self._kind, wire.request(Command.GET_SERVICE), "list virtual servers")
        return [ListedVirtualServer.decode(message.payload) for message in listed]

    def find(self, server: VirtualServer) -> ListedVirtualServer | None:
        """A virtual server by family, protocol, address, port and mark; None when it is not there."""
        payload = wire.request(Command.GET_SERVICE, wire.identity(server))
        try:
            (answer,) = self._netlink.request(self._kind, payload, f"look for the virtual server {describe(server)}")
        except NetlinkError as error:
            if error.error != errno.ESRCH:
                raise
            return None
        return ListedVirtualServer.decode(answer.payload)

    def real_servers(self, server: VirtualServer) -> list[ListedRealServer]:
        """The real servers of a virtual server; none when it is not there."""
        payload = wire.request(Command.GET_DEST, wire.identity(server))
        listed = self._netlink.dump(self._kind, payload, f"list real servers of {describe(server)}")
        return [ListedRealServer.decode(message.payload, server.family) for message in listed]

    def glance(self) -> dict[Place, list[SeenRealServer]]:
        """All real servers by virtual server, as far as the cheapest way tells: see wire.ipvs_listing.

        Raises KernelError when it cannot be read.
        """
        try:
            with namespaces.entered(self._namespace):
                return parse_listing(_LISTING.read_text())
        except OSError as error:
            raise KernelError(f"read {_LISTING}: {error.strerror}") from error

    def timeouts(self) -> Timeouts:
        """After how long idle connections are forgotten."""
        (answer,) = self._netlink.request(self._kind, wire.request(Command.GET_CONFIG), "read the timeouts of IPVS")
        return Timeouts.decode(answer.payload)

    def set_timeouts(self, wanted: Timeouts) -> None:
        """Set those that are not 0, for connections that are new or have a packet."""
        self._netlink.request(self._kind, wanted.encode(), "set the timeouts of IPVS")

    def zero(self, server: VirtualServer | None = None) -> None:
        """Begin to count anew: of one virtual server with its real servers, or of all."""
        payload = wire.request(Command.ZERO, b"" if server is None else wire.identity(server))
        self._netlink.request(self._kind, payload, "zero the statistics of IPVS")

    def flush(self) -> None:
        """Delete all virtual servers, other people's too."""
        self._netlink.request(self._kind, wire.request(Command.FLUSH), "flush IPVS")


def _refused(index: int, change: Change, message: Message) -> RefusedChange:
    told = netlink.acknowledgement(message)
    if told.error in (errno.EPERM, errno.EACCES):
        raise netlink_error("change IPVS", told.error, told.text)
    why = reason(change.command, told.error) or told.text or os.strerror(told.error)
    return RefusedChange(index=index, change=change, error=told.error, reason=f"{describe_change(change)}: {why}")
