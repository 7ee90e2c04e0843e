"""Conntrack of one network namespace: finding flows and deleting them."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Final

from kproxy_core.kernel.closing import Closing
from kproxy_core.kernel.errors import NetlinkError, netlink_error
from kproxy_core.kernel.namespaces import Namespace
from kproxy_core.kernel.netlink_batch import NetlinkBatch
from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.wire import ctnetlink, netlink, nfnetlink
from kproxy_core.wire.ctnetlink import UDP, ConntrackMessage, Flow, FlowFilter, Select
from kproxy_core.wire.netlink import Protocol
from kproxy_core.wire.nfnetlink import Family, Subsystem

_UNSUPPORTED: Final = (errno.EINVAL, errno.EOPNOTSUPP)


class ConntrackSocket(Closing):
    """Conntrack of one network namespace, for one thread at a time."""

    def __init__(self, *, namespace: Namespace | None = None) -> None:
        self._netlink = NetlinkSocket(Protocol.NETFILTER, namespace=namespace)
        self._filters = True

    def close(self) -> None:
        """Close it."""
        self._netlink.close()

    def flows(self, family: Family, select: Select | None = None, *, protocol: int = UDP) -> list[Flow]:
        """The flows of a protocol that `select` wants (all of them without).

        `select` gets where the client went and who answers, each as packed address and 2-byte port; it is called for
        every flow, so it should be cheap (a look into a dictionary). Kernels with filters (5.8) send only this protocol.
        """
        wanted = select or _every
        found: list[Flow] = []
        for buffer in self._dump(FlowFilter(family=family, protocol=protocol)):
            found += ctnetlink.scan(buffer, protocol, wanted)
        return found

    def matching(self, wanted: FlowFilter) -> list[Flow]:
        """The flows that a filter describes, picked by the kernel where it can."""
        found: list[Flow] = []
        for buffer in self._dump(wanted):
            found += (flow for flow in ctnetlink.scan(buffer, wanted.protocol, _every) if wanted.matches(flow))
        return found

    def _dump(self, wanted: FlowFilter) -> list[bytes]:
        kind = nfnetlink.message_type(Subsystem.CTNETLINK, ConntrackMessage.GET)
        if self._filters:
            try:
                return self._netlink.dump_buffers(kind, ctnetlink.dump_request(wanted.family, wanted), "list flows")
            except NetlinkError as error:
                if error.error not in _UNSUPPORTED:
                    raise
                self._filters = False
        return self._netlink.dump_buffers(kind, ctnetlink.dump_request(wanted.family), "list flows")

    def delete(self, flows: Iterable[Flow]) -> int:
        """Delete exactly these flows; returns how many were still there.

        A flow that has gone, or whose client now has an answer from somebody else, counts as gone.
        Raises NetlinkError when the kernel refuses.
        """
        kind = nfnetlink.message_type(Subsystem.CTNETLINK, ConntrackMessage.DELETE)
        requests = [ctnetlink.delete_request(flow) for flow in flows]
        refusals = NetlinkBatch(socket=self._netlink, kind=kind, what="delete flows").refusals(requests)
        for message in refusals.values():
            told = netlink.acknowledgement(message)
            if told.error != errno.ENOENT:
                raise netlink_error("delete flows", told.error, told.text)
        return len(requests) - len(refusals)

    def delete_matching(self, wanted: FlowFilter) -> None:
        """Delete all flows that a filter describes: in the kernel where it can do that, else one by one."""
        if not (wanted.exact and self._deleted_by_kernel(wanted)):
            self.delete(self.matching(wanted))

    def _deleted_by_kernel(self, wanted: FlowFilter) -> bool:
        kind = nfnetlink.message_type(Subsystem.CTNETLINK, ConntrackMessage.DELETE)
        try:
            self._netlink.request(kind, ctnetlink.delete_matching_request(wanted), "delete flows by filter")
        except NetlinkError as error:
            if error.error not in _UNSUPPORTED:
                raise
            return False
        return True


def _every(_service: bytes, _responder: bytes) -> bool:
    return True
