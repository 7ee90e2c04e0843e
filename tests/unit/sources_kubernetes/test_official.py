"""The official client: only what is used of it is imported, and the rest is there for whoever asks for it."""

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from kproxy_core.testing.fake_api import Cluster, User, write_kubeconfig

UNUSED = ("kubernetes.client.models", "kubernetes.client.api", "kubernetes.dynamic", "pydantic", "requests_oauthlib", "websocket")

IMPORTED = """
import sys
class Recorder:
    found = set()
    def find_spec(self, name, *rest):
        self.found.add(name)
sys.meta_path.insert(0, Recorder())
"""

LOAD = """
import sys
from kproxy_core.sources.kubernetes import ApiAccess, ApiConnection
access = ApiAccess.from_kubeconfig(sys.argv[1])
"""


def run(program: str, *arguments: str, **environment: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment}).stdout.strip()


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    return str(write_kubeconfig(tmp_path / "kc", Cluster(server="http://127.0.0.1:1"), User(token="t")))


def test_what_a_proxy_does_not_use_is_never_imported(kubeconfig: str) -> None:
    found = run(f"{IMPORTED}{LOAD}ApiConnection(access)\nprint(*Recorder.found)", kubeconfig).split()
    assert {"kubernetes.config.kube_config", "kubernetes.client.rest"} <= set(found)
    assert [name for name in found if name.startswith(UNUSED)] == []


@pytest.mark.parametrize("first", ["", "import kubernetes"])
def test_others_can_import_all_of_it_before_and_after(kubeconfig: str, first: str) -> None:
    after = """
import kubernetes, kubernetes.client.rest, oauthlib.oauth2, requests_oauthlib
print(kubernetes.client.CoreV1Api.__name__, kubernetes.client.rest.RESTClientObject.__name__, kubernetes.watch.Watch.__name__)
print(kubernetes.client.ApiClient is kubernetes.client.api_client.ApiClient, oauthlib.oauth2.Client.__name__)
"""
    words = run(first + LOAD + after + "ApiConnection(access)", kubeconfig).split()
    assert words == ["CoreV1Api", "RESTClientObject", "Watch", "True", "Client"]


def test_a_release_that_is_put_together_in_another_way_is_imported_whole(kubeconfig: str) -> None:
    """Such as one in which a module that is used imports a class from a package that is not run."""
    odd = """
import importlib.util, sys
real = importlib.util.module_from_spec
def without_place(spec):
    module = real(spec)
    module.__path__ = []
    return module
importlib.util.module_from_spec = without_place
"""
    assert run(odd + LOAD + "print(access.server)\nApiConnection(access)", kubeconfig) == "http://127.0.0.1:1"


def test_a_token_of_openid_connect_is_refreshed(tmp_path: Path) -> None:
    with issuer() as url:
        config = {"idp-issuer-url": url, "client-id": "c", "client-secret": "s", "refresh-token": "r", "id-token": token(-10)}
        path = write_kubeconfig(tmp_path / "kc", Cluster(server="http://127.0.0.1:1"), User(token="t"))
        content = yaml.safe_load(path.read_text())
        content["users"][0]["user"] = {"auth-provider": {"name": "oidc", "config": config}}
        path.write_text(yaml.safe_dump(content))
        program = LOAD + "print(access.load().credentials.headers()['Authorization'])"
        authorization = run(program, str(path), OAUTHLIB_INSECURE_TRANSPORT="1", NO_PROXY="127.0.0.1")
    assert authorization == "Bearer the-new-token"


def token(seconds: float) -> str:
    """A token that expires in so many seconds; nobody looks at its signature."""
    claims = json.dumps({"exp": int(time.time() + seconds)}).encode()
    return "e30." + base64.urlsafe_b64encode(claims).decode().rstrip("=") + ".c2ln"


@contextmanager
def issuer() -> Iterator[str]:
    """Run an issuer of tokens that says where it refreshes them, and does."""

    class Issuer(BaseHTTPRequestHandler):
        def _answer(self, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self._answer({"token_endpoint": f"{url}/token"})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer({"access_token": "a", "token_type": "Bearer", "id_token": "the-new-token", "refresh_token": "r2"})

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Issuer) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield url
        server.shutdown()
        thread.join()
