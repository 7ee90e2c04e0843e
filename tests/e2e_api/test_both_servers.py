"""The source against the fake and against kube-apiserver: the same is asked, the same must come of it."""

from pathlib import Path

import pytest

from kproxy_core.model.changes import Change, Replaced
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import Node, ServiceCIDR
from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.kubernetes import ApiAccess, ApiConnection
from kproxy_core.sources.kubernetes.events import refusal
from kproxy_core.sources.kubernetes.machine import Mode, WatchMachine
from kproxy_core.sources.kubernetes.resources import SERVICES
from kproxy_core.testing.fake_api import Authority, Cluster, User, write_kubeconfig

from .objects import endpoint_slice, node, service
from .servers import FakeServer, Server, access_to, apply, delete, request, watch_lines
from .watching import FAST, Delivered, watching

PROXY_NAME = "service.kubernetes.io/service-proxy-name"
INITIAL = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=2"


@pytest.fixture
def access(server: Server, tmp_path: Path) -> ApiAccess:
    return access_to(server, tmp_path)


def test_what_is_there_and_what_comes_is_delivered(server: Server, access: ApiAccess) -> None:
    apply(server, node("node"))
    apply(server, service("first", 80))
    apply(server, endpoint_slice("first", "10.244.0.1", "10.244.0.2"))
    with watching(access) as watched:
        watched.wait_listed()
        assert watched.delivered.addresses("first") == {"10.244.0.1", "10.244.0.2"}
        own = watched.delivered.objects[Kind.NODE][ObjectName("", "node")]
        assert isinstance(own, Node)
        assert [str(address) for address in own.internal_addresses] == ["192.168.100.1"]
        cidr = watched.delivered.objects[Kind.SERVICE_CIDR][ObjectName("", "kubernetes")]
        assert isinstance(cidr, ServiceCIDR)
        assert [str(each) for each in cidr.cidrs] == ["10.96.0.0/12", "fd00:10:96::/112"]
        apply(server, service("second", 81))
        watched.wait_port("second", 81)
        apply(server, service("second", 82))
        watched.wait_port("second", 82)
        apply(server, endpoint_slice("first", "10.244.0.2", "10.244.0.3"))
        watched.delivered.wait(lambda: watched.delivered.addresses("first") == {"10.244.0.2", "10.244.0.3"})
        delete(server, service("second"))
        watched.delivered.wait(lambda: watched.delivered.service("second") is None)
        assert all(len(watched.delivered.lists(kind)) == 1 for kind in watched.source.kinds)
    delete(server, service("first"))
    delete(server, endpoint_slice("first"))


def test_the_selectors_are_the_servers_work(server: Server, access: ApiAccess) -> None:
    headless = service("headless", clusterIP="None")
    others = service("others", labels={PROXY_NAME: "somebody"})
    marked = endpoint_slice("headless", "10.244.0.9", labels={"service.kubernetes.io/headless": ""})
    stranger = node("stranger")
    mine = service("mine")
    for each in (headless, others, marked, stranger, mine):
        apply(server, each)
    with watching(access, node="absent") as watched:
        watched.wait_listed()
        seen = {str(name) for objects in watched.delivered.objects.values() for name in objects}
        assert "default/mine" in seen
        assert not seen & {"default/headless", "default/others", "default/headless-1", "stranger"}
        assert watched.delivered.objects[Kind.NODE] == {}
        apply(server, service("mine", labels={PROXY_NAME: "somebody"}))
        watched.delivered.wait(lambda: watched.delivered.service("mine") is None)
        apply(server, service("mine") | {"metadata": {**mine["metadata"], "labels": {PROXY_NAME: None}}})
        watched.delivered.wait(lambda: watched.delivered.service("mine") is not None)
    for each in (headless, others, marked, mine):
        delete(server, each)


def test_status_updates_bring_load_balancer_addresses(server: Server, access: ApiAccess) -> None:
    balanced = service("balanced", type="LoadBalancer")
    apply(server, balanced)
    with watching(access) as watched:
        watched.wait_listed()
        apply(server, {**balanced, "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7", "ipMode": "Proxy"}]}}})

        def seen() -> bool:
            found = watched.delivered.service("balanced")
            return found is not None and [(str(each.address), each.proxied) for each in found.ingress] == [("198.51.100.7", True)]

        watched.delivered.wait(seen)
    delete(server, balanced)


def test_the_server_stops_and_starts_again(server: Server, access: ApiAccess) -> None:
    apply(server, service("lasting", 80))
    with watching(access) as watched:
        watched.wait_listed()
        server.stop()
        watched.delivered.wait(lambda: all(each.problem for each in watched.source.liveness().values()))
        assert watched.delivered.service("lasting") is not None
        server.start()
        apply(server, service("lasting", 81))
        watched.wait_port("lasting", 81)
    delete(server, service("lasting"))


def test_a_watch_from_a_forgotten_version_ends_in_a_new_list(server: Server, access: ApiAccess) -> None:
    if isinstance(server, FakeServer):
        server.api.compact()
    else:
        server.stop()  # its cache begins with what is there when it starts again
        server.start()
    connection, delivered = ApiConnection(access), Delivered()
    machine = WatchMachine(SERVICES, FAST, lambda: 0.5)
    machine.position = "1"
    asked = []
    while not machine.listed:
        ask = machine.next_request()
        asked.append(dict(ask.query)["resourceVersion"])
        with connection.get(SERVICES.path, ask.query) as answer:
            if answer.status != 200:
                machine.refused(answer.refusal())
            elif ask.mode is Mode.LIST:
                delivered.put(machine.receive_list(answer.read()))
            else:
                for piece in answer.pieces():
                    delivered.put(machine.receive(piece))
                    if machine.over or machine.listed:
                        break
        machine.ended(0.0)
        assert len(asked) < 5
    connection.close()
    assert asked == ["1", "0"]


