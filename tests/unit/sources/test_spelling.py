"""Slips of the pen in manifests are told with what is probably meant; fields of the API, read or not, never are."""

from typing import Any

import msgspec
import pytest

from kproxy_core.model.diagnostics import Severity
from kproxy_core.sources.decode import CODECS, decode_data, misspelt_kind
from kproxy_core.sources.mixed import decode_document
from kproxy_core.sources.spelling import OBJECTS, Fields, misspelt

HEAD = {"apiVersion": "v1", "metadata": {"name": "web"}}


def told(kind: str, **given: Any) -> list[tuple[str, str]]:
    return [(d.field, d.remedy) for d in misspelt({**HEAD, "kind": kind, **given}, kind, "x")]


@pytest.mark.parametrize(
    ("kind", "given", "field", "remedy"),
    [
        ("Service", {"spec": {"clusterIp": "10.96.0.1"}}, "spec.clusterIp", "did you mean clusterIP?"),
        ("Service", {"spec": {"ports": [{}, {"nodePorts": 1}]}}, "spec.ports[1].nodePorts", "did you mean nodePort?"),
        (
            "Service",
            {"spec": {"sessionAffinityConfig": {"clientIp": {}}}},
            "spec.sessionAffinityConfig.clientIp",
            "did you mean clientIP?",
        ),
        ("Service", {"status": {"loadbalancer": {}}}, "status.loadbalancer", "did you mean loadBalancer?"),
        ("Service", {"metadata": {"lables": {}}}, "metadata.lables", "did you mean labels?"),
        ("Service", {"clusterIP": "10.96.0.1"}, "clusterIP", "it belongs to spec"),
        ("Service", {"spec": {"nodePort": 30080}}, "spec.nodePort", "it belongs to spec.ports"),
        ("EndpointSlice", {"endpoints": [{"nodename": "a"}]}, "endpoints[0].nodename", "did you mean nodeName?"),
        ("EndpointSlice", {"endpoints": [{"condition": {"ready": False}}]}, "endpoints[0].condition", "did you mean conditions?"),
        ("EndpointSlice", {"endpoints": [{"ready": False}]}, "endpoints[0].ready", "it belongs to endpoints.conditions"),
        ("EndpointSlice", {"endpoints": [{"hints": {"forZone": []}}]}, "endpoints[0].hints.forZone", "did you mean forZones?"),
        ("EndpointSlice", {"addresstype": "IPv4"}, "addresstype", "did you mean addressType?"),
        ("Endpoints", {"subsets": [{"adresses": []}]}, "subsets[0].adresses", "did you mean addresses?"),
        ("Node", {"spec": {"podCidr": "10.0.0.0/24"}}, "spec.podCidr", "did you mean podCIDR?"),
        ("ServiceCIDR", {"spec": {"cidr": []}}, "spec.cidr", "did you mean cidrs?"),
    ],
)
def test_slips_are_told(kind: str, given: dict[str, Any], field: str, remedy: str) -> None:
    assert told(kind, **given) == [(field, remedy)]


def everything(fields: Fields) -> dict[str, Any]:
    return {name: [everything(below)] if below else "x" for name, below in fields.items()}


@pytest.mark.parametrize("kind", OBJECTS)
def test_fields_of_the_api_and_strange_ones_are_silent(kind: str) -> None:
    assert list(misspelt(everything(OBJECTS[kind]), kind, "x")) == []
    assert told(kind, metadata={"labels": {"nam": "x"}, "annotations": {"lable": "x"}}, somethingElse=1, **{"": 1}) == []
    assert list(misspelt({7: 1, None: 2, "spec": 7, "endpoints": [7, [{}]], "subsets": None}, kind, "x")) == []


@pytest.mark.parametrize(("kind", "wire"), sorted({(codec.kind, codec.wire_type) for codec in CODECS.values()}, key=str))
def test_every_field_that_is_read_is_known(kind: str, wire: type[msgspec.Struct]) -> None:
    def check(info: Any, fields: Fields) -> None:
        for each in info.fields:
            assert each.encode_name in fields
            for part in structs(each.type):
                check(part, fields[each.encode_name] or {})

    def structs(info: Any) -> list[Any]:
        if isinstance(info, msgspec.inspect.StructType):
            return [info]
        parts = [*getattr(info, "types", ()), *([info.item_type] if hasattr(info, "item_type") else [])]
        return [found for part in parts for found in structs(part)]

    check(msgspec.inspect.type_info(wire), OBJECTS[kind])


