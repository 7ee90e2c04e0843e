"""Decides what happens to connections to each frontend, by where they come from."""

from typing import NamedTuple

from kproxy_core.model.addresses import Family
from kproxy_core.model.objects import TrafficPolicy
from kproxy_core.model.state import (
    Disposition,
    Drop,
    EndpointScope,
    EndpointSets,
    Forward,
    FrontendKind,
    FrontendRule,
    LocalByNetwork,
    Masquerade,
    NodeContext,
    Reject,
)
from kproxy_core.resolve.frontends import Frontends


class ByOrigin(NamedTuple):
    """A disposition for each origin of the traffic."""

    from_local_pod: Disposition
    from_node: Disposition
    from_outside: Disposition


_DROP, _REJECT = Drop(), Reject()
_REJECT_ALL = ByOrigin(_REJECT, _REJECT, _REJECT)
_FORWARD = {(scope, masquerade): Forward(scope, masquerade) for scope in EndpointScope for masquerade in Masquerade}


def detects_local_pods(node: NodeContext, family: Family) -> bool:
    """Whether local pods can be told from other traffic in this family; networks of the other family tell nothing."""
    match node.local_detector:
        case None:
            return False
        case LocalByNetwork(networks):
            return any(network.family is family for network in networks)
        case _:
            return True


def internal(policy: TrafficPolicy, sets: EndpointSets, *, detects: bool, masquerade_all: bool) -> ByOrigin:
    """The dispositions of a cluster address.

    Traffic that comes from elsewhere than a local pod is masqueraded, so that the answer comes back through this node; where
    local pods cannot be told, nothing but hairpin traffic is (kube-proxy without a cluster CIDR).
    """
    if not sets.any_in_cluster:
        return _REJECT_ALL
    scope = EndpointScope.CLUSTER if policy is TrafficPolicy.CLUSTER else EndpointScope.LOCAL
    near = _forward(sets, scope, Masquerade.ALWAYS if masquerade_all else Masquerade.HAIRPIN_ONLY)
    far = _forward(sets, scope, Masquerade.ALWAYS if masquerade_all or detects else Masquerade.HAIRPIN_ONLY)
    return ByOrigin(near, far, far)


def external(policy: TrafficPolicy, sets: EndpointSets, *, detects: bool) -> ByOrigin:
    """The dispositions of an external address or a NodePort.

    Policy Local binds traffic from outside only and keeps the client's address; a local pod, or this node, reaches every endpoint
    as through the cluster address. Where local pods cannot be told they count as outside.
    """
    if not sets.any_in_cluster:
        return _REJECT_ALL
    everywhere = _forward(sets, EndpointScope.CLUSTER, Masquerade.ALWAYS)
    if policy is TrafficPolicy.CLUSTER:
        return ByOrigin(everywhere, everywhere, everywhere)
    outside = _forward(sets, EndpointScope.LOCAL, Masquerade.HAIRPIN_ONLY)
    pod = _forward(sets, EndpointScope.CLUSTER, Masquerade.HAIRPIN_ONLY) if detects else outside
    return ByOrigin(pod, everywhere, outside)


def _forward(sets: EndpointSets, scope: EndpointScope, masquerade: Masquerade) -> Disposition:
    return _FORWARD[scope, masquerade] if sets.of(scope) else _DROP


def rules(frontends: Frontends, internal: ByOrigin, external: ByOrigin, *, restricted: bool) -> tuple[FrontendRule, ...]:
    """Make the rule of each frontend, sorted; ``restricted`` is whether load balancer addresses have a filter."""
    made: list[FrontendRule] = []
    for frontend in frontends.accepted:
        of = internal if frontend.kind is FrontendKind.CLUSTER_IP else external
        made.append(
            FrontendRule(
                frontend=frontend,
                from_local_pod=of.from_local_pod,
                from_node=of.from_node,
                from_outside=of.from_outside,
                restricted=restricted and frontend in frontends.load_balanced,
            )
        )
    return tuple(made)
