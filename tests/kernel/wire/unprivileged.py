"""What runs inside a user namespace for test_transactions.py: one case, its result as JSON."""

import json
import struct
import sys
from typing import Any

from kproxy_core.kernel.errors import OverrunError
from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.wire import nftables as nft
from kproxy_core.wire.errors import EncodingError
from kproxy_core.wire.netlink import Protocol
from kproxy_core.wire.nftables import DataType, ElementCodec, Family, Operation, Set, SetFlag, Table, cut_before

TABLE = Table(family=Family.IPV4, name="kproxy")
MAP = Set(
    family=Family.IPV4,
    table="kproxy",
    name="m",
    key_type=DataType.INTEGER,
    key_length=64,
    data_type=DataType.INTEGER,
    data_length=64,
    flags=SetFlag.MAP,
)
CODEC = ElementCodec.of(MAP)


def room() -> int:
    """Bytes that one send may have here, whatever one asks for."""
    with NetlinkSocket(Protocol.NETFILTER) as socket:
        return socket.reserve(64 << 20)


COUNT = room() // 148 * 5 // 4
"""Elements of 148 bytes that do not fit."""


def operations(cut: bool) -> list[Operation]:
    """A table, a map and more elements than can be sent at once."""
    result = [nft.add(TABLE), nft.add(MAP)]
    for start in range(0, COUNT, 400):
        numbers = range(start, min(start + 400, COUNT))
        part = CODEC.add([(struct.pack("!I60x", number), struct.pack("!60xI", number)) for number in numbers])
        result += cut_before(part) if cut else part
    return result


def cut_case(last: list[Operation]) -> dict[str, Any]:
    """Commit what may be cut, with something at the end."""
    wanted = [*operations(cut=True), *last]
    with NftSocket() as socket:
        result = socket.commit(wanted)
        error = result.errors[0] if result.errors else None
        return {
            "room": room(),
            "bytes": sum(operation.size for operation in wanted),
            "operations": len(wanted),
            "transactions": result.transactions,
            "done": result.done,
            "elements": len(socket.elements(CODEC)),
            "wanted": COUNT,
            "index": error and error.index,
            "error": error and error.error,
        }


def whole_case() -> dict[str, Any]:
    """Commit what is too large and may not be cut."""
    with NftSocket() as socket:
        try:
            socket.commit(operations(cut=False))
        except EncodingError as error:
            return {"error": type(error).__name__, "tables": len(socket.tables())}
    return {}


def errors_case() -> dict[str, Any]:
    """Commit what is refused so often that the answers do not fit the receive buffer."""
    wanted = [nft.add(TABLE), *(nft.delete(MAP) for _ in range(4000))]
    with NftSocket() as socket:
        try:
            done = socket.commit(wanted).done
        except OverrunError:
            done = 0
        return {"done": done, "tables": len(socket.tables())}


if __name__ == "__main__":
    case = {
        "cut": lambda: cut_case([]),
        "fail": lambda: cut_case(CODEC.delete([b"\xff" * 64])),
        "whole": whole_case,
        "errors": errors_case,
    }[sys.argv[1]]
    print(json.dumps(case()))  # noqa: T201
