"""What is asked of IPVS, and what the kernel says against it, in words."""

from __future__ import annotations

import errno
from ipaddress import ip_address
from typing import Final

from kproxy_core.wire import genetlink, netlink
from kproxy_core.wire.ipvs import Change, VirtualServer
from kproxy_core.wire.ipvs_constants import Attribute, Command, DestAttribute
from kproxy_core.wire.nfnetlink import Family

_PROTOCOLS: Final = {6: "tcp", 17: "udp", 132: "sctp"}
_ACTIONS: Final = {
    Command.NEW_SERVICE: ("make the virtual server", ""),
    Command.SET_SERVICE: ("change the virtual server", ""),
    Command.DEL_SERVICE: ("delete the virtual server", ""),
    Command.NEW_DEST: ("add the real server", "to"),
    Command.SET_DEST: ("change the real server", "of"),
    Command.DEL_DEST: ("delete the real server", "of"),
}
_REASONS: Final = {
    (Command.NEW_SERVICE, errno.EEXIST): "it is there already",
    (Command.NEW_SERVICE, errno.ENOENT): "the kernel has no such scheduler",
    (Command.SET_SERVICE, errno.ENOENT): "the kernel has no such scheduler",
    (Command.NEW_SERVICE, errno.EAFNOSUPPORT): "the kernel's IPVS does not do IPv6",
    (Command.SET_SERVICE, errno.ESRCH): "it is not there",
    (Command.DEL_SERVICE, errno.ESRCH): "it is not there",
    (Command.NEW_DEST, errno.ESRCH): "the virtual server is not there",
    (Command.SET_DEST, errno.ESRCH): "the virtual server is not there",
    (Command.DEL_DEST, errno.ESRCH): "the virtual server is not there",
    (Command.NEW_DEST, errno.EEXIST): "it is there already",
    (Command.SET_DEST, errno.ENOENT): "it is not there",
    (Command.DEL_DEST, errno.ENOENT): "it is not there",
    (Command.NEW_DEST, errno.EINVAL): "its address is neither one machine's nor this one's (or the loopback link is down)",
    (Command.NEW_DEST, errno.ERANGE): "its lower limit is above its upper one",
    (Command.SET_DEST, errno.ERANGE): "its lower limit is above its upper one",
}


def describe(server: VirtualServer) -> str:
    """A virtual server as people write it: `tcp 192.0.2.1:80`, `mark 7 (IPv6)`."""
    if server.mark:
        return f"mark {server.mark} (IPv{4 if server.family == Family.IPV4 else 6})"
    return f"{_PROTOCOLS.get(server.protocol, str(server.protocol))} {_place(server.address, server.port)}"


def describe_change(change: Change) -> str:
    """A change as people write it: `add the real server 192.0.2.7:80 to tcp 192.0.2.1:80`."""
    server = VirtualServer.decode(change.payload)
    what = describe(server)
    action, joint = _ACTIONS[change.command]
    found = netlink.attributes(change.payload, genetlink.HEADER_SIZE)
    if Attribute.DEST not in found:
        return f"{action} {what}"
    real = netlink.attributes(found[Attribute.DEST])
    address = real[DestAttribute.ADDR][: 4 if server.family == Family.IPV4 else 16]
    return f"{action} {_place(address, netlink.decode_number(real[DestAttribute.PORT], 2))} {joint} {what}"


def reason(command: Command, error: int) -> str | None:
    """Why the kernel refused a change, where its errno means something in particular."""
    return _REASONS.get((command, error))


def _place(address: bytes, port: int) -> str:
    text = str(ip_address(address))
    return f"[{text}]:{port}" if len(address) == 16 else f"{text}:{port}"
