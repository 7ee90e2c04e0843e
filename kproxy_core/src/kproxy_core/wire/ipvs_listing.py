"""The text in which the kernel shows all of IPVS at once, /proc/net/ip_vs: seven times as cheap to read as messages.

It leaves out the limits of real servers and the statistics, so it is for finding out whether anything is not as it should be.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kproxy_core.wire.errors import MalformedMessageError
from kproxy_core.wire.ipvs import Place
from kproxy_core.wire.ipvs_constants import Forwarding
from kproxy_core.wire.nfnetlink import Family

_PROTOCOLS: Final = {"TCP": 6, "UDP": 17, "SCTP": 132, "AH": 51, "ESP": 50}
_FORWARDING: Final = {
    "Masq": int(Forwarding.MASQUERADE),
    "Local": int(Forwarding.LOCAL),
    "Tunnel": int(Forwarding.TUNNEL),
    "Route": int(Forwarding.DIRECT),
    "Bypass": int(Forwarding.BYPASS),
}
_MARK: Final = "FWM"
_HEADINGS: Final = 3
_IPV4: Final = Family.IPV4
_IPV6: Final = Family.IPV6


class SeenRealServer(NamedTuple):
    """A real server as the listing shows it; active, inactive: connections at present."""

    address: bytes
    port: int
    weight: int
    forwarding: int
    active: int
    inactive: int


def parse_listing(text: str) -> dict[Place, list[SeenRealServer]]:
    """The real servers by virtual server.

    One by packet mark is shown without its family: it has that of its real servers, and is left out without any. Servers made or
    deleted while the kernel wrote the text may be missing, or others there twice. Raises MalformedMessageError.
    """
    found: dict[Place, list[SeenRealServer]] = {}
    reals: list[SeenRealServer] = []
    mark: int | None = None
    for line in text.splitlines()[_HEADINGS:]:
        words = line.split()
        try:
            if words[0] == "->":
                real = _real(words)
                if mark is not None and not reals:
                    reals = found.setdefault(_marked(mark, real), [])
                reals.append(real)
            elif words[0] == _MARK:
                mark, reals = int(words[1], 16), []
            else:
                mark, reals = None, found.setdefault(_place(words), [])
        except (ValueError, LookupError):
            raise MalformedMessageError(f"a line of /proc/net/ip_vs that is no server: {line!r}") from None
    return found


def _real(words: list[str]) -> SeenRealServer:
    _, where, forwarding, weight, active, inactive = words
    address, port = _address(where)
    return SeenRealServer(address, port, int(weight), _FORWARDING[forwarding], int(active), int(inactive))


def _place(words: list[str]) -> Place:
    address, port = _address(words[1])
    return Place(_IPV4 if len(address) == 4 else _IPV6, _PROTOCOLS[words[0]], address, port, 0)


def _marked(mark: int, real: SeenRealServer) -> Place:
    return Place(_IPV4 if len(real.address) == 4 else _IPV6, 0, b"", 0, mark)


def _address(where: str) -> tuple[bytes, int]:
    """An address in hexadecimal (IPv6 in brackets, with all its colons and zeros) and a port."""
    address, _, port = where.rpartition(":")
    packed = bytes.fromhex(address[1:-1].replace(":", "") if address[0] == "[" else address)
    if len(packed) not in (4, 16):
        raise ValueError(where)
    return packed, int(port, 16)
