"""The fake says what the recordings of kube-apiserver 1.36.2 say, and performs what it says."""

import json
from pathlib import Path
from typing import Any

import pytest

from kproxy_core.testing.fake_api import (
    ENDPOINT_SLICES,
    NODES,
    SERVICE_CIDRS,
    SERVICES,
    ApiError,
    FakeApi,
    bookmark_line,
    collection_path,
)
from kproxy_core.testing.fake_api.selectors import SelectorError, field_selector, label_selector

from .objects import endpoint_slice, node, service
from .servers import FakeServer, apply, request, watch_lines

RECORDINGS = Path(__file__).parents[1] / "unit" / "sources_kubernetes" / "recordings"
MADE_BY_MANAGERS = {"managedFields", "remainingItemCount", "continue"}
WORKLOADS = {"daemonEndpoints", "nodeInfo", "podCIDR", "podCIDRs", "conditions"}


def recorded(name: str) -> tuple[str, str, bytes]:
    """Path and query, status, and body of a recorded answer."""
    head, _, body = (RECORDINGS / f"{name}.http").read_bytes().partition(b"\n\n")
    asked, status, *_ = head.decode().splitlines()
    return asked.split(" ")[2], status.split(" ")[1], body


def shape(value: Any) -> Any:
    """The names within an object, without its values."""
    if isinstance(value, dict):
        return {
            key: shape(each)
            for key, each in value.items()
            if key not in MADE_BY_MANAGERS | WORKLOADS and not key.startswith("f:")
        }
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


@pytest.fixture
def server(api: FakeApi) -> FakeServer:
    return FakeServer(api)


@pytest.mark.parametrize("name", ["error-401", "error-404", "error-future-rv"])
def test_refusals_are_those_recorded(server: FakeServer, name: str) -> None:
    path, status, body = recorded(name)
    token = "unknown" if name == "error-401" else "secret"
    code, answer = request(server, "GET", path, Authorization=f"Bearer {token}")
    assert str(code) == status
    expected = json.loads(body)
    if name == "error-future-rv":
        expected["message"] = answer["message"]  # it names the current version
    assert answer == expected


def test_the_anonymous_are_refused_as_recorded(server: FakeServer) -> None:
    import ssl
    import urllib.error
    import urllib.request

    path, status, body = recorded("error-403-anonymous")
    context = ssl.create_default_context(cadata=server.authority.decode())
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(server.url + path, context=context, timeout=10)
    with refused.value as answer:
        assert (str(answer.code), json.loads(answer.read())) == (status, json.loads(body))


def test_a_version_that_is_forgotten_is_refused_as_recorded(server: FakeServer) -> None:
    path, _, body = recorded("services-watch-too-old")
    server.api.compact()
    (event,) = watch_lines(server, path)
    expected = json.loads(body)
    expected["object"]["message"] = event["object"]["message"]
    assert event == expected
    assert event["object"]["message"].startswith("too old resource version: 1 (")


def test_lists_have_the_recorded_form(server: FakeServer) -> None:
    apply(server, service("web", ipFamilyPolicy="PreferDualStack"))
    apply(server, endpoint_slice("web", "10.244.0.1"))
    apply(server, node("node"))
    for resource, name in ((SERVICES, "services-list-rv0"), (NODES, "node-list-own"), (SERVICE_CIDRS, "servicecidrs-list")):
        expected = json.loads(recorded(name)[2])
        _, answer = request(server, "GET", collection_path(resource))
        assert {key: type(each) for key, each in answer.items()} == {key: type(each) for key, each in expected.items()}
        assert list(answer["metadata"]) == ["resourceVersion"]
        have, want = shape(answer["items"][-1]), shape(expected["items"][-1])
        assert set(have["metadata"]) - {"labels"} == set(want["metadata"]) - {"labels"}
        assert set(have) == set(want)
    expected_service = json.loads(recorded("services-list-rv0")[2])["items"][-1]
    _, answer = request(server, "GET", collection_path(SERVICES))
    assert shape(answer["items"][0]["spec"]) == shape(expected_service["spec"])


def test_bookmarks_are_those_recorded() -> None:
    streams = {SERVICES: "services-watch-streaming-list", ENDPOINT_SLICES: "endpointslices-watch"}
    for resource, name in streams.items():
        bookmarks = [line for line in recorded(name)[2].splitlines() if b'"BOOKMARK"' in line]
        for line in bookmarks:
            metadata = json.loads(line)["object"]["metadata"]
            made = bookmark_line(resource, int(metadata["resourceVersion"]), metadata.get("annotations"))
            assert made == line + b"\n"


