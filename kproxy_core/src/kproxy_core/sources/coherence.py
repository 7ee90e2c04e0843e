"""Tells what is odd about manifests as a whole, which no single object shows: what a Service lacks, and slices without a Service.

An API server completes Services and owns their slices, so none of this is asked of what it sends.
"""

from collections.abc import Iterator, Mapping

from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.objects import EndpointSlice, Service, ServiceType
from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.mixed import Listing
from kproxy_core.sources.spelling import nearest

MOST_GUESSES = 20
"""For so many slices the Service that is probably meant is looked up: each guess costs a comparison with all Services."""


def incoherent(listings: Mapping[Kind, Listing], where: str) -> Iterator[tuple[Kind, Diagnostic]]:
    """Yield what is to be told, and with which kind; ``where`` is how people call the manifests."""
    services = [found for found in listings[Kind.SERVICE].objects if isinstance(found, Service)]
    if not services:
        yield Kind.SERVICE, _warning(where, "", "there is no Service in it, so nothing is served", "write a Service")
    for service in services:
        yield from ((Kind.SERVICE, told) for told in _incomplete(service))
    by_name = {service.name: service for service in services}
    strays = {
        found.service: found
        for found in reversed(listings[Kind.ENDPOINT_SLICE].objects)
        if isinstance(found, EndpointSlice) and found.service not in by_name
    }
    for number, (owner, part) in enumerate(sorted(strays.items())):
        siblings = [name.name for name in by_name if name.namespace == owner.namespace] if number < MOST_GUESSES else []
        near = nearest(owner.name, siblings)
        remedy = f"did you mean {near}?" if near else "write that Service, or name another one"
        message = f"there is no Service {owner}, so its endpoints serve nobody"
        yield Kind.ENDPOINT_SLICE, _warning(part.subject, "", message, remedy)


def _incomplete(service: Service) -> Iterator[Diagnostic]:
    """What an API server would have filled in or refused; headless Services and those of other proxies may lack it."""
    if service.headless or service.proxy_name is not None or service.type is ServiceType.EXTERNAL_NAME:
        return
    if not service.cluster_ips:
        message = "the Service has no cluster address, and nobody here chooses one: it is not served"
        yield _warning(service.subject, "spec.clusterIP", message, "write an address, or None for a headless Service")
    if not service.ports:
        yield _warning(service.subject, "spec.ports", "the Service has no port: it is not served", "write at least one port")


def _warning(subject: str, field: str, message: str, remedy: str) -> Diagnostic:
    return Diagnostic(severity=Severity.WARNING, subject=subject, field=field, message=message, remedy=remedy)
