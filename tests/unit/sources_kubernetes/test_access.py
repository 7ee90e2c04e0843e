"""Kubeconfigs and service accounts: what is read, and what the error says when it cannot be."""

from pathlib import Path

import pytest
import yaml

from kproxy_core.plugin.errors import ConfigError
from kproxy_core.sources.kubernetes import AccessError, ApiAccess
from kproxy_core.sources.kubernetes.credentials import ExecCredentials, FixedCredentials, TokenFile
from kproxy_core.testing.fake_api import Authority, Cluster, User, write_certificate, write_kubeconfig

SERVER = Cluster(server="http://127.0.0.1:1")


def test_a_token_in_the_kubeconfig_is_used(tmp_path: Path) -> None:
    loaded = ApiAccess.from_kubeconfig(write_kubeconfig(tmp_path / "kc", SERVER, User(token="t"))).load()
    assert loaded.credentials.headers() == {"Authorization": "Bearer t"}
    assert isinstance(loaded.credentials, FixedCredentials)


def test_a_token_file_beats_a_token_and_is_found_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    path = write_kubeconfig(tmp_path / "kc", SERVER, User(token="t", token_file=Path("token")))
    loaded = ApiAccess.from_kubeconfig(path).load()
    assert isinstance(loaded.credentials, TokenFile)
    assert loaded.credentials.headers() == {"Authorization": "Bearer from-file"}


def test_certificate_files_are_watched(tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = write_certificate(tmp_path, authority.client("node"))
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    cluster = Cluster(server="https://127.0.0.1:1", authority_file=tmp_path / "ca.crt")
    path = write_kubeconfig(tmp_path / "kc", cluster, User(certificate_file=certificate, key_file=key))
    assert set(ApiAccess.from_kubeconfig(path).load().files) == {path, tmp_path / "ca.crt", certificate, key}


def test_master_replaces_the_clusters_address(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "kc", SERVER, User(token="t"))
    assert ApiAccess.from_kubeconfig(path, server="http://127.0.0.1:2/").server == "http://127.0.0.1:2"
    assert ApiAccess.from_kubeconfig(path).server == "http://127.0.0.1:1"


def test_kubeconfigs_are_merged_and_contexts_chosen(tmp_path: Path) -> None:
    one = write_kubeconfig(tmp_path / "one", SERVER, User(token="1"), context="one")
    two = write_kubeconfig(tmp_path / "two", Cluster(server="http://127.0.0.1:2"), User(token="2"), context="two")
    both = f"{one}:{two}:{tmp_path / 'absent'}"
    assert ApiAccess.from_kubeconfig(both, "one").load().credentials.headers() == {"Authorization": "Bearer 1"}
    assert ApiAccess.from_kubeconfig(both, "two").server == "http://127.0.0.1:2"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file"),
        ("", "is empty"),
        ("a: [", "is no YAML"),
        ("- 1", "kubeconfig"),
        ("current-context: x\ncontexts: []\nclusters: []\nusers: []\n", "with name x"),
        ("contexts: []\nclusters: []\n", "current-context"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: []\nusers: []\n", "with name c"),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_said(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "kc"
    if content is not None:
        path.write_text(content)
    with pytest.raises(AccessError, match=words) as raised:
        ApiAccess.from_kubeconfig(path)
    assert str(path) in str(raised.value)
    assert isinstance(raised.value, ConfigError)


def test_a_missing_authority_file_is_said(tmp_path: Path) -> None:
    cluster = Cluster(server="https://127.0.0.1:1", authority_file=tmp_path / "nowhere.crt")
    with pytest.raises(AccessError, match=r"nowhere\.crt"):
        ApiAccess.from_kubeconfig(write_kubeconfig(tmp_path / "kc", cluster, User(token="t")))


def exec_user(tmp_path: Path, program: str, *arguments: str) -> Path:
    return write_kubeconfig(tmp_path / "kc", SERVER, User(exec_command=(program, *arguments)))


def printing(tmp_path: Path, status: str) -> Path:
    """A program that prints credentials and counts its runs."""
    program = tmp_path / "plugin"
    body = f'{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {status}}}'
    program.write_text(f"#!/bin/sh\necho run >> {tmp_path / 'runs'}\necho '{body}'\n")
    program.chmod(0o755)
    return program


def test_a_credential_program_is_run_once_at_the_start(tmp_path: Path) -> None:
    access = ApiAccess.from_kubeconfig(exec_user(tmp_path, str(printing(tmp_path, '{"token": "printed"}'))))
    loaded = access.load()
    assert isinstance(loaded.credentials, ExecCredentials)
    assert loaded.credentials.headers() == {"Authorization": "Bearer printed"}
    assert (tmp_path / "runs").read_text().count("run") == 1


def test_a_relative_credential_program_is_beside_the_kubeconfig(tmp_path: Path) -> None:
    printing(tmp_path, '{"token": "printed"}')
    loaded = ApiAccess.from_kubeconfig(exec_user(tmp_path, "./plugin")).load()
    assert loaded.credentials.headers() == {"Authorization": "Bearer printed"}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("no-such-program-here",), "no-such-program-here is not installed"),
        (("/bin/false",), "process returned 1"),
        (("/bin/echo", "no json"), "failed to decode"),
    ],
)
def test_a_credential_program_that_fails_is_an_error_at_once(tmp_path: Path, command: tuple[str, ...], words: str) -> None:
    with pytest.raises(AccessError, match=words):
        ApiAccess.from_kubeconfig(exec_user(tmp_path, *command))


def service_account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("pod-token\n")
    (tmp_path / "ca.crt").write_bytes(Authority().pem)
    return tmp_path


@pytest.mark.parametrize(("host", "url"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")])
def test_a_pods_service_account_is_used(tmp_path: Path, host: str, url: str) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    access = ApiAccess.in_cluster(service_account(tmp_path), environ)
    assert access.server == url
    loaded = access.load()
    assert loaded.credentials.headers() == {"Authorization": "Bearer pod-token"}
    assert loaded.files == (tmp_path / "ca.crt",)
    assert loaded.configuration.api_key == {}


def test_outside_of_pods_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="name a kubeconfig"):
        ApiAccess.in_cluster(service_account(tmp_path), {})


def test_kubeconfigs_of_the_kit_are_what_kubectl_writes(tmp_path: Path) -> None:
    written = yaml.safe_load(write_kubeconfig(tmp_path / "kc", SERVER, User(token="t")).read_text())
    assert written["kind"] == "Config"
    assert written["clusters"][0]["cluster"] == {"server": "http://127.0.0.1:1"}
