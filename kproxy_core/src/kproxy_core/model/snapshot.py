"""ClusterSnapshot: the watched objects at one moment, indexed by owner."""

import enum
from collections.abc import Mapping

from attrs import field, frozen

from kproxy_core.model.diagnostics import Diagnostic
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Node, Service, ServiceCIDR


class Kind(enum.Enum):
    """The kinds of object that a source delivers."""

    SERVICE = "Service"
    ENDPOINT_SLICE = "EndpointSlice"
    NODE = "Node"
    SERVICE_CIDR = "ServiceCIDR"


NEEDED_BEFORE_FIRST_SYNC = frozenset({Kind.SERVICE, Kind.ENDPOINT_SLICE})
"""No kernel write before these are listed (kube-proxy's rule): a half-seen cluster looks like Services without endpoints."""


@frozen(kw_only=True)
class ClusterSnapshot:
    """The objects a source has delivered so far. Mappings are never mutated.

    ``slices`` is keyed by owner, then by the slice's own name. ``node`` is the proxy's own Node, None while unknown.
    ``diagnostics`` are those of the source, sorted: what it could not read of the objects.
    """

    services: Mapping[ObjectName, Service] = field(factory=dict)
    slices: Mapping[ObjectName, Mapping[ObjectName, EndpointSlice]] = field(factory=dict)
    node: Node | None = None
    service_cidrs: Mapping[str, ServiceCIDR] = field(factory=dict)
    synced: frozenset[Kind] = frozenset()
    diagnostics: tuple[Diagnostic, ...] = ()
