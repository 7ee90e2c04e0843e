"""The API server as a source: list and watch by path over the official client's connections, decoded straight into the model."""

from kproxy_core.sources.kubernetes.access import ApiAccess
from kproxy_core.sources.kubernetes.connection import ApiConnection
from kproxy_core.sources.kubernetes.errors import AccessError, CredentialsError, TransportError
from kproxy_core.sources.kubernetes.pace import Pace
from kproxy_core.sources.kubernetes.source import Inbox, KubernetesSource, Liveness, SourceOptions

__all__ = [
    "AccessError",
    "ApiAccess",
    "ApiConnection",
    "CredentialsError",
    "Inbox",
    "KubernetesSource",
    "Liveness",
    "Pace",
    "SourceOptions",
    "TransportError",
]
