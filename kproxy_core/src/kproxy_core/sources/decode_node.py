"""Makes model Nodes and ServiceCIDRs of decoded ones."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from kproxy_core.model.addresses import Address, parse_address, parse_network
from kproxy_core.model.objects import ZONE_LABEL, Node, ServiceCIDR
from kproxy_core.sources.api_types import WireNode, WireServiceCIDR
from kproxy_core.sources.complaints import Complaints

T = TypeVar("T")

AUTOSCALER_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
"""On a Node that the cluster autoscaler is about to remove: load balancers should leave it (KEP-3836)."""


def node_of(wire: WireNode, name: str, complaints: Complaints) -> Node:
    """Make the Node. A Node that is being deleted or removed by the autoscaler is not eligible; being unschedulable is fine."""
    spec = wire.spec
    pod_cidrs = (spec.pod_cidrs or [spec.pod_cidr]) if spec else []
    taints = {taint.key for taint in (spec.taints if spec else None) or () if taint}
    return Node(
        name=name,
        internal_addresses=_node_addresses(wire, "InternalIP", complaints),
        external_addresses=_node_addresses(wire, "ExternalIP", complaints),
        pod_cidrs=tuple(_parsed(_numbered("spec.podCIDRs", pod_cidrs), parse_network, complaints)),
        zone=(wire.metadata.labels or {}).get(ZONE_LABEL, ""),
        eligible=wire.metadata.deletion_timestamp is None and AUTOSCALER_TAINT not in taints,
    )


def _node_addresses(wire: WireNode, kind: str, complaints: Complaints) -> tuple[Address, ...]:
    entries = (wire.status.addresses if wire.status else None) or ()
    texts = [(f"status.addresses[{i}].address", e.address) for i, e in enumerate(entries) if e is not None and e.type == kind]
    return tuple(_parsed(texts, parse_address, complaints))


def service_cidr_of(wire: WireServiceCIDR, name: str, complaints: Complaints) -> ServiceCIDR:
    """Make the ServiceCIDR."""
    cidrs = (wire.spec.cidrs if wire.spec else None) or ()
    return ServiceCIDR(name=name, cidrs=tuple(_parsed(_numbered("spec.cidrs", cidrs), parse_network, complaints)))


def _numbered(field: str, texts: Iterable[str | None]) -> Iterator[tuple[str, str]]:
    return ((f"{field}[{index}]", text) for index, text in enumerate(texts) if text)


def _parsed(texts: Iterable[tuple[str, str]], parse: Callable[[str], T], complaints: Complaints) -> Iterator[T]:
    for field, text in texts:
        try:
            yield parse(text)
        except ValueError as error:
            complaints.add(field, f"{error}; left out")
