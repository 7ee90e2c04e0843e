"""The resources that the fake API server serves, and how a request's path names one."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

Object = Mapping[str, Any]
"""An API object as decoded JSON."""


def _no_fields(_: Object) -> dict[str, str]:
    return {}


def _service_fields(obj: Object) -> dict[str, str]:
    spec = obj.get("spec") or {}
    return {"spec.clusterIP": spec.get("clusterIP", ""), "spec.type": spec.get("type", "")}


@frozen(kw_only=True, eq=False)
class Resource:
    """One resource: where it lives and by which fields, beside name and namespace, it can be selected.

    ``has_status`` tells that its status is written at the ``/status`` subresource alone.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = False
    generation: bool = False
    empty: Mapping[str, Any] = field(factory=dict)
    extra_fields: Callable[[Object], dict[str, str]] = _no_fields
    selectable: frozenset[str] = frozenset()

    @property
    def api_version(self) -> str:
        """``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name in messages: ``services``, ``endpointslices.discovery.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def fields(self) -> frozenset[str]:
        """The fields that a field selector may name."""
        common = {"metadata.name", "metadata.namespace"} if self.namespaced else {"metadata.name"}
        return self.selectable | common

    def field_values(self, obj: Object) -> dict[str, str]:
        """Look up what a field selector compares."""
        metadata = obj["metadata"]
        return {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata.get("namespace", ""),
            **self.extra_fields(obj),
        }


SERVICES = Resource(
    group="",
    version="v1",
    plural="services",
    kind="Service",
    has_status=True,
    empty={"spec": {}, "status": {"loadBalancer": {}}},
    extra_fields=_service_fields,
    selectable=frozenset({"spec.clusterIP", "spec.type"}),
)
ENDPOINT_SLICES = Resource(
    group="discovery.k8s.io",
    version="v1",
    plural="endpointslices",
    kind="EndpointSlice",
    generation=True,
    empty={"addressType": "", "endpoints": None, "ports": None},
)
NODES = Resource(
    group="", version="v1", plural="nodes", kind="Node", namespaced=False, has_status=True, empty={"spec": {}, "status": {}}
)
SERVICE_CIDRS = Resource(
    group="networking.k8s.io",
    version="v1",
    plural="servicecidrs",
    kind="ServiceCIDR",
    namespaced=False,
    has_status=True,
    empty={"spec": {}, "status": {}},
)
NAMESPACES = Resource(group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False, has_status=True)
EVENTS = Resource(group="events.k8s.io", version="v1", plural="events", kind="Event")
CORE_EVENTS = Resource(group="", version="v1", plural="events", kind="Event")

RESOURCES = (SERVICES, ENDPOINT_SLICES, NODES, SERVICE_CIDRS, NAMESPACES, EVENTS, CORE_EVENTS)
BY_KIND = {(resource.api_version, resource.kind): resource for resource in RESOURCES}
_BY_PATH = {(resource.group, resource.version, resource.plural): resource for resource in RESOURCES}

_PATH = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>status))?)?/?"
)


@frozen(kw_only=True)
class Target:
    """What a path names: all objects of a resource, those of a namespace, or one."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target(path: str) -> Target | None:
    """Find what ``path`` names, None when it is no resource that is served."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    namespace, plural, name = found["namespace"] or "", found["plural"], found["name"] or ""
    if namespace and plural == "status":  # /api/v1/namespaces/NAME/status is the namespace's own
        namespace, plural, name = "", "namespaces", namespace
    resource = _BY_PATH.get((found["group"] or "", found["core"] or found["version"], plural))
    if resource is None or (namespace and not resource.namespaced):
        return None
    return Target(resource=resource, namespace=namespace, name=name, subresource=found["subresource"] or "")


def in_served_group(path: str) -> bool:
    """Whether a path is within an API group and version that is served: others are unknown to the server altogether."""
    return any(path.startswith(collection_path(resource).rpartition("/")[0] + "/") for resource in RESOURCES)


def collection_path(resource: Resource, namespace: str = "") -> str:
    """Give the path of all objects of a resource, or of those in ``namespace``."""
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    return f"{root}/namespaces/{namespace}/{resource.plural}" if namespace else f"{root}/{resource.plural}"
