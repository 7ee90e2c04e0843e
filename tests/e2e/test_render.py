"""The rules for manifests are printed without touching a kernel, and so is what was decided."""

import json
from pathlib import Path

import pytest

from .conftest import ROOT, kproxy

pytestmark = pytest.mark.e2e

HERE = ["--mode", "nftables", "--node-name", "node-a", "--node-addresses", "192.0.2.10,2001:db8::10"]


def test_the_rules_name_the_services_and_their_endpoints() -> None:
    done = kproxy("render", "--source", "manifests:examples/web", *HERE)
    assert done.status == 0
    for text in ("default/web:http/TCP", "10.96.0.10", "10.1.0.2", "fd00:1::2", "30080"):
        assert text in done.out


def test_a_file_a_folder_and_standard_input_are_the_same() -> None:
    folder = kproxy("render", "--source", "manifests:examples/web", *HERE)
    texts = [path.read_text() for path in sorted((ROOT / "examples" / "web").iterdir())]
    for source in ("-", "manifests:-"):
        assert kproxy("render", "--source", source, *HERE, stdin="\n---\n".join(texts)).out == folder.out


def test_it_is_the_same_each_time() -> None:
    first = kproxy("render", "--source", "manifests:examples/web", *HERE, environment={"PYTHONHASHSEED": "1"})
    assert first.out == kproxy("render", "--source", "manifests:examples/web", *HERE, environment={"PYTHONHASHSEED": "2"}).out


def test_what_is_odd_goes_to_standard_error(manifests: Path) -> None:
    service = manifests / "service.yaml"
    service.write_text(service.read_text().replace("port: 80\n", "port: 80000\n"))
    done = kproxy("render", "--source", f"manifests:{manifests}", *HERE)
    assert done.status == 0
    assert "Service default/web: spec.ports" in done.err
    assert "table" in done.out


def test_what_was_decided_is_json() -> None:
    document = kproxy("render", "--source", "manifests:examples/web", *HERE, "--cluster-cidr", "10.1.0.0/16", "--json").json
    assert (document["version"], document["mode"], document["node"]["name"]) == (1, "nftables", "node-a")
    assert sorted(document["node"]["addresses"]) == ["192.0.2.10", "2001:db8::10"]
    assert document["node"]["local_pods"] == {"networks": ["10.1.0.0/16"]}
    families = {port["family"]: port for port in document["service_ports"]}
    assert set(families) == {"IPv4", "IPv6"}
    assert [endpoint["address"] for endpoint in families["IPv4"]["endpoints"]["cluster"]] == ["10.1.0.2", "10.1.1.2"]
    assert all(endpoint["local"] for endpoint in families["IPv6"]["serving"])
    kinds = {rule["frontend"]["kind"]: rule for rule in families["IPv4"]["rules"]}
    assert kinds["ClusterIP"]["from_outside"] == {"action": "forward", "endpoints": "cluster", "masquerade": "always"}
    assert kinds["ClusterIP"]["from_local_pod"] == {"action": "forward", "endpoints": "cluster", "masquerade": "hairpin only"}
    assert kinds["NodePort"]["frontend"] == {"kind": "NodePort", "address": None, "port": 30080}


@pytest.mark.parametrize("option", ["--masquerade-all", "--masquerade-bit=3", "--nodeport-addresses=all"])
def test_options_that_matter_change_the_rules(option: str) -> None:
    arguments = ["render", "--source", "manifests:examples/web", *HERE]
    assert kproxy(*arguments, option).out != kproxy(*arguments).out


def test_endpoints_of_another_node_are_not_local() -> None:
    document = kproxy("render", "--source", "manifests:examples/web", *HERE, "--node-name", "node-b", "--json").json
    assert not any(endpoint["local"] for port in document["service_ports"] for endpoint in port["serving"])


def test_an_empty_folder_has_no_services(tmp_path: Path) -> None:
    done = kproxy("render", "--source", f"manifests:{tmp_path}", *HERE, "--json")
    assert done.status == 0
    assert done.json["service_ports"] == []


def test_what_kubectl_prints_is_taken(manifests: Path) -> None:
    document = {"apiVersion": "v1", "kind": "List", "items": []}
    (manifests / "more.json").write_text(json.dumps(document))
    assert kproxy("render", "--source", f"manifests:{manifests}", *HERE).status == 0


def test_strict_is_a_check_of_manifests(manifests: Path) -> None:
    strict = ["render", "--source", f"manifests:{manifests}", *HERE, "--strict"]
    done = kproxy(*strict)
    assert (done.status, "table" in done.out) == (0, True), done.err
    service = manifests / "service.yaml"
    for right, wrong, told in (
        (
            "clusterIPs",
            "clusterIps",
            "service.yaml:2: Service default/web: spec.clusterIps: there is no such field, and it is not read; did you mean",
        ),
        (
            "kind: Service",
            "kind: Servce",
            "error: service.yaml:2: Servce default/web: there is no kind Servce; left out; did you mean Service?",
        ),
        ("name: http", "name: web", "warning: Service default/web: spec.ports: port"),
    ):
        text = service.read_text()
        assert right in text
        service.write_text(text.replace(right, wrong))
        done = kproxy(*strict)
        service.write_text(text)
        assert (done.status, done.out) == (1, "")
        assert told in done.err
        assert "Error: the manifests are not in order" in done.err


def test_it_is_told_that_there_is_no_service(tmp_path: Path) -> None:
    done = kproxy("render", "--source", f"manifests:{tmp_path}", *HERE)
    assert done.status == 0
    assert f"warning: manifests {tmp_path}: there is no Service in it" in done.err
