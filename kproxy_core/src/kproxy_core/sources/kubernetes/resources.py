"""What is watched at the API server: paths and server-side selectors of the kinds a proxy needs."""

from attrs import field, frozen

from kproxy_core.model.objects import HEADLESS_LABEL, SERVICE_PROXY_NAME_LABEL
from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.decode import WATCHED, AnyCodec

Query = tuple[tuple[str, str], ...]


@frozen(kw_only=True)
class WatchedResource:
    """One kind, and which of its objects the server is to send.

    ``can_do_without_fields`` tells that ``field_selector`` only saves work: it is left out where the server does not know the
    field. ``optional`` kinds may be absent or forbidden: the proxy does without.
    """

    kind: Kind
    path: str
    label_selector: str = ""
    field_selector: str = ""
    can_do_without_fields: bool = False
    optional: bool = False
    codec: AnyCodec = field()

    @codec.default
    def _codec_of_the_kind(self) -> AnyCodec:
        return WATCHED[self.kind]

    def selectors(self, *, with_fields: bool = True) -> Query:
        """Return the query parameters that select."""
        labels = (("labelSelector", self.label_selector),) if self.label_selector else ()
        fields = (("fieldSelector", self.field_selector),) if self.field_selector and with_fields else ()
        return (*labels, *fields)


SERVICES = WatchedResource(
    kind=Kind.SERVICE,
    path="/api/v1/services",
    label_selector=f"!{SERVICE_PROXY_NAME_LABEL}",
    field_selector="spec.clusterIP!=None",
    can_do_without_fields=True,
)
"""Without headless Services and those that another proxy serves (kube-proxy 1.36 selects the same)."""

ENDPOINT_SLICES = WatchedResource(
    kind=Kind.ENDPOINT_SLICE, path="/apis/discovery.k8s.io/v1/endpointslices", label_selector=f"!{HEADLESS_LABEL}"
)
SERVICE_CIDRS = WatchedResource(kind=Kind.SERVICE_CIDR, path="/apis/networking.k8s.io/v1/servicecidrs", optional=True)
"""Served since Kubernetes 1.33 (networking.k8s.io/v1)."""


def own_node(name: str) -> WatchedResource:
    """Watch one Node alone; the kubelet's heartbeats go to Leases, so this one is quiet."""
    return WatchedResource(kind=Kind.NODE, path="/api/v1/nodes", field_selector=f"metadata.name={name}")
