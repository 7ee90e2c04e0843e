"""A network namespace for each test, nf_tables in it, and Debian's nft to look at the result."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy_core.kernel import namespaces
from kproxy_core.kernel.errors import NamespaceError
from kproxy_core.kernel.nftables import NftSocket

from ...programs import program

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
def nobody() -> int:
    """A user that a child process can become by setgid and setuid."""
    uid = 65534
    maps = [Path(f"/proc/self/{kind}_map").read_text().split() for kind in ("uid", "gid")]
    mapped = all(any(int(m[i]) <= uid < int(m[i]) + int(m[i + 2]) for i in range(0, len(m), 3)) for m in maps)
    if os.geteuid() != 0 or not mapped:
        pytest.skip("needs to become another user (root, with that user's id mapped)")
    return uid


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
    path = program("nft")
    return lambda *arguments: run(path, *arguments)
