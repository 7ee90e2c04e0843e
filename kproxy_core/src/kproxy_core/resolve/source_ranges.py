"""Decides from where a Service's load balancer addresses may be reached."""

from collections.abc import Iterable, Sequence

from kproxy_core.model.addresses import Address, Family, Network, collapse, host_network
from kproxy_core.model.objects import Service
from kproxy_core.resolve.guard import special_use


def source_ranges(
    service: Service, family: Family, own: Iterable[Address], node: Sequence[Address]
) -> tuple[Network, ...] | None:
    """Return the networks that may reach the load balancer's addresses in this family; None when everybody may.

    No ranges, ranges of the other family only, or one that holds every address of the family mean no filter. An empty result
    lets nobody in. ``own`` are the load balancer's addresses: where a range holds one of the ``node`` addresses they are let in
    too, because a load balancer that binds its address on the node makes it the source of the node's own requests (kube-proxy's
    ``allowFromNode``).
    """
    if service.source_ranges is None:
        return None
    ranges = [network for network in service.source_ranges if network.family is family]
    if not ranges and service.source_ranges:
        return None
    if any(network.length == 0 for network in ranges):
        return None
    if any(address in network for network in ranges for address in node):
        ranges.extend(host_network(address) for address in own if not special_use(address))
    return collapse(ranges)
