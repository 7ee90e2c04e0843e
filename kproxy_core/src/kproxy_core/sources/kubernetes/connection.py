"""ApiConnection: requests by path over the official client's pool; bodies are bytes, and errors say what to do."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import urllib3
from attrs import frozen
from urllib3.exceptions import (
    HTTPError,
    InsecureRequestWarning,
    LocationParseError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from kproxy_core.sources.kubernetes.access import ApiAccess, Loaded
from kproxy_core.sources.kubernetes.credentials import Credentials, ExecCredentials, TokenFile
from kproxy_core.sources.kubernetes.errors import (
    AccessError,
    CredentialsError,
    InterruptedRequestError,
    TransportError,
)
from kproxy_core.sources.kubernetes.events import LONGEST_MESSAGE, Refusal, refusal
from kproxy_core.sources.kubernetes.official import CLIENT
from kproxy_core.sources.kubernetes.sockets import OpenSockets, track

log = logging.getLogger("kproxy.kubernetes")

PIECE: Final = 1 << 16
MOST_CONNECTIONS: Final = 8
"""One for each watched kind, and a few for writing."""

RENEWAL_PAUSE: Final = 5.0
"""Seconds between two renewals after refusals: a server that refuses everybody must not be met with a storm of handshakes."""

LARGEST_REFUSAL: Final = 1 << 20


@frozen(kw_only=True)
class _Pool:
    """What one set of credentials leads to."""

    manager: urllib3.PoolManager
    sockets: OpenSockets
    credentials: Credentials
    host: str
    files: tuple[Path, ...]
    stamps: tuple[tuple[int, int, int] | None, ...]
    created: float


class ApiResponse:
    """An answer whose body is still to be read."""

    def __init__(self, response: urllib3.BaseHTTPResponse, pool: _Pool) -> None:
        self._response = response
        self._pool = pool
        self.status = response.status

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it arrives. Raises TransportError when it is cut short."""
        with _transport_errors(self._pool):
            if getattr(self._response, "chunked", False):
                yield from self._response.stream(PIECE)
                return
            while piece := self._response.read1(PIECE):
                yield piece

    def read(self) -> bytes:
        """Return the whole body. Raises TransportError when it is cut short."""
        with _transport_errors(self._pool):
            return self._response.read()

    def refusal(self) -> Refusal:
        """Read the answer as a refusal."""
        retry_after = self._response.headers.get("Retry-After", "")
        with _transport_errors(self._pool):
            body = self._response.read(LARGEST_REFUSAL)
        return refusal(body, self.status, float(retry_after) if retry_after.isdecimal() else 0.0)

    def allow_silence(self, seconds: float) -> None:
        """Set how long the server may be silent from now on."""
        sock = getattr(self._response.connection, "sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.settimeout(seconds)


class ApiConnection:
    """Requests to one API server, from any thread. ``connect_timeout`` is in seconds.

    Raises AccessError when the access cannot be loaded.
    """

    def __init__(self, access: ApiAccess, *, agent: str = "kproxy", connect_timeout: float = 10.0) -> None:
        self._access = access
        self._agent = agent
        self._connect_timeout = connect_timeout
        self._lock = threading.Lock()
        self._closed = False
        self._pool = _new_pool(access.load())

    @contextlib.contextmanager
    def get(self, path: str, query: tuple[tuple[str, str], ...] = (), silence: float = 70.0) -> Iterator[ApiResponse]:
        """Send a GET and yield the answer. ``silence`` is the longest time in seconds without a byte.

        Raises TransportError and CredentialsError.
        """
        url = f"{path}?{urlencode(query)}" if query else path
        with self._request("GET", url, {"Accept": "application/json"}, b"", silence) as answer:
            yield answer

    def send(self, method: str, path: str, body: bytes, content_type: str = "application/json") -> tuple[int, bytes]:
        """Send a request that writes; return status and body. Raises TransportError and CredentialsError."""
        headers = {"Accept": "application/json", "Content-Type": content_type}
        with self._request(method, path, headers, body, 30.0) as answer:
            return answer.status, answer.read()

    @property
    def open_sockets(self) -> int:
        """How many connections are open."""
        return len(self._pool.sockets)

    def refused(self) -> None:
        """Take notice of a 401: credentials are read again, or made again, before the next request."""
        pool = self._pool
        # A token travels with each request; anything else was part of the handshake, or stands in the kubeconfig.
        if isinstance(pool.credentials, TokenFile):
            pool.credentials.refused()
        elif time.monotonic() - pool.created >= RENEWAL_PAUSE:
            self.renew("the API server refused the credentials")

    def check(self) -> None:
        """Renew the connections when certificates or the kubeconfig have changed, or credentials are about to expire."""
        pool = self._pool
        if _stamps(pool.files) != pool.stamps:
            self.renew("certificates or the kubeconfig changed")
        elif isinstance(pool.credentials, ExecCredentials) and pool.credentials.expiring:
            self.renew("the credentials expire")

    def renew(self, reason: str) -> None:
        """Load the access anew, and end all requests so that they go on with it. What cannot be loaded leaves all as it was."""
        try:
            new = _new_pool(self._access.load())
        except (AccessError, CredentialsError, OSError, ValueError) as error:
            log.warning("%s, but there is nothing better: %s", reason, error)
            return
        log.info("connecting to %s anew: %s", new.host, reason)
        with self._lock:
            old, self._pool = self._pool, new
            if self._closed:
                new.sockets.interrupt()
        _discard(old)

    def drop_idle(self) -> None:
        """Close the connections that are not in use: their peer may be gone."""
        self._pool.manager.clear()

    def close(self) -> None:
        """End all requests; later ones are refused."""
        with self._lock:
            self._closed = True
            pool = self._pool
        _discard(pool)

    @contextlib.contextmanager
    def _request(self, method: str, url: str, headers: Mapping[str, str], body: bytes, silence: float) -> Iterator[ApiResponse]:
        pool = self._pool
        sent = {**headers, "User-Agent": self._agent, **pool.credentials.headers()}
        with _transport_errors(pool):
            response = pool.manager.request(
                method,
                pool.host + url,
                headers=sent,
                body=body or None,
                timeout=urllib3.Timeout(connect=self._connect_timeout, read=silence),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        try:
            yield ApiResponse(response, pool)
        finally:
            # A connection whose answer was read to the end is in the pool again already; any other is of no use any more.
            if response.connection is not None:
                response.close()


def _new_pool(loaded: Loaded) -> _Pool:
    configuration = loaded.configuration
    configuration.retries = False
    configuration.connection_pool_maxsize = MOST_CONNECTIONS
    if not configuration.verify_ssl:
        log.warning("the certificate of %s is not verified (insecure-skip-tls-verify)", configuration.host)
        urllib3.disable_warnings(InsecureRequestWarning)
    stamps = _stamps(loaded.files)
    sockets = OpenSockets()
    manager = CLIENT.RESTClientObject(configuration).pool_manager
    track(manager, sockets)
    return _Pool(
        manager=manager,
        sockets=sockets,
        credentials=loaded.credentials,
        host=configuration.host.rstrip("/"),
        files=loaded.files,
        stamps=stamps,
        created=time.monotonic(),
    )


def _discard(pool: _Pool) -> None:
    pool.sockets.interrupt()
    pool.manager.clear()
    if isinstance(pool.credentials, ExecCredentials):
        pool.credentials.close()


def _stamps(files: tuple[Path, ...]) -> tuple[tuple[int, int, int] | None, ...]:
    """Tell files apart from what they were: by node too, since they are replaced, in Pods by way of a symbolic link."""
    return tuple(_stamp(path) for path in files)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


@contextlib.contextmanager
def _transport_errors(pool: _Pool) -> Iterator[None]:
    """Turn what urllib3, TLS and sockets raise into TransportError."""
    try:
        yield
    except (HTTPError, OSError, ValueError) as error:
        if pool.sockets.interrupted:
            raise InterruptedRequestError("the request was ended from this side") from error
        raise _explained(error, pool.host) from error


def _explained(error: Exception, host: str) -> TransportError:
    message = " ".join(str(error).split())[:LONGEST_MESSAGE]
    if isinstance(error, ReadTimeoutError | TimeoutError):
        return TransportError(f"{host} keeps the connection open and says nothing", silent=True)
    if isinstance(error, SSLError):
        remedy = "check certificate-authority, the server's name and the clock"
        return TransportError(f"cannot talk TLS with {host}: {message} ({remedy})")
    if isinstance(error, ProxyError):
        return TransportError(f"cannot reach {host} by way of the proxy: {message} (see HTTPS_PROXY, NO_PROXY, proxy-url)")
    if isinstance(error, LocationParseError):
        return TransportError(f"{host} is no address of a server: {message}")
    return TransportError(f"the connection to {host} failed: {message}")
