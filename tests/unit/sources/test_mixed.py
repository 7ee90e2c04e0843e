"""Putting texts together: Lists, equal names, Endpoints beside EndpointSlices."""

from typing import Any

from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.mixed import DEEPEST_LIST, Listing, Origin, combine, decode_document


def service(name: str, cluster_ip: str = "10.96.0.1") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"clusterIP": cluster_ip}}


def a_slice(owner: str) -> dict[str, Any]:
    metadata = {"name": f"{owner}-x", "labels": {"kubernetes.io/service-name": owner}}
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4"}


def endpoints(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": name}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]}


def origin(name: str, *documents: Any) -> Origin:
    return Origin(name=name, decoded=tuple(found for document in documents for found in decode_document(document)))


def names(listing: Listing) -> list[str]:
    return [str(found.name) for found in listing.objects]


def test_lists_of_mixed_kinds_and_of_one_are_opened() -> None:
    mixed = {"apiVersion": "v1", "kind": "List", "items": [service("a"), a_slice("a"), {"kind": "Pod", "apiVersion": "v1"}]}
    bare = {key: value for key, value in service("b").items() if key in ("metadata", "spec")}
    typed = {"apiVersion": "v1", "kind": "ServiceList", "items": [bare, service("c")]}
    found = combine([origin("one", mixed, typed)])
    assert names(found[Kind.SERVICE]) == ["default/a", "default/b", "default/c"]
    assert names(found[Kind.ENDPOINT_SLICE]) == ["default/a-x"]
    assert [(d.severity, d.subject) for d in found[Kind.SERVICE].diagnostics] == [(Severity.NOTE, "Pod without a name")]


def nested(depth: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": [service(f"at{depth}"), *([nested(depth - 1)] if depth else [])]}


def test_lists_in_lists_end_somewhere() -> None:
    found = list(decode_document(nested(6)))
    assert len([d for d in found if d.objects]) == DEEPEST_LIST
    assert [d.message for d in found[-1].diagnostics] == ["nested too deeply; left out"]


def test_a_list_that_aliases_repeat_is_opened_once() -> None:
    bomb: dict[str, Any] = {"apiVersion": "v1", "kind": "List", "items": [service("a")]}
    for _ in range(DEEPEST_LIST - 1):
        bomb = {"apiVersion": "v1", "kind": "List", "items": [bomb] * 1000}
    assert len(list(decode_document(bomb))) == 1, "not a thousand millions"


def test_a_list_in_itself_is_opened_once() -> None:
    endless: dict[str, Any] = {"apiVersion": "v1", "kind": "List", "items": [service("a")]}
    endless["items"] += [endless, service("b")]
    assert names(combine([origin("one", endless)])[Kind.SERVICE]) == ["default/a", "default/b"]


def test_lone_surrogates_of_json_cost_only_what_they_are_in() -> None:
    odd = service("odd") | {"status": "\ud800"}
    odd["metadata"]["labels"] = {"\ud800": "\udfff"}
    nameless = service("\ud800")
    found = combine([origin("one", service("a"), odd, nameless, "\ud800", {"kind": "\ud800", "apiVersion": []})])[Kind.SERVICE]
    assert names(found) == ["default/a", "default/odd"]
    assert [(d.subject, d.field) for d in found.diagnostics] == [
        ("Service default/odd", "status"),
        ("Service default/\ud800", "metadata.name"),
        ("object", ""),
        ("object", ""),
    ]


def test_odd_lists_are_told() -> None:
    (item,) = combine([origin("one", {"apiVersion": "v1", "kind": "List", "items": [7]})])[Kind.SERVICE].diagnostics
    assert item.severity is Severity.ERROR
    (kind,) = combine([origin("one", {"apiVersion": "v1", "kind": "List", "items": 7})])[Kind.SERVICE].diagnostics
    assert "List" in kind.subject


def test_the_first_of_equal_names_wins_and_the_other_is_told() -> None:
    found = combine(
        [origin("a.yaml", service("web", "10.96.0.1")), origin("b.yaml", service("web", "10.96.0.2"), service("other"))]
    )
    first, _ = found[Kind.SERVICE].objects
    assert str(first.cluster_ips[0]) == "10.96.0.1"  # type: ignore[union-attr]
    (told,) = found[Kind.SERVICE].diagnostics
    assert told.subject == "Service default/web"
    assert "b.yaml" in told.message
    assert "a.yaml" in told.message


def test_endpoints_count_only_without_an_endpoint_slice_anywhere() -> None:
    found = combine([origin("a", endpoints("web"), endpoints("old")), origin("b", a_slice("web"))])
    assert names(found[Kind.ENDPOINT_SLICE]) == ["default/web-x", "default/old-endpoints-0-ipv4"]
    assert found[Kind.ENDPOINT_SLICE].diagnostics == ()


def test_what_is_told_goes_with_its_kind() -> None:
    odd_slice = {**a_slice("web"), "ports": 7}
    odd_endpoints = {**endpoints("old"), "subsets": 7}
    file_level = Diagnostic(severity=Severity.ERROR, subject="file a", message="broken")
    made = Origin(name="a", decoded=origin("a", odd_slice, odd_endpoints).decoded, diagnostics=(file_level,))
    found = combine([made])
    assert [d.subject for d in found[Kind.ENDPOINT_SLICE].diagnostics] == ["EndpointSlice default/web-x", "Endpoints default/old"]
    assert found[Kind.SERVICE].diagnostics == (file_level,)
    assert not found[Kind.NODE]