def test_an_object_that_leaves_the_selection_is_told_as_recorded(server: FakeServer) -> None:
    """DELETED carries the object as it was, at the version of the change; coming back is ADDED."""
    server.api.apply(service("late"))
    start = server.api.store.version
    server.api.apply(service("late", labels={"service.kubernetes.io/headless": ""}))
    server.api.apply(service("late"))
    server.api.delete(SERVICES, "late", "default")
    path = f"/api/v1/services?watch=1&resourceVersion={start}&timeoutSeconds=1&labelSelector=!service.kubernetes.io/headless"
    events = list(watch_lines(server, path))
    assert [each["type"] for each in events] == ["DELETED", "ADDED", "DELETED"]
    assert [int(each["object"]["metadata"]["resourceVersion"]) - start for each in events] == [1, 2, 3]
    assert "labels" not in events[0]["object"]["metadata"]


def test_chunks_have_the_recorded_form(server: FakeServer) -> None:
    for name in ("a", "b", "c", "d", "e"):
        apply(server, service(name))
    _, first = request(server, "GET", "/api/v1/services?limit=2")
    assert [each["metadata"]["name"] for each in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    apply(server, service("aa"))  # a list is of one moment, however long its reading takes
    token = first["metadata"]["continue"]
    _, second = request(server, "GET", f"/api/v1/services?limit=2&continue={token}")
    assert [each["metadata"]["name"] for each in second["items"]] == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    _, last = request(server, "GET", f"/api/v1/services?limit=2&continue={second['metadata']['continue']}")
    assert [each["metadata"]["name"] for each in last["items"]] == ["e"]
    assert "continue" not in last["metadata"]
    server.api.compact()
    code, expired = request(server, "GET", f"/api/v1/services?limit=2&continue={token}")
    assert (code, expired["reason"]) == (410, "Expired")
    _, whole = request(server, "GET", "/api/v1/services?limit=2&resourceVersion=0")
    assert len(whole["items"]) == 6  # the watch cache ignores the limit


def test_version_and_health_are_served(server: FakeServer) -> None:
    assert request(server, "GET", "/version")[1]["gitVersion"] == "v1.36.2"
    assert request(server, "GET", "/healthz") == (200, "ok")


def test_services_get_addresses_and_ports_that_stay(server: FakeServer) -> None:
    apply(server, service("web", type="LoadBalancer", externalTrafficPolicy="Local"))
    path = "/api/v1/namespaces/default/services/web"
    _, first = request(server, "GET", path)
    spec = first["spec"]
    assert spec["clusterIP"].startswith("10.96.")
    assert spec["clusterIP"] == spec["clusterIPs"][0]
    assert 30000 <= spec["ports"][0]["nodePort"] <= 32767
    assert spec["healthCheckNodePort"] != spec["ports"][0]["nodePort"]
    apply(server, service("web", 81, type="LoadBalancer", externalTrafficPolicy="Local"))
    _, second = request(server, "GET", path)
    assert second["spec"]["ports"][0]["port"] == 81
    for kept in ("clusterIP", "healthCheckNodePort"):
        assert second["spec"][kept] == spec[kept]
    assert second["spec"]["ports"][0]["nodePort"] == spec["ports"][0]["nodePort"]
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert second["metadata"]["creationTimestamp"] == first["metadata"]["creationTimestamp"]


def test_status_is_written_at_its_subresource_alone(server: FakeServer) -> None:
    apply(server, service("web"))
    path = "/api/v1/namespaces/default/services/web"
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}}}
    merge = {"Content_Type": "application/merge-patch+json"}
    assert request(server, "PATCH", path, status, **merge)[1]["status"] == {"loadBalancer": {}}
    assert (
        request(server, "PATCH", f"{path}/status", status | {"spec": {"type": "NodePort"}}, **merge)[1]["status"]
        == status["status"]
    )
    _, after = request(server, "GET", path)
    assert after["spec"]["type"] == "ClusterIP"
    assert after["status"] == status["status"]


def test_a_write_that_changes_nothing_makes_no_version(server: FakeServer) -> None:
    apply(server, service("web"))
    before = server.api.store.version
    apply(server, service("web"))
    assert server.api.store.version == before


