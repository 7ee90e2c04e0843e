"""A fake Kubernetes API server: real HTTP and TLS, lists, watches, writes, and faults to inject.

::

    with FakeApi() as api:
        api.apply({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "web", "namespace": "default"}, "spec": {...}})
        write_kubeconfig(path, Cluster(server=api.url, authority=api.server_authority.pem), User(token="secret"))
        ...
        api.faults.refuse(429, times=3, retry_after=1)
        api.expire_watches(SERVICES)

What it answers follows recordings of kube-apiserver 1.36.2. It has no discovery, no OpenAPI and no admission beyond the defaults,
addresses and ports of Services.
"""

from kproxy_core.testing.fake_api.answers import ApiError
from kproxy_core.testing.fake_api.certificates import Authority, Certificate
from kproxy_core.testing.fake_api.faults import Faults, Request
from kproxy_core.testing.fake_api.kubeconfig import Cluster, User, replace_file, write_certificate, write_kubeconfig
from kproxy_core.testing.fake_api.log import RequestLog
from kproxy_core.testing.fake_api.proxy import ConnectProxy
from kproxy_core.testing.fake_api.resources import (
    CORE_EVENTS,
    ENDPOINT_SLICES,
    EVENTS,
    NAMESPACES,
    NODES,
    SERVICE_CIDRS,
    SERVICES,
    Object,
    Resource,
    collection_path,
)
from kproxy_core.testing.fake_api.routes import Access
from kproxy_core.testing.fake_api.server import FakeApi
from kproxy_core.testing.fake_api.streams import bookmark_line, error_line, event_line

__all__ = [
    "CORE_EVENTS",
    "ENDPOINT_SLICES",
    "EVENTS",
    "NAMESPACES",
    "NODES",
    "SERVICES",
    "SERVICE_CIDRS",
    "Access",
    "ApiError",
    "Authority",
    "Certificate",
    "Cluster",
    "ConnectProxy",
    "FakeApi",
    "Faults",
    "Object",
    "Request",
    "RequestLog",
    "Resource",
    "User",
    "bookmark_line",
    "collection_path",
    "error_line",
    "event_line",
    "replace_file",
    "write_certificate",
    "write_kubeconfig",
]
