"""Says why ports of a Service have no endpoint that traffic may go to: the first thing that people ask of a proxy.

Having none is normal in a cluster (scaled to nothing, starting, failing), hence a NOTE. Ready endpoints behind a port of another
name are a mistake in the Service or its slices, hence a WARNING.
"""

from collections.abc import Collection, Iterable

from kproxy_core.model.addresses import Family
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.names import Protocol
from kproxy_core.model.objects import EndpointSlice, Service, ServicePortSpec
from kproxy_core.resolve.slices import Joined

MOST_PORTS = 5
"""So many of a slice's ports are named."""

Lacking = Collection[tuple[ServicePortSpec, Family]]
"""The ports of a Service that have no usable endpoint, with the family in which they have none."""

_Reason = tuple[Severity, str, str]


def why_no_endpoints(service: Service, slices: Collection[EndpointSlice], joined: Joined, lacking: Lacking) -> list[Diagnostic]:
    """Give each reason once for all ports that it holds for; ``slices`` are all of the Service's, as they are ``joined``."""
    reasons: dict[_Reason, list[str]] = {}
    for spec, family in lacking:
        label = f"{spec.name or spec.port} ({family.label})" if len(service.cluster_ips) > 1 else spec.name or str(spec.port)
        reasons.setdefault(_reason(spec, family, slices, joined), []).append(label)
    return [
        Diagnostic(
            severity=severity,
            subject=service.subject,
            field="spec.ports",
            message=f"{'port' if len(labels) == 1 else 'ports'} {', '.join(labels)}: no endpoints; {why}",
            remedy=remedy,
        )
        for (severity, why, remedy), labels in reasons.items()
    ]


def _reason(spec: ServicePortSpec, family: Family, slices: Collection[EndpointSlice], joined: Joined) -> _Reason:
    of_family = [part for part in slices if part.family is family]
    if not of_family:
        return Severity.NOTE, f"there is no EndpointSlice of type {family.label} for the Service" if slices else _NO_SLICE, ""
    found = joined.get((family, spec.name, spec.protocol), ())
    if found:
        return Severity.NOTE, f"none of {len(found)} is ready, nor serves while it terminates", ""
    ports = {(port.name, port.protocol) for part in of_family for port in part.ports if port.port}
    if (spec.name, spec.protocol) in ports or not any(kind.ready for part in of_family for kind in part.endpoints.distinct_kinds):
        return Severity.NOTE, "its EndpointSlices hold none", ""
    wanted = _label(spec.name, spec.protocol)
    return (
        Severity.WARNING,
        f"its EndpointSlices have ready ones, but for {_listed(ports)}, not {wanted}",
        "give the port the same name and protocol in the Service and in its EndpointSlices",
    )


_NO_SLICE = "no EndpointSlice names the Service"


def _listed(ports: Iterable[tuple[str, Protocol]]) -> str:
    labels = [_label(name, protocol) for name, protocol in sorted(ports)]
    if not labels:
        return "no port"
    more = f" and {len(labels) - MOST_PORTS} more" if len(labels) > MOST_PORTS else ""
    return f"{'port' if len(labels) == 1 else 'the ports'} {', '.join(labels[:MOST_PORTS])}{more}"


def _label(name: str, protocol: Protocol) -> str:
    return f"{name or 'without a name'}/{protocol.name}"