def test_objects_are_applied_from_yaml(server: FakeServer) -> None:
    path = "/api/v1/namespaces/default/services/web"
    headers = {"Content_Type": "application/apply-patch+yaml"}
    assert request(server, "PATCH", path, service("web", 80), **headers)[0] == 201
    assert request(server, "PATCH", path, service("web", 81), **headers)[1]["spec"]["ports"][0]["port"] == 81


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/api/v1/namespaces/default/services", {"metadata": {}}, 422),
        ("POST", "/api/v1/namespaces/default/services", {"metadata": {"name": "x"}}, 422),
        ("POST", "/api/v1/namespaces/nowhere/services", service("x") | {"metadata": {"name": "x"}}, 404),
        ("POST", "/api/v1/namespaces/default/services", service("x", namespace="other"), 400),
        ("PUT", "/api/v1/namespaces/default/services/x", service("x"), 404),
        ("PATCH", "/api/v1/namespaces/default/services/x", {}, 415),
        ("POST", "/api/v1/namespaces/default/services/x", service("x"), 404),
    ],
)
def test_writes_that_make_no_sense_are_refused(server: FakeServer, method: str, path: str, body: Any, status: int) -> None:
    assert request(server, method, path, body)[0] == status


def test_a_namespace_can_be_made_and_a_collection_deleted(server: FakeServer) -> None:
    assert request(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})[0] == 201
    apply(server, service("web", namespace="shop"))
    apply(server, service("web"))
    assert request(server, "DELETE", "/api/v1/namespaces/shop/services")[0] == 200
    _, left = request(server, "GET", "/api/v1/services")
    assert [each["metadata"]["namespace"] for each in left["items"]] == ["default"]


def test_invalid_objects_are_refused_by_the_python_interface_too(api: FakeApi) -> None:
    with pytest.raises(ApiError, match="addressType"):
        api.apply(endpoint_slice("web") | {"addressType": "DNS"})
    with pytest.raises(ApiError, match="no matches for kind"):
        api.apply({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}})


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("! a", {"a": "x"}, False),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b,c)", {}, False),
        ("a notin (b,c),d", {"d": "1"}, True),
        ("a notin (b)", {"a": "b"}, False),
        ("!x.io/y,a in (b),c!=d", {"a": "b", "c": "e"}, True),
        ("a=", {"a": ""}, True),
    ],
)
def test_label_selectors(selector: str, labels: dict[str, str], selected: bool) -> None:
    assert label_selector(selector)(labels) is selected


@pytest.mark.parametrize("selector", ["a b", "!", "a in b", "=b", "a in (b", "a,,!"])
def test_label_selectors_that_cannot_be_read(selector: str) -> None:
    with pytest.raises(SelectorError):
        label_selector(selector)


def test_field_selectors() -> None:
    known = frozenset({"metadata.name", "spec.clusterIP"})
    assert field_selector("metadata.name=x,spec.clusterIP!=None", known)({"metadata.name": "x", "spec.clusterIP": ""})
    assert not field_selector("metadata.name==x", known)({"metadata.name": "y"})
    with pytest.raises(SelectorError, match=r"field label not supported: spec\.type"):
        field_selector("spec.type=x", known)
    with pytest.raises(SelectorError, match="can't understand"):
        field_selector("metadata.name", known)


def test_it_listens_where_it_is_told(tmp_path: Path) -> None:
    with FakeApi(address="::1") as api:
        assert "[::1]" in api.url
        assert request(FakeServer(api), "GET", "/healthz")[0] == 200


def test_it_serves_manifests_from_the_command_line(tmp_path: Path) -> None:
    import signal
    import subprocess
    import sys

    from kproxy_core.sources.kubernetes import ApiAccess, ApiConnection

    manifest = tmp_path / "web.json"
    manifest.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [service("web")]}))
    command = [sys.executable, "-m", "kproxy_core.testing.fake_api", "--kubeconfig", str(tmp_path / "kc"), str(manifest)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "kubeconfig" in process.stdout.readline()
        connection = ApiConnection(ApiAccess.from_kubeconfig(tmp_path / "kc"))
        with connection.get("/api/v1/namespaces/default/services/web") as answer:
            assert json.loads(answer.read())["spec"]["ports"][0]["port"] == 80
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_manifests_that_cannot_be_served_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kproxy_core.testing.fake_api.__main__ import main

    (tmp_path / "pod.yaml").write_text("kind: Pod\napiVersion: v1\nmetadata: {name: x}\n")
    assert main(["--kubeconfig", str(tmp_path / "kc"), str(tmp_path / "pod.yaml")]) == 1
    assert 'no matches for kind "Pod"' in capsys.readouterr().err
