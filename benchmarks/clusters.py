"""Clusters to measure with: Services with endpoints, in memory, and one of them changed."""

from attrs import evolve

from kproxy_core.model.addresses import Address, Family, parse_network
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import EndpointSlice, Service, ServicePortSpec, SliceEndpoint, SlicePort

NODE = "node-1"
POD_RANGE = parse_network("10.128.0.0/9")


def service(index: int) -> Service:
    """Return Service number ``index``, of type ClusterIP with one TCP port."""
    return Service(
        name=ObjectName("bench", f"service-{index}"),
        created=float(index),
        cluster_ips=(Address((0x0A000000 + 0x600000 + index).to_bytes(4, "big")),),
        ports=(ServicePortSpec(name="http", port=80),),
    )


def endpoint_slice(index: int, count: int = 10) -> EndpointSlice:
    """Return the slice of Service number ``index``, with ``count`` ready endpoints (16 at most), one in sixteen of this node."""
    first = 0x0A800000 + index * 16
    return EndpointSlice(
        name=ObjectName("bench", f"service-{index}-abcde"),
        service=ObjectName("bench", f"service-{index}"),
        family=Family.IPV4,
        endpoints=tuple(
            SliceEndpoint(
                address=Address((first + number).to_bytes(4, "big")), node_name=NODE if (index + number) % 16 == 0 else "other"
            )
            for number in range(count)
        ),
        ports=(SlicePort(name="http", protocol=Protocol.TCP, port=8080),),
    )


def grown(original: EndpointSlice) -> EndpointSlice:
    """Return the slice with one endpoint more."""
    last = int.from_bytes(original.endpoints[-1].address, "big")
    more = SliceEndpoint(address=Address((last + 1).to_bytes(4, "big")), node_name="other")
    return evolve(original, endpoints=(*original.endpoints, more))
