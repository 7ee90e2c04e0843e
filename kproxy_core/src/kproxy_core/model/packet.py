"""Packets and verdicts: the question that the oracle, a trace and a real client all answer."""

from attrs import frozen

from kproxy_core.model.addresses import Address
from kproxy_core.model.names import Protocol


@frozen(kw_only=True)
class Packet:
    """The first packet of a connection. ``interface`` is where it comes in, empty when a process of this node sends it."""

    source: Address
    destination: Address
    protocol: Protocol
    port: int
    interface: str = ""

    @property
    def from_this_node(self) -> bool:
        """Whether a process in the node's own network namespace sent it."""
        return not self.interface


@frozen(kw_only=True)
class Target:
    """An endpoint that may answer, and whether it then sees the node's address instead of the client's."""

    address: Address
    port: int
    masqueraded: bool


@frozen
class Delivered:
    """One of these endpoints gets the connection."""

    targets: frozenset[Target]


@frozen
class Dropped:
    """The packet vanishes; the client waits."""


@frozen
class Refused:
    """The client is told at once: RST for TCP, ICMP port unreachable for all else."""


@frozen
class Untouched:
    """No Service is concerned; the packet goes where the routing table says."""


Verdict = Delivered | Dropped | Refused | Untouched
