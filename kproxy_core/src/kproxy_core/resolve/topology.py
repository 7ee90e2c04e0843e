"""Topology hints: which of the ready endpoints this node should use, all of them unless every one has a hint."""

from collections.abc import Sequence

from kproxy_core.model.state import Endpoint


def nearby(ready: Sequence[Endpoint], node_name: str, zone: str) -> tuple[Endpoint, ...]:
    """Return those of the ready endpoints that the hints assign to this node.

    Node hints are tried first, then zone hints; either counts only if every ready endpoint has such a hint and one names this
    node or its zone (kube-proxy 1.36; KEP-2433, KEP-3015). Otherwise all are returned.
    """
    if not ready:
        return ()
    by_node = tuple(endpoint for endpoint in ready if node_name in endpoint.node_hints) if node_name else ()
    if by_node and all(endpoint.node_hints for endpoint in ready):
        return by_node
    by_zone = tuple(endpoint for endpoint in ready if zone in endpoint.zone_hints) if zone else ()
    if by_zone and all(endpoint.zone_hints for endpoint in ready):
        return by_zone
    return tuple(ready)
