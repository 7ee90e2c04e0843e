"""API servers for the tests: a fake of its own for each test, and the real one once for all."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy_core.sources.kubernetes import ApiAccess
from kproxy_core.testing.fake_api import FakeApi

from .servers import FakeServer, RealServer, Server, access_to, real_assets


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A fake API server with TLS."""
    with FakeApi() as made:
        yield made


@pytest.fixture
def access(api: FakeApi, tmp_path: Path) -> ApiAccess:
    """Access to the fake."""
    return access_to(FakeServer(api), tmp_path)


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """kube-apiserver and etcd."""
    assets = real_assets()
    if assets is None:
        pytest.skip("no kube-apiserver and etcd (KUBEBUILDER_ASSETS names no folder with both)")
    with RealServer(assets, tmp_path_factory.mktemp("api")) as made:
        yield made


@pytest.fixture(params=["fake", "real"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The fake or the real one."""
    if request.param == "real":
        yield request.getfixturevalue("real_server")
        return
    with FakeApi() as made:
        yield FakeServer(made)
