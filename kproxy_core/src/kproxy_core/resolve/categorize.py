"""Sorts the endpoints of one Service port into the sets that traffic policies choose from."""

from typing import Final

from attrs import evolve
from msgspec.structs import replace

from kproxy_core.model.packed import Packed, packed
from kproxy_core.model.state import Endpoints, EndpointSets, NodeContext
from kproxy_core.resolve.topology import nearby

_NONE: Final[Endpoints] = Packed()


def categorize(endpoints: Endpoints, node: NodeContext, *, use_cluster: bool, use_local: bool) -> EndpointSets:
    """Make the endpoint sets of one Service port (kube-proxy 1.36 ``CategorizeEndpoints``); ``endpoints`` come sorted.

    A set that no frontend uses is left empty. Each used set holds ready endpoints or, separately, when it has no ready one, those
    that terminate but still serve (KEP-1669). Topology hints narrow the cluster set only.
    """
    ready = endpoints.where(lambda endpoint: endpoint.ready)
    usable = ready or _terminating(endpoints)
    cluster = nearby(ready, node.name, node.zone) or usable if use_cluster else _NONE
    local = _NONE
    if use_local:
        here = endpoints.where(lambda endpoint: endpoint.local)
        local = here.where(lambda endpoint: endpoint.ready) or _terminating(here)
    return EndpointSets(cluster=cluster, local=local, reachable=_union(cluster, local), any_in_cluster=bool(usable))


def _terminating(endpoints: Endpoints) -> Endpoints:
    """Those that terminate but still serve: better than nothing while a load balancer or a rollout has not caught up."""
    return endpoints.where(lambda endpoint: endpoint.serving and endpoint.terminating)


def _union(cluster: Endpoints, local: Endpoints) -> Endpoints:
    if not local or local == cluster:
        return cluster
    if not cluster:
        return local
    places = {(address, kind.port): kind for address, kind in (*local.pairs(), *cluster.pairs())}
    found = sorted(places)
    return Packed([address for address, _ in found], [places[place] for place in found])


def level_zero_weights(sets: EndpointSets) -> EndpointSets | None:
    """Return the sets with weight 1 for all endpoints of a set in which all have weight 0; None when there is no such set.

    Somebody has to take the connections: a Service whose weights are all 0 is a slip, not a wish for an outage.
    """
    cluster, local = _level(sets.cluster), _level(sets.local)
    if cluster is sets.cluster and local is sets.local:
        return None
    return evolve(sets, cluster=cluster, local=local, reachable=_union(cluster, local))


def _level(endpoints: Endpoints) -> Endpoints:
    if not endpoints or any(kind.weight for kind in endpoints.distinct_kinds):
        return endpoints
    return packed(replace(endpoint, weight=1) for endpoint in endpoints)