def test_a_slip_in_all_items_is_told_once() -> None:
    (found,) = misspelt({"endpoints": [{"nodename": "a"}] * 2 + [{"nodename": "b"}, {"nodename": "c"}]}, "EndpointSlice", "x")
    assert (found.field, found.severity) == ("endpoints[0].nodename", Severity.WARNING)
    assert "2 more" in found.message, "one object twice, by an alias, is one"


def test_structures_without_end_are_looked_through_once() -> None:
    endless: list[Any] = [{"nodename": "a"}]
    endless += [endless] * 1000
    slip: dict[str, Any] = {"endpoints": endless}
    slip["metadata"] = slip
    assert [d.field for d in misspelt(slip, "EndpointSlice", "x")] == ["endpoints[0].nodename"]


def test_what_is_told_bears_the_name_of_the_object_as_far_as_it_has_one() -> None:
    for metadata, subject in (({"name": "web"}, "Service default/web"), ({"nam": "web"}, "Service default/")):
        (found,) = decode_document({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"clusterIp": "x"}})
        assert {d.subject for d in found.diagnostics} == {subject}
        assert "did you mean clusterIP?" in [d.remedy for d in found.diagnostics]


@pytest.mark.parametrize(
    ("version", "kind", "message", "remedy"),
    [
        ("v1", "Servce", "there is no kind Servce", "did you mean Service?"),
        ("v1", "service", "there is no kind service", "did you mean Service?"),
        ("", "Services", "there is no kind Services", "did you mean Service?"),
        ("v1", "Endpoint", "there is no kind Endpoint", "did you mean Endpoints?"),
        ("discovery.k8s.io/v1", "EndpointSlices", "there is no kind EndpointSlices", "did you mean EndpointSlice?"),
        ("v1", "EndPointslice", "there is no kind EndPointslice", "did you mean EndpointSlice?"),
        ("discovery.k8s.io/v1beta1", "EndpointSlice", "not read in apiVersion", "write apiVersion: discovery.k8s.io/v1"),
        ("discovry.k8s.io/v1", "EndpointSlice", "not read in apiVersion", "write apiVersion: discovery.k8s.io/v1"),
        ("v1", "EndpointSlice", "not read in apiVersion", "write apiVersion: discovery.k8s.io/v1"),
        ("v2", "Service", "not read in apiVersion", "write apiVersion: v1"),
        ("networking.k8s.io/v1alpha1", "ServiceCIDR", "not read in apiVersion", "write apiVersion: networking.k8s.io/v1"),
        ("", "Service", "no apiVersion", "write apiVersion: v1"),
    ],
)
def test_a_slip_in_kind_or_version_is_an_error(version: str, kind: str, message: str, remedy: str) -> None:
    (told,) = decode_data({"apiVersion": version, "kind": kind, "metadata": {"name": "web"}}).diagnostics
    assert (told.severity, told.remedy) == (Severity.ERROR, remedy)
    assert message in told.message


OTHERS = {
    "v1": "Binding ConfigMap Event LimitRange Namespace PersistentVolume PersistentVolumeClaim Pod PodTemplate Secret"
    " ServiceAccount ReplicationController ResourceQuota ComponentStatus",
    "apps/v1": "Deployment ReplicaSet StatefulSet DaemonSet ControllerRevision",
    "networking.k8s.io/v1": "Ingress IngressClass NetworkPolicy IPAddress",
    "node.k8s.io/v1": "RuntimeClass",
    "metrics.k8s.io/v1beta1": "NodeMetrics PodMetrics",
    "serving.knative.dev/v1": "Service Route Revision",
    "monitoring.coreos.com/v1": "ServiceMonitor",
    "networking.istio.io/v1": "ServiceEntry Gateway",
    "multicluster.x-k8s.io/v1alpha1": "ServiceImport ServiceExport",
    "cilium.io/v2": "CiliumNode CiliumEndpoint CiliumEndpointSlice",
}


@pytest.mark.parametrize(("version", "kind"), [(version, kind) for version, kinds in OTHERS.items() for kind in kinds.split()])
def test_kinds_of_others_are_only_noted(version: str, kind: str) -> None:
    assert misspelt_kind(version, kind, "x") is None
    (told,) = decode_data({"apiVersion": version, "kind": kind, "metadata": {"name": "web"}}).diagnostics
    assert told.severity is Severity.NOTE


def test_an_object_without_kind_is_told_what_stands_there_instead() -> None:
    (told,) = decode_data({"apiVersion": "v1", "Kind": "Service", "metadata": {"name": "web"}}).diagnostics
    assert "no kind, but 'Kind'" in told.message
    assert told.subject == "object web"
