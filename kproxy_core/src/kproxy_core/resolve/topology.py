"""Topology hints: which of the ready endpoints this node should use, all of them unless every one has a hint."""

from kproxy_core.model.state import Endpoints


def nearby(ready: Endpoints, node_name: str, zone: str) -> Endpoints:
    """Return those of the ready endpoints that the hints assign to this node.

    Node hints are tried first, then zone hints; either counts only if every ready endpoint has such a hint and one names this
    node or its zone (kube-proxy 1.36; KEP-2433, KEP-3015). Otherwise all are returned.
    """
    by_node = ready.where(lambda endpoint: node_name in endpoint.node_hints) if node_name else ()
    if by_node and all(kind.node_hints for kind in ready.distinct_kinds):
        return by_node
    by_zone = ready.where(lambda endpoint: zone in endpoint.zone_hints) if zone else ()
    if by_zone and all(kind.zone_hints for kind in ready.distinct_kinds):
        return by_zone
    return ready
