"""Addresses and networks: parsed once, at the edge, into packed bytes that every later stage uses as they are."""

import enum
import re
import socket
from collections.abc import Sequence
from typing import Final

from attrs import frozen

_SLOPPY_IPV4 = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){3}")
_MAPPED_PREFIX = bytes(10) + b"\xff\xff"


class Family(enum.IntEnum):
    """An IP family; the number is the kernel's address family, which nfnetlink and sockets take as it is."""

    IPV4 = 2
    IPV6 = 10

    # Enum's own hash is Python code; these are part of every key.
    __hash__ = int.__hash__

    @property
    def label(self) -> str:
        """The spelling of the Kubernetes API and of kube-proxy's metrics: ``IPv4`` or ``IPv6``."""
        return "IPv4" if self is Family.IPV4 else "IPv6"

    @property
    def bits(self) -> int:
        """The length of an address: 32 or 128."""
        return 32 if self is _IPV4 else 128


# Up to Python 3.11, to name a member of an enumeration by its class takes half a microsecond.
_IPV4: Final = Family.IPV4
_IPV6: Final = Family.IPV6
_AF_INET: Final = int(socket.AF_INET)
_inet_pton: Final = socket.inet_pton


class Address(bytes):
    """An IP address in network byte order: 4 or 16 bytes, hashable and comparable as such.

    ``str()`` gives the canonical text (RFC 5952 for IPv6). Being bytes it goes into kernel messages without conversion, which
    matters: parsing 100,000 addresses costs more than compiling them.
    """

    __slots__ = ()

    @property
    def family(self) -> Family:
        """The family, told by the length."""
        return _IPV4 if len(self) == 4 else _IPV6

    def __str__(self) -> str:
        return socket.inet_ntop(self.family, self)

    def __repr__(self) -> str:
        return f"Address({self})"


def parse_address(text: str) -> Address:
    """Parse an address leniently, as kube-proxy does, into its canonical value.

    Blanks around it are dropped; IPv4 octets may have leading zeros and are decimal all the same (Go's ``ParseIPSloppy``, which
    old objects in a cluster rely on); any spelling of IPv6 is taken, and an IPv4-mapped IPv6 address is the IPv4 address.

    Raises ``ValueError`` with a sentence that repeats the text.
    """
    try:
        if ":" not in text:
            return Address(_inet_pton(_AF_INET, text))
    except (OSError, ValueError):
        pass
    return _parse_leniently(text)


def _parse_leniently(text: str) -> Address:
    stripped = text.strip()
    try:
        if ":" not in stripped:
            return Address(_ipv4(stripped))
        packed = socket.inet_pton(socket.AF_INET6, stripped)
    except (OSError, ValueError):
        raise ValueError(f"{text!r} is not an IP address") from None
    return Address(packed[12:]) if packed.startswith(_MAPPED_PREFIX) else Address(packed)


def _ipv4(text: str) -> bytes:
    try:
        return socket.inet_pton(socket.AF_INET, text)
    except OSError:
        # Rare: the strict parser takes no leading zeros, and trying it first is five times as fast.
        return socket.inet_pton(socket.AF_INET, _without_leading_zeros(text))


def _without_leading_zeros(text: str) -> str:
    if _SLOPPY_IPV4.fullmatch(text) is None:
        raise ValueError(text)
    return ".".join(str(int(octet)) for octet in text.split("."))


@frozen(order=True, cache_hash=True)
class Network:
    """An address range in CIDR form; host bits are zero. ``Network(address, length)``, length 0 to 32 or 128."""

    address: Address
    length: int

    @property
    def family(self) -> Family:
        """The family of the addresses in it."""
        return self.address.family

    @property
    def last(self) -> Address:
        """The last address of the range."""
        size = len(self.address)
        host = (1 << (size * 8 - self.length)) - 1
        return Address((int.from_bytes(self.address, "big") | host).to_bytes(size, "big"))

    def __contains__(self, address: object) -> bool:
        """Whether an address of the same family lies in the range."""
        return isinstance(address, bytes) and len(address) == len(self.address) and self.address <= address <= self.last

    def __str__(self) -> str:
        return f"{self.address}/{self.length}"


def parse_network(text: str) -> Network:
    """Parse a CIDR as leniently as :func:`parse_address`; host bits are cleared, as Go's ``ParseCIDR`` does.

    Raises ``ValueError`` with a sentence that repeats the text.
    """
    address_text, slash, length_text = text.strip().partition("/")
    try:
        address = parse_address(address_text)
        length = int(length_text) if slash and length_text.isascii() and length_text.isdigit() else -1
    except ValueError:
        length = -1
        address = Address(4)
    # "::ffff:10.0.0.0/104" names IPv4 addresses by an IPv6 length.
    if ":" in address_text and address.family is Family.IPV4:
        length -= 96
    if not 0 <= length <= address.family.bits:
        raise ValueError(f"{text!r} is not an address range such as 10.0.0.0/8 or 2001:db8::/32")
    return network_of(address, length)


def network_of(address: Address, length: int) -> Network:
    """The network of ``length`` bits that ``address`` lies in."""
    size = len(address)
    mask = ~((1 << (size * 8 - length)) - 1)
    value = int.from_bytes(address, "big") & mask & ((1 << (size * 8)) - 1)
    return Network(Address(value.to_bytes(size, "big")), length)


def host_network(address: Address) -> Network:
    """The network that holds just ``address``."""
    return Network(address, address.family.bits)


def collapse(networks: Sequence[Network]) -> tuple[Network, ...]:
    """The smallest sorted set of networks covering the same addresses; both families may be mixed."""
    return (*_collapse_family(networks, Family.IPV4), *_collapse_family(networks, Family.IPV6))


def _collapse_family(networks: Sequence[Network], family: Family) -> tuple[Network, ...]:
    """Merge the networks of one family, widest first: a network inside its predecessor goes, equal halves join."""
    result: list[Network] = []
    for network in sorted(n for n in networks if n.family is family):
        if result and network.address in result[-1]:
            continue
        result.append(network)
        while len(result) > 1 and _are_halves(result[-2], result[-1]):
            upper = result.pop()
            result[-1] = network_of(result[-1].address, upper.length - 1)
    return tuple(result)


def _are_halves(lower: Network, upper: Network) -> bool:
    if lower.length != upper.length or lower.length == 0:
        return False
    return network_of(lower.address, lower.length - 1) == network_of(upper.address, upper.length - 1)
