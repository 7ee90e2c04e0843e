"""Joins the EndpointSlices of one Service to its ports: by port name, protocol and family, never by port number."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.diagnostics import Diagnostic
from kproxy_core.model.names import Protocol
from kproxy_core.model.objects import EndpointSlice, Service, SliceEndpoint
from kproxy_core.model.packed import MOST_KINDS, Packed, kind_of
from kproxy_core.model.state import Endpoint, Endpoints
from kproxy_core.resolve.guard import safe_endpoints

PortId = tuple[Family, str, Protocol]
"""A Service port within its Service: family, port name and protocol."""

Joined = Mapping[PortId, Endpoints]
"""The endpoints of each Service port that any slice names, sorted by address and port."""

_Merged = dict[tuple[bytes, int], Endpoint]
"""Kinds of endpoints by address and port."""


def join_slices(
    service: Service, slices: Iterable[EndpointSlice], node_name: str, diagnostics: list[Diagnostic]
) -> dict[PortId, Endpoints]:
    """Collect the endpoints of every port of ``service``.

    Slices may overlap and repeat endpoints: the better of two entries for one address and port is kept, whatever their order.
    While a pod's address is used again, the old pod's entry, terminating, and the new one's can be there together, and kube-proxy
    since 1.35 prefers the one that does not terminate. Endpoints at special addresses are left out and told to ``diagnostics``.
    An endpoint is local when its node's name is this node's.
    """
    wanted = {(port.name, port.protocol) for port in service.ports}
    merged: dict[PortId, _Merged] = {}
    for part in slices:
        endpoints = safe_endpoints(part, diagnostics)
        for port in part.ports:
            if port.port and (port.name, port.protocol) in wanted:
                bucket = merged.setdefault((part.family, port.name, port.protocol), {})
                _add(bucket, endpoints, port.port, node_name, service.weights)
    return {key: _sorted(bucket) for key, bucket in merged.items()}


def _sorted(bucket: _Merged) -> Endpoints:
    places = sorted(bucket)
    return Packed([address for address, _ in places], [bucket[place] for place in places])


def _add(bucket: _Merged, sources: Packed[SliceEndpoint], port: int, node_name: str, weights: Mapping[str, int]) -> None:
    for address, source in sources.pairs():
        weight = weights.get(str(Address(address)), weights.get("*", 1)) if weights else 1
        endpoint = _endpoint(source, port, node_name, weight)
        place = (address, port)
        if place not in bucket or _rank(endpoint) > _rank(bucket[place]):
            bucket[place] = endpoint


@lru_cache(maxsize=MOST_KINDS)
def _endpoint(source: SliceEndpoint, port: int, node_name: str, weight: int) -> Endpoint:
    """Make of the kind of a slice's endpoint that of a Service port's, the same one for equal ones."""
    return kind_of(
        Endpoint(
            address=source.address,
            port=port,
            ready=source.ready,
            serving=source.serving,
            terminating=source.terminating,
            local=source.node_name == node_name and node_name != "",
            nodeless=source.node_name == "",
            zone_hints=source.zone_hints,
            node_hints=source.node_hints,
            weight=weight,
        )
    )


def _rank(endpoint: Endpoint) -> tuple[bool, bool, bool, bool, list[str], list[str], bool]:
    """The order among entries for one place; what comes after ``local`` only makes it total."""
    return (
        not endpoint.terminating,
        endpoint.ready,
        endpoint.serving,
        endpoint.local,
        sorted(endpoint.node_hints),
        sorted(endpoint.zone_hints),
        endpoint.nodeless,
    )
