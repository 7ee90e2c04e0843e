"""A kernel without IPVS is told as such."""

import pytest

from kproxy_core.kernel.errors import NotFoundError
from kproxy_core.kernel.genetlink import find_family
from kproxy_core.kernel.ipvs import IpvsSocket, NoIpvsError
from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.testing.guest.ipvs import kernel_has_ipvs
from kproxy_core.wire.netlink import Protocol

pytestmark = pytest.mark.kernel


def test_a_kernel_without_ipvs(namespace: int) -> None:
    if kernel_has_ipvs():
        pytest.skip("this kernel has IPVS: tests/ipvs run here")
    with pytest.raises(NoIpvsError, match="the kernel has no IPVS, or cannot load its module ip_vs"):
        IpvsSocket(namespace=namespace)


def test_a_family_that_every_kernel_has(namespace: int) -> None:
    with NetlinkSocket(Protocol.GENERIC, namespace=namespace) as socket:
        assert find_family(socket, "nlctrl").id == 16
        with pytest.raises(NotFoundError):
            find_family(socket, "nobody")
