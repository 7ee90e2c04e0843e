"""Whether this machine's own kernel has IPVS."""

import functools
import os

from kproxy_core.kernel import namespaces
from kproxy_core.kernel.errors import KernelError
from kproxy_core.kernel.genetlink import find_family
from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.wire.netlink import Protocol


@functools.cache
def kernel_has_ipvs() -> bool:
    """Whether it does. Tries, in a network namespace of its own."""
    try:
        namespace = namespaces.create()
    except KernelError:
        return False
    try:
        with NetlinkSocket(Protocol.GENERIC, namespace=namespace) as socket:
            find_family(socket, "IPVS")
    except KernelError:
        return False
    finally:
        os.close(namespace)
    return True
