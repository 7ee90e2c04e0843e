"""Tokens from files and programs: read again when due, never left out."""

from pathlib import Path

import pytest

from kproxy_core.sources.kubernetes.credentials import ExecCredentials, ExecStatus, TokenFile, exec_status
from kproxy_core.sources.kubernetes.errors import CredentialsError


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_token_file_is_stripped_and_read_again_after_a_minute(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", Clock()
    path.write_text("  one\n")
    token = TokenFile(path, clock)
    assert token.headers() == {"Authorization": "Bearer one"}
    path.write_text("two\n")
    clock.now = 59
    assert token.headers() == {"Authorization": "Bearer one"}
    clock.now = 60
    assert token.headers() == {"Authorization": "Bearer two"}


def test_a_refused_token_is_read_again_at_once(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    token = TokenFile(path, Clock())
    token.headers()
    path.write_text("two")
    token.refused()
    assert token.headers() == {"Authorization": "Bearer two"}


@pytest.mark.parametrize("content", [None, "", "\n", b"\xff\xfe"])
def test_a_file_that_is_empty_for_a_moment_leaves_the_last_token(tmp_path: Path, content: str | bytes | None) -> None:
    path, clock = tmp_path / "token", Clock()
    path.write_text("one")
    token = TokenFile(path, clock)
    token.headers()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    clock.now = 100
    assert token.headers() == {"Authorization": "Bearer one"}
    path.write_text("two")
    assert token.headers() == {"Authorization": "Bearer two"}


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_without_any_token_nothing_is_sent(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CredentialsError, match=str(path)):
        TokenFile(path).headers()


def test_a_program_is_run_again_shortly_before_its_credentials_expire() -> None:
    runs = []

    def run() -> dict[str, str]:
        runs.append(1)
        return {
            "token": f"t{len(runs)}",
            "expirationTimestamp": "2000-01-01T00:00:00Z" if len(runs) == 1 else "2999-01-01T00:00:00Z",
        }

    credentials = ExecCredentials("aws", run)
    due = [credentials.expiring]
    tokens = []
    for _ in range(3):
        tokens.append(credentials.headers()["Authorization"])
        due.append(credentials.expiring)
    assert tokens == ["Bearer t1", "Bearer t2", "Bearer t2"]
    assert due == [True, True, False, False]
    assert len(runs) == 2
    credentials.close()


def test_a_programs_certificate_is_put_into_files_for_its_owner_alone() -> None:
    credentials = ExecCredentials("plugin", lambda: {"clientCertificateData": "CERT", "clientKeyData": "KEY"})
    assert credentials.headers() == {}
    files = credentials.certificate_files()
    assert files is not None
    assert [path.read_text() for path in files] == ["CERT", "KEY"]
    assert files[1].stat().st_mode & 0o077 == 0
    credentials.close()
    assert not files[0].exists()


def test_a_missing_program_is_a_clear_error_and_no_anonymous_request() -> None:
    def run() -> dict[str, str]:
        raise FileNotFoundError("aws")

    with pytest.raises(CredentialsError, match=r"aws is not installed: install it, or write its full path"):
        ExecCredentials("aws", run).headers()


@pytest.mark.parametrize("status", [{}, {"token": ""}, {"clientCertificateData": "x"}, {"clientKeyData": "x"}])
def test_a_program_that_prints_no_credentials_is_an_error(status: dict[str, str]) -> None:
    with pytest.raises(CredentialsError, match="neither a token nor a certificate"):
        exec_status(status, "plugin")


def test_expiry_is_read_with_and_without_a_time_zone() -> None:
    assert exec_status({"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}, "p").expires == 1767225600
    assert exec_status({"token": "t", "expirationTimestamp": "2026-01-01T00:00:00"}, "p").expires == 1767225600
    assert exec_status({"token": "t"}, "p") == ExecStatus(token="t")
    with pytest.raises(CredentialsError, match="expirationTimestamp 'soon'"):
        exec_status({"token": "t", "expirationTimestamp": "soon"}, "p")
