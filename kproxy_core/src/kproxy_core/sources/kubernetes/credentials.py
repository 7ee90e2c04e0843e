"""What a request says of who asks: bearer tokens from files, from programs, or as they are; read again when they change."""

import shutil
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from attrs import frozen

from kproxy_core.sources.kubernetes.errors import CredentialsError

TOKEN_LIFETIME = 60.0
"""Seconds for which a token file is not read again; the kubelet renews tokens long before they expire (client-go's value)."""

EXPIRY_MARGIN = 60.0
"""Seconds before the expiry of credentials at which new ones are made."""


class Credentials(Protocol):
    """Where the credentials of each request come from. Called from several threads."""

    def headers(self) -> Mapping[str, str]:
        """Return the headers that authenticate. Raises CredentialsError when there are none to be had."""


class FixedCredentials:
    """Headers that never change: none for client certificates, a token or password that stands in the kubeconfig."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = dict(headers)

    def headers(self) -> Mapping[str, str]:
        """Return them."""
        return self._headers


class TokenFile:
    """A bearer token in a file that somebody else renews: the kubelet for Pods, an agent for others."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._token = ""
        self._read_at = float("-inf")

    def headers(self) -> Mapping[str, str]:
        """Return the header with the token, which is at most a minute old.

        A file that is empty or away for a moment, as while it is replaced, leaves the last token in use.
        """
        with self._lock:
            if self._clock() - self._read_at >= TOKEN_LIFETIME:
                token, problem = self._read()
                if token:
                    self._token, self._read_at = token, self._clock()
                elif not self._token:
                    raise CredentialsError(problem)
            return {"Authorization": f"Bearer {self._token}"}

    def refused(self) -> None:
        """Take notice of a 401: the file is read again for the next request."""
        with self._lock:
            self._read_at = float("-inf")

    def _read(self) -> tuple[str, str]:
        try:
            token = self._path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            return "", f"the token file {self._path} cannot be read: {error}"
        return token, "" if token else f"the token file {self._path} is empty"


@frozen(kw_only=True)
class ExecStatus:
    """What a credential program printed. ``expires`` is in seconds since the epoch, infinite when it did not say."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires: float = float("inf")


def exec_status(status: Mapping[str, Any], command: str) -> ExecStatus:
    """Read the ``status`` of an ExecCredential (client.authentication.k8s.io/v1). Raises CredentialsError."""
    token, certificate, key = (status.get(name) or "" for name in ("token", "clientCertificateData", "clientKeyData"))
    if not token and not (certificate and key):
        raise CredentialsError(f"the credential program {command} printed neither a token nor a certificate with its key")
    stamp = status.get("expirationTimestamp")
    try:
        moment = datetime.fromisoformat(stamp) if stamp else None
    except (TypeError, ValueError) as error:
        raise CredentialsError(f"the credential program {command} printed the expirationTimestamp {stamp!r}") from error
    expires = float("inf") if moment is None else (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return ExecStatus(token=token, certificate=certificate, key=key, expires=expires)


class ExecCredentials:
    """Credentials printed by a program (``users[].user.exec``), kept until shortly before they expire.

    A program that is missing or fails means no request at all. ``run`` starts it and returns its status.
    """

    def __init__(self, command: str, run: Callable[[], Mapping[str, Any]]) -> None:
        self._command = command
        self._run = run
        self._lock = threading.Lock()
        self._status: ExecStatus | None = None
        self._directory: Path | None = None

    def headers(self) -> Mapping[str, str]:
        """Return the header with the token, if it is a token that the program prints."""
        status = self.status()
        return {"Authorization": f"Bearer {status.token}"} if status.token else {}

    @property
    def expiring(self) -> bool:
        """Whether new credentials are due."""
        with self._lock:
            return self._status is None or self._status.expires - EXPIRY_MARGIN <= time.time()

    def status(self) -> ExecStatus:
        """Return what the program printed, running it when that is due. Raises CredentialsError."""
        with self._lock:
            if self._status is None or self._status.expires - EXPIRY_MARGIN <= time.time():
                self._status = self._printed()
            return self._status

    def certificate_files(self) -> tuple[Path, Path] | None:
        """Return files with the client certificate and its key, None when the program prints none."""
        status = self.status()
        if not status.certificate:
            return None
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="kproxy-credentials-"))
            weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        paths = self._directory / "client.crt", self._directory / "client.key"
        for path, content in zip(paths, (status.certificate, status.key), strict=True):
            path.touch(mode=0o600)
            path.write_text(content)
        return paths

    def close(self) -> None:
        """Remove the files."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _printed(self) -> ExecStatus:
        try:
            return exec_status(self._run(), self._command)
        except FileNotFoundError as error:
            raise CredentialsError(
                f"the credential program {self._command} is not installed: install it, or write its full path into "
                "users[].user.exec.command of the kubeconfig"
            ) from error
        except (OSError, subprocess.SubprocessError) as error:
            raise CredentialsError(f"the credential program {self._command} cannot be run: {error}") from error
