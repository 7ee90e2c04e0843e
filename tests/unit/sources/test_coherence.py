"""What is odd about manifests as a whole: nothing to serve, Services that cannot be served, slices that serve nobody."""

from typing import Any

from kproxy_core.model.diagnostics import Severity
from kproxy_core.sources.coherence import MOST_GUESSES, incoherent
from kproxy_core.sources.mixed import Origin, combine, decode_document


def told(*documents: dict[str, Any]) -> list[tuple[str, str, str]]:
    decoded = tuple(found for document in documents for found in decode_document(document))
    assert not [d for found in decoded for d in found.diagnostics]
    found = list(incoherent(combine([Origin(name="a", decoded=decoded)]), "manifests a"))
    assert all(diagnostic.severity is Severity.WARNING for _, diagnostic in found)
    return [(diagnostic.subject, diagnostic.field, diagnostic.remedy) for _, diagnostic in found]


def service(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    spec = {"clusterIP": "10.96.0.1", "ports": [{"port": 80}], **spec}
    metadata = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {k: v for k, v in spec.items() if v is not None}}


def a_slice(owner: str, name: str = "x", namespace: str = "default") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": owner}}
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4"}


def test_nothing_to_serve() -> None:
    assert told() == [("manifests a", "", "write a Service")]


def test_services_that_cannot_be_served() -> None:
    assert told(service("web", clusterIP=None, ports=None)) == [
        ("Service default/web", "spec.clusterIP", "write an address, or None for a headless Service"),
        ("Service default/web", "spec.ports", "write at least one port"),
    ]


def test_services_that_need_neither_are_silent() -> None:
    other = {"service.kubernetes.io/service-proxy-name": "other"}
    assert told(service("a", clusterIP="None", ports=None), service("b", labels=other, clusterIP=None)) == []
    assert told(service("c", type="ExternalName", externalName="example.org", clusterIP=None, ports=None)) == []


def test_slices_without_their_service() -> None:
    found = told(service("web"), a_slice("webb"), a_slice("webb", "y"), a_slice("web", "z", "elsewhere"), a_slice("web", "w"))
    assert found == [
        ("EndpointSlice default/x", "", "did you mean web?"),
        ("EndpointSlice elsewhere/z", "", "write that Service, or name another one"),
    ]


def test_slices_of_headless_services_and_of_other_proxies_are_silent() -> None:
    other = {"service.kubernetes.io/service-proxy-name": "other"}
    headless = service("web", clusterIP="None", ports=None)
    assert told(headless, service("b", labels=other), a_slice("web"), a_slice("b", "y")) == []


def test_only_a_few_guesses_are_made() -> None:
    found = told(service("webserver"), *(a_slice(f"webserver{number:02}", f"x{number:02}") for number in range(MOST_GUESSES + 5)))
    assert len(found) == MOST_GUESSES + 5
    assert [remedy.startswith("did you mean") for _, _, remedy in found] == [True] * MOST_GUESSES + [False] * 5
