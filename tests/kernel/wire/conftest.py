"""A network namespace for each test, nf_tables in it, and Debian's nft to look at the result."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from kproxy_core.kernel import namespaces
from kproxy_core.kernel.errors import NamespaceError
from kproxy_core.kernel.nftables import NftSocket

Nft = Callable[..., str]


@pytest.fixture
def namespace() -> Iterator[int]:
    """A descriptor of a network namespace of one's own."""
    try:
        descriptor = namespaces.create()
    except NamespaceError:
        pytest.skip("no privilege to make network namespaces (run as root or in a user namespace)")
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def nftables(namespace: int) -> Iterator[NftSocket]:
    """nf_tables in the namespace."""
    with NftSocket(namespace=namespace) as socket:
        yield socket


@pytest.fixture
def run(namespace: int) -> Nft:
    """Run a command in the namespace: its output; it must succeed."""

    def call(*command: str) -> str:
        with namespaces.entered(namespace):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: status {done.returncode}: {done.stderr}"
        return done.stdout

    return call


@pytest.fixture
def nft(run: Nft) -> Nft:
    """Run nft in the namespace."""
    if shutil.which("nft") is None:
        pytest.skip("no nft on this machine")
    return lambda *arguments: run("nft", *arguments)
