"""What the health endpoints say: /healthz, /livez and the healthCheckNodePort of a Service. Pure.

Paths, codes and JSON are kube-proxy's (KEP-3836), so that load balancers and dashboards go on working.
"""

import datetime
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from attrs import field, frozen

from kproxy_core.model.addresses import Family
from kproxy_core.model.state import ServiceHealth
from kproxy_core.runtime.http_messages import Response
from kproxy_core.runtime.watches import WatchLife

WEIGHT_HEADER: Final = "X-Load-Balancing-Endpoint-Weight"
_JSON: Final = "application/json"


@frozen(kw_only=True)
class NodeHealth:
    """The state of the proxy, at one moment.

    ``updated`` is when each family was last brought up to date (seconds since the epoch), ``healthy`` whether nothing has been
    waiting too long for it; a family that was never synced is absent. ``eligible`` is about the Node: false when it is being
    deleted, is gone, or the autoscaler is about to take it. ``watches`` tell how the API server is heard; they are shown and
    decide nothing: an outage of the API server concerns all nodes at once, and what the kernel has goes on serving.
    """

    now: float
    updated: Mapping[Family, float] = field(factory=dict)
    healthy: Mapping[Family, bool] = field(factory=dict)
    eligible: bool = True
    watches: Mapping[str, WatchLife] = field(factory=dict)

    @property
    def all_healthy(self) -> bool:
        """Whether every family is."""
        return all(self.healthy.values())


def healthz(health: NodeHealth) -> Response:
    """Answer /healthz: 200 when up to date and the node may get traffic, else 503."""
    good = health.all_healthy and health.eligible
    return _answer(health, good, {"nodeEligible": health.eligible})


def livez(health: NodeHealth) -> Response:
    """Answer /livez: as /healthz, but whatever is to become of the Node."""
    return _answer(health, health.all_healthy, {})


def _answer(health: NodeHealth, good: bool, more: Mapping[str, object]) -> Response:
    # While all is well the last update counts as now, for clients that know this field alone.
    last = health.now if health.all_healthy else min(health.updated.values(), default=health.now)
    status = {
        family.label: {"lastUpdated": _time(updated), "healthy": health.healthy.get(family, True)}
        for family, updated in sorted(health.updated.items())
    }
    body = {"lastUpdated": _time(last), "currentTime": _time(health.now), "healthy": health.all_healthy, **more, "status": status}
    if health.watches:
        body["watches"] = {name: _watch(health.now, life) for name, life in sorted(health.watches.items())}
    return Response(
        status=HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE,
        body=json.dumps(body).encode() + b"\n",
        content_type=_JSON,
    )


def _watch(now: float, life: WatchLife) -> Mapping[str, object]:
    heard = None if life.silence is None else _time(now - life.silence)
    return {"lastHeard": heard, "listed": life.listed, "problem": life.problem}


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def service_health(service: ServiceHealth, proxy_healthy: bool) -> Response:
    """Answer a healthCheckNodePort: 200 while the Service has a ready endpoint here and the proxy does its work.

    A dual-stack pod has two addresses and is one endpoint: as in kube-proxy, whose families count for themselves.
    """
    count = max(sum(address.family is family for address in service.local_ready) for family in Family)
    body = {
        "service": {"namespace": service.service.namespace, "name": service.service.name},
        "localEndpoints": count,
        "serviceProxyHealthy": proxy_healthy,
    }
    return Response(
        status=HTTPStatus.OK if count and proxy_healthy else HTTPStatus.SERVICE_UNAVAILABLE,
        body=json.dumps(body).encode() + b"\n",
        content_type=_JSON,
        headers={WEIGHT_HEADER: str(count)},
    )
