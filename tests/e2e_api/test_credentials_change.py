"""Credentials and certificates that change while watches are open."""

import time
from pathlib import Path

import pytest

from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.kubernetes import AccessError, ApiAccess, ApiConnection, CredentialsError
from kproxy_core.testing.fake_api import (
    Authority,
    Cluster,
    ConnectProxy,
    FakeApi,
    User,
    replace_file,
    write_certificate,
    write_kubeconfig,
)

from .objects import service
from .servers import FakeServer, access_to
from .watching import PATIENCE, watching

OFTEN = 0.05
"""Seconds between two looks at files, for tests that wait for them."""


def by_user(api: FakeApi, directory: Path, user: User, **cluster: str) -> ApiAccess:
    """Access to the fake with some credentials."""
    where = Cluster(server=api.url, authority=api.server_authority.pem, **cluster)  # type: ignore[arg-type]
    return ApiAccess.from_kubeconfig(write_kubeconfig(directory / "kubeconfig", where, user))


def test_a_renewed_token_file_is_used_as_soon_as_the_old_token_is_refused(api: FakeApi, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    with watching(by_user(api, tmp_path, User(token_file=token))) as watched:
        watched.wait_listed()
        api.rotate_token("renewed")
        replace_file(token, b"renewed\n")
        api.end_watches()
        api.apply(service("web", 80))
        watched.wait_port("web", 80)
        assert len(watched.delivered.lists(Kind.SERVICE)) == 1


def test_a_pods_service_account_works_with_its_rotated_token(api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "ca.crt").write_bytes(api.server_authority.pem)
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": api.url.rpartition(":")[2]}
    with watching(ApiAccess.in_cluster(tmp_path, environ)) as watched:
        watched.wait_listed()
        api.rotate_token("next")
        api.break_connections()
        watched.delivered.wait(lambda: "401" in watched.source.liveness()[Kind.SERVICE].problem)
        replace_file(tmp_path / "token", b"")  # being written
        replace_file(tmp_path / "token", b"next")
        api.apply(service("web", 80))
        watched.wait_port("web", 80)


def test_a_token_that_is_changed_in_the_kubeconfig_is_used(api: FakeApi, tmp_path: Path) -> None:
    access = access_to(FakeServer(api), tmp_path)
    with watching(access, check_period=OFTEN) as watched:
        watched.wait_listed()
        api.rotate_token("next")
        access_to(FakeServer(api), tmp_path, token="next")
        assert api.log.wait_for(lambda: len(api.streams()) == 4, PATIENCE)
        api.apply(service("web", 80))
        watched.wait_port("web", 80)
        api.end_watches()
        api.apply(service("web", 81))
        watched.wait_port("web", 81)


def test_a_renewed_client_certificate_ends_the_watches_and_they_go_on_with_it(api: FakeApi, tmp_path: Path) -> None:
    old, new = api.client_authority.client("node-1"), api.client_authority.client("node-2")
    certificate, key = write_certificate(tmp_path, old)
    with watching(by_user(api, tmp_path, User(certificate_file=certificate, key_file=key)), check_period=OFTEN) as watched:
        watched.wait_listed()
        api.log.clear()
        api.revoke(old)
        write_certificate(tmp_path, new)
        api.apply(service("web", 80))
        watched.wait_port("web", 80)
        assert api.log.wait_for(lambda: {each.user for each in api.log.all() if each.status == 200} == {"node-2"}, PATIENCE)
        assert len(watched.delivered.lists(Kind.SERVICE)) == 1


def test_a_half_written_certificate_leaves_the_connections_as_they_were(api: FakeApi, tmp_path: Path) -> None:
    made = api.client_authority.client("node-1")
    certificate, key = write_certificate(tmp_path, made)
    with watching(by_user(api, tmp_path, User(certificate_file=certificate, key_file=key)), check_period=OFTEN) as watched:
        watched.wait_listed()
        certificate.unlink()
        api.apply(service("web", 80))
        watched.wait_port("web", 80)
        write_certificate(tmp_path, made)
        api.apply(service("web", 81))
        watched.wait_port("web", 81)


def test_a_new_authority_is_trusted_when_its_file_changes(api: FakeApi, tmp_path: Path) -> None:
    replace_file(tmp_path / "ca.crt", api.server_authority.pem)
    cluster = Cluster(server=api.url, authority_file=tmp_path / "ca.crt")
    access = ApiAccess.from_kubeconfig(write_kubeconfig(tmp_path / "kubeconfig", cluster, User(token="secret")))
    with watching(access, check_period=OFTEN) as watched:
        watched.wait_listed()
        api.rotate_server_certificate(Authority("next-ca"))
        api.break_connections()
        watched.delivered.wait(lambda: "certificate" in watched.source.liveness()[Kind.SERVICE].problem)
        api.apply(service("web", 80))
        assert watched.delivered.service("web") is None
        replace_file(tmp_path / "ca.crt", api.server_authority.pem)
        watched.wait_port("web", 80)


def test_a_renewed_server_certificate_of_the_same_authority_needs_nothing(api: FakeApi, access: ApiAccess) -> None:
    with watching(access) as watched:
        watched.wait_listed()
        api.rotate_server_certificate()
        api.break_connections()
        api.apply(service("web", 80))
        watched.wait_port("web", 80)


def credential_program(directory: Path, token: Path, *, lasting: bool) -> Path:
    """A program that prints the token in a file; its credentials expire at once unless ``lasting``."""
    expiry = "" if lasting else ', "expirationTimestamp": "2000-01-01T00:00:00Z"'
    status = f'{{"token": "$(cat {token})"{expiry}}}'.replace('"', '\\"')
    body = (
        f'{{\\"apiVersion\\": \\"client.authentication.k8s.io/v1\\", \\"kind\\": \\"ExecCredential\\", \\"status\\": {status}}}'
    )
    program = directory / "credentials"
    program.write_text(f'#!/bin/sh\necho "{body}"\n')
    program.chmod(0o755)
    return program


def test_a_credential_program_is_run_again_when_its_token_has_expired(api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    program = credential_program(tmp_path, tmp_path / "token", lasting=False)
    with watching(by_user(api, tmp_path, User(exec_command=[str(program)])), check_period=60) as watched:
        watched.wait_listed()
        api.rotate_token("next")
        (tmp_path / "token").write_text("next")
        api.break_connections()
        api.apply(service("web", 80))
        watched.wait_port("web", 80)


def test_a_credential_program_that_disappears_means_no_request_at_all(api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    program = credential_program(tmp_path, tmp_path / "token", lasting=False)
    with watching(by_user(api, tmp_path, User(exec_command=[str(program)])), check_period=60) as watched:
        watched.wait_listed()
        program.rename(tmp_path / "elsewhere")
        api.log.clear()
        api.break_connections()
        watched.delivered.wait(lambda: all("not installed" in each.problem for each in watched.source.liveness().values()))
        assert api.log.all() == []
        (tmp_path / "elsewhere").rename(program)
        api.apply(service("web", 80))
        watched.wait_port("web", 80)
        assert "system:anonymous" not in {each.user for each in api.log.all()}


def test_an_access_that_cannot_be_loaded_is_an_error_of_the_configuration(api: FakeApi, tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="not installed"):
        by_user(api, tmp_path, User(exec_command=[str(tmp_path / "nothing")]))
    assert api.log.all() == []


def test_no_token_no_request(api: FakeApi, tmp_path: Path) -> None:
    connection = ApiConnection(by_user(api, tmp_path, User(token_file=tmp_path / "nothing")))
    with pytest.raises(CredentialsError, match="nothing"), connection.get("/version"):
        pass
    connection.close()
    assert api.log.all() == []


def test_the_proxy_of_the_environment_is_used(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ConnectProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        with watching(access_to(FakeServer(api), tmp_path)) as watched:
            watched.wait_listed()
            assert set(proxy.asked) == {api.url.removeprefix("https://")}
            assert len(proxy.asked) == 4
            started = time.monotonic()
        assert time.monotonic() - started < PATIENCE  # it could be stopped in spite of the tunnel


@pytest.mark.parametrize("exempt", ["127.0.0.1", "127.0.0.0/8", "*", "example.com,127.0.0.1"])
def test_no_proxy_is_honoured(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exempt: str) -> None:
    with ConnectProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", exempt)
        with watching(access_to(FakeServer(api), tmp_path)) as watched:
            watched.wait_listed()
        assert proxy.asked == []


def test_the_proxy_of_the_kubeconfig_is_used(api: FakeApi, tmp_path: Path) -> None:
    with ConnectProxy() as proxy:
        access = by_user(api, tmp_path, User(token="secret"), proxy_url=proxy.url)
        with watching(access) as watched:
            watched.wait_listed()
        assert set(proxy.asked) == {api.url.removeprefix("https://")}


def test_a_proxy_that_is_not_there_is_named(api: FakeApi, tmp_path: Path) -> None:
    with watching(by_user(api, tmp_path, User(token="secret"), proxy_url="http://127.0.0.1:1")) as watched:
        watched.delivered.wait(lambda: "HTTPS_PROXY" in watched.source.liveness()[Kind.SERVICE].problem)


def test_another_name_for_the_server_is_verified(api: FakeApi, tmp_path: Path) -> None:
    with watching(by_user(api, tmp_path, User(token="secret"), tls_server_name="localhost")) as watched:
        watched.wait_listed()
    with watching(by_user(api, tmp_path, User(token="secret"), tls_server_name="other.example")) as watched:
        watched.delivered.wait(lambda: "other.example" in watched.source.liveness()[Kind.SERVICE].problem)