def test_a_list_in_chunks_is_whole(server: Server, access: ApiAccess) -> None:
    many = [service(f"chunk-{index}") for index in range(7)]
    for each in many:
        apply(server, each)
    connection = ApiConnection(access)
    machine = WatchMachine(SERVICES, FAST, lambda: 0.5)
    machine.next_request()
    pages, token = 0, ""
    changes: list[Change] = []
    machine.refused(refusal(b"", 422))
    while not changes:
        request_ = machine.next_request()
        assert request_.mode is Mode.LIST
        query = (("limit", "3"), *((("continue", token),) if token else ()), *SERVICES.selectors())
        with connection.get(SERVICES.path, query) as answer:
            assert answer.status == 200
            changes = machine.receive_list(answer.read())
        machine.ended(0.0)
        token = dict(machine.next_request().query).get("continue", "")
        pages += 1
    connection.close()
    assert pages >= 3
    assert isinstance(changes[0], Replaced)
    found = {str(each.name) for each in changes[0].objects}
    assert found >= {f"default/chunk-{index}" for index in range(7)}
    for each in many:
        delete(server, each)


def test_wrong_credentials_are_told_and_the_right_ones_work(server: Server, tmp_path: Path) -> None:
    with watching(access_to(server, tmp_path, token="wrong")) as watched:
        watched.delivered.wait(lambda: all("401" in each.problem for each in watched.source.liveness().values()))
        assert watched.delivered.changes == []


def test_a_server_that_cannot_be_trusted_is_not_talked_to(server: Server, tmp_path: Path) -> None:
    cluster = Cluster(server=server.url, authority=Authority().pem)
    access = ApiAccess.from_kubeconfig(write_kubeconfig(tmp_path / "other", cluster, User(token="secret")))
    with watching(access) as watched:
        watched.delivered.wait(lambda: all("certificate" in each.problem for each in watched.source.liveness().values()))
        assert watched.delivered.changes == []


def test_events_are_written_by_the_same_connection(server: Server, access: ApiAccess) -> None:
    body = (
        b'{"metadata":{"generateName":"kproxy-","namespace":"default"},"eventTime":"2026-01-01T00:00:00.000000Z","action":"Start",'
        b'"reason":"Starting","type":"Normal","reportingController":"kproxy","reportingInstance":"node","note":"x",'
        b'"regarding":{"kind":"Service","namespace":"default","name":"kubernetes"}}'
    )
    connection = ApiConnection(access)
    status, answer = connection.send("POST", "/apis/events.k8s.io/v1/namespaces/default/events", body)
    connection.close()
    assert status == 201, answer


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/api/v1/namespaces/default/services/none", 404, 'services "none" not found'),
        ("GET", "/api/v1/services?resourceVersion=999999999&timeoutSeconds=1", 504, "Too large resource version"),
        ("GET", "/api/v1/services?limit=2&continue=nonsense", 400, "invalid continue token"),
        ("GET", "/api/v1/services?fieldSelector=spec.ports%3D1", 400, "field label not supported"),
        ("GET", "/api/v1/services?watch=1&sendInitialEvents=true", 422, "requires setting resourceVersionMatch"),
        ("GET", "/api/v1/services?watch=1&resourceVersionMatch=NotOlderThan", 422, "resourceVersionMatch is forbidden for watch"),
        ("GET", "/api/v1/things", 404, "could not find the requested resource"),
        ("GET", "/apis/nothing.example/v1/things", 404, "404 page not found"),
        ("DELETE", "/api/v1/namespaces/default/services/none", 404, "not found"),
    ],
)
def test_refusals_are_worded_alike(server: Server, method: str, path: str, status: int, words: str) -> None:
    code, body = request(server, method, path)
    assert (code, words in str(body)) == (status, True), body


def test_conflicts_are_seen(server: Server) -> None:
    disputed = service("disputed")
    apply(server, disputed)
    collection = "/api/v1/namespaces/default/services"
    _, old = request(server, "GET", f"{collection}/disputed")
    assert request(server, "POST", collection, disputed)[1]["reason"] == "AlreadyExists"
    patch = {"metadata": {"labels": {"x": "y"}}}
    assert request(server, "PATCH", f"{collection}/disputed", patch, Content_Type="application/merge-patch+json")[0] == 200
    code, body = request(server, "PUT", f"{collection}/disputed", old)
    assert (code, body["reason"]) == (409, "Conflict")
    delete(server, disputed)


def test_a_streaming_list_ends_with_its_bookmark(server: Server) -> None:
    apply(server, service("streamed"))
    events = list(watch_lines(server, f"/api/v1/services?{INITIAL}"))
    ends = [index for index, each in enumerate(events) if each["type"] == "BOOKMARK"]
    marked = events[ends[0]]["object"]
    assert marked["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert {each["type"] for each in events[: ends[0]]} == {"ADDED"}
    assert "streamed" in {each["object"]["metadata"]["name"] for each in events[: ends[0]]}
    delete(server, service("streamed"))
