"""The API servers that the same tests run against: the fake, and kube-apiserver with etcd where KUBEBUILDER_ASSETS has them."""

import contextlib
import json
import os
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from kproxy_core.sources.kubernetes import ApiAccess
from kproxy_core.testing.fake_api import Authority, Cluster, FakeApi, User, write_certificate, write_kubeconfig

TOKEN = "secret"
STARTING = 90.0
"""Seconds that etcd and kube-apiserver may take until they are ready."""

STATUS_BEARERS = ("Service", "Node")
COLLECTIONS = {
    "Service": "/api/v1/namespaces/{namespace}/services",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
    "Node": "/api/v1/nodes",
}


class Server(Protocol):
    """An API server that runs."""

    url: str
    authority: bytes

    def stop(self) -> None:
        """Stop it; what it holds is kept."""

    def start(self) -> None:
        """Start it again at the same address."""


class FakeServer:
    """The fake."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.url = api.url
        self.authority = api.server_authority.pem

    def stop(self) -> None:
        """Stop it."""
        self.api.stop()

    def start(self) -> None:
        """Start it again."""
        self.api.start()


class RealServer:
    """kube-apiserver and etcd, on loopback alone."""

    def __init__(self, assets: Path, directory: Path) -> None:
        self._assets = assets
        self._directory = directory
        self._etcd_ports, self._port = (_free_port(), _free_port()), _free_port()
        authority = Authority("real-api-ca")
        self.authority = authority.pem
        self.url = f"https://127.0.0.1:{self._port}"
        (directory / "ca.crt").write_bytes(authority.pem)
        self._certificate, self._key = write_certificate(directory, authority.server(), "server")
        (directory / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        self._etcd: subprocess.Popen[bytes] | None = None
        self._apiserver: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "RealServer":
        client, peer = (f"http://127.0.0.1:{port}" for port in self._etcd_ports)
        self._etcd = self._run(
            "etcd",
            f"--data-dir={self._directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        _end(self._etcd)

    def start(self) -> None:
        """Start kube-apiserver and wait until it is ready."""
        self._apiserver = self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_ports[0]}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--cert-dir={self._directory}",
            f"--tls-cert-file={self._certificate}",
            f"--tls-private-key-file={self._key}",
            f"--client-ca-file={self._directory / 'ca.crt'}",
            f"--token-auth-file={self._directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/12,fd00:10:96::/112",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._key}",
            f"--service-account-signing-key-file={self._key}",
            "--disable-admission-plugins=ServiceAccount",
        )
        deadline = time.monotonic() + STARTING
        while not self._ready():
            assert self._apiserver.poll() is None, (self._directory / "kube-apiserver.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "kube-apiserver does not become ready"
            time.sleep(0.1)

    def stop(self) -> None:
        """End kube-apiserver; etcd goes on."""
        _end(self._apiserver)
        self._apiserver = None

    def _ready(self) -> bool:
        with contextlib.suppress(OSError):
            if request(self, "GET", "/readyz")[0] != 200:
                return False
            return request(self, "GET", "/api/v1/namespaces/default")[0] == 200
        return False

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._directory / f"{program}.log").open("ab") as output:
            return subprocess.Popen([self._assets / program, *arguments], stdout=output, stderr=output, cwd=self._directory)


def real_assets() -> Path | None:
    """Where etcd and kube-apiserver are, by envtest's convention; None where they are not."""
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    present = assets and all((Path(assets) / program).exists() for program in ("etcd", "kube-apiserver"))
    return Path(assets) if present else None


def access_to(server: Server, directory: Path, token: str = TOKEN) -> ApiAccess:
    """Access to a server by bearer token."""
    cluster = Cluster(server=server.url, authority=server.authority)
    return ApiAccess.from_kubeconfig(write_kubeconfig(directory / "kubeconfig", cluster, User(token=token)))


def request(server: Server, method: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> tuple[int, Any]:
    """Ask a server, and return status and decoded body."""
    sent = urllib.request.Request(server.url + path, method=method, data=json.dumps(body).encode() if body else None)
    for name, value in {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", **headers}.items():
        sent.add_header(name.replace("_", "-"), value)
    context = ssl.create_default_context(cadata=server.authority.decode()) if server.url.startswith("https") else None
    try:
        with urllib.request.urlopen(sent, context=context, timeout=30) as answer:
            return answer.status, _decoded(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _decoded(error.read())


def apply(server: Server, obj: dict[str, Any]) -> None:
    """Create or replace an object over HTTP, and its status where it has one of its own."""
    collection = COLLECTIONS[obj["kind"]].format(namespace=obj["metadata"].get("namespace"))
    status, answer = request(server, "POST", collection, obj)
    name = f"{collection}/{obj['metadata']['name']}"
    if status == 409:
        patch = {key: value for key, value in obj.items() if key != "status"}
        status, answer = request(server, "PATCH", name, patch, Content_Type="application/merge-patch+json")
    assert status in (200, 201), answer
    if "status" in obj and obj["kind"] in STATUS_BEARERS:
        status, answer = request(
            server, "PATCH", f"{name}/status", {"status": obj["status"]}, Content_Type="application/merge-patch+json"
        )
        assert status == 200, answer


def delete(server: Server, obj: dict[str, Any]) -> None:
    """Delete an object over HTTP."""
    collection = COLLECTIONS[obj["kind"]].format(namespace=obj["metadata"].get("namespace"))
    status, answer = request(server, "DELETE", f"{collection}/{obj['metadata']['name']}")
    assert status == 200, answer


def watch_lines(server: Server, path: str) -> Iterator[Any]:
    """The events of a watch that ends by itself."""
    sent = urllib.request.Request(server.url + path, headers={"Authorization": f"Bearer {TOKEN}"})
    context = ssl.create_default_context(cadata=server.authority.decode())
    with urllib.request.urlopen(sent, context=context, timeout=60) as answer:
        for line in answer:
            yield json.loads(line)


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
