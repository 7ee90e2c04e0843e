"""A network namespace for each test, IPVS in it, and Debian's ipvsadm to look at the result."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from kproxy_core.kernel import namespaces
from kproxy_core.kernel.ipvs import IpvsSocket

Run = Callable[..., str]


@pytest.fixture
def namespace() -> Iterator[int]:
    """A descriptor of a network namespace of one's own; its loopback is up, or no address is a real server's to IPVS."""
    descriptor = namespaces.create()
    with namespaces.entered(descriptor):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def run(namespace: int) -> Run:
    """Run a command in the namespace, with something to read: its output; it must succeed."""

    def call(*command: str, reads: str = "") -> str:
        if shutil.which(command[0]) is None:
            pytest.skip(f"no {command[0]} on this machine")
        with namespaces.entered(namespace):
            done = subprocess.run(command, input=reads, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: status {done.returncode}: {done.stderr}"
        return done.stdout

    return call


@pytest.fixture
def ipvs(namespace: int) -> Iterator[IpvsSocket]:
    """IPVS in the namespace."""
    with IpvsSocket(namespace=namespace) as socket:
        yield socket
