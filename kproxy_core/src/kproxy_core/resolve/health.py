"""What the healthCheckNodePort of a Service knows: which local addresses are ready."""

from kproxy_core.model.objects import Service, ServiceType, TrafficPolicy
from kproxy_core.model.state import ServiceHealth
from kproxy_core.resolve.slices import Joined


def service_health(service: Service, joined: Joined) -> ServiceHealth | None:
    """Return the health of a Service of type LoadBalancer with external policy Local; None for all others.

    Distinct addresses over all ports and both families; terminating endpoints never count, even where they still get traffic, so
    that the load balancer drains this node (KEP-1669).
    """
    if (
        not service.health_check_node_port
        or service.type is not ServiceType.LOAD_BALANCER
        or service.external_policy is not TrafficPolicy.LOCAL
    ):
        return None
    ready = frozenset(e.address for endpoints in joined.values() for e in endpoints if e.local and e.ready)
    return ServiceHealth(service=service.name, port=service.health_check_node_port, local_ready=ready)
