"""Flows, as connection tracking knows them, and the frontends they were dialled at."""

from typing import NamedTuple

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.names import Protocol


class FrontendKey(NamedTuple):
    """What a client dials; one Service port at most may own it.

    ``address`` is None for a NodePort: the node's chosen addresses, all of them.
    """

    family: Family
    address: Address | None
    port: int
    protocol: Protocol

    def __str__(self) -> str:
        host = "*" if self.address is None else f"[{self.address}]" if self.family is Family.IPV6 else str(self.address)
        return f"{host}:{self.port}/{self.protocol.name}"


class UdpFlow(NamedTuple):
    """A UDP flow in the conntrack table: whom the client dialled, and from where the answers come.

    ``reply_source`` and ``reply_port`` equal the destination when the flow was not translated. ``source`` and ``source_port``,
    the client, belong to the flow's identity only. ``zone`` is the conntrack zone.
    """

    source: Address
    source_port: int
    destination: Address
    destination_port: int
    reply_source: Address
    reply_port: int
    zone: int = 0
