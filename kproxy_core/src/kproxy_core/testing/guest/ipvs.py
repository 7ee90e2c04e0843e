"""Whether this machine's own kernel has IPVS."""

import functools
import os

from kproxy_core.kernel import namespaces
from kproxy_core.kernel.errors import KernelError
from kproxy_core.kernel.ipvs import IpvsSocket
from kproxy_core.wire.ipvs import VirtualServer, add_virtual
from kproxy_core.wire.nfnetlink import Family


@functools.cache
def kernel_has_ipvs() -> bool:
    """Whether it does: whether a virtual server can be made in a network namespace of its own."""
    try:
        namespace = namespaces.create()
    except KernelError:
        return False
    server = VirtualServer(family=Family.IPV4, protocol=6, address=bytes((192, 0, 2, 1)), port=80)
    try:
        with IpvsSocket(namespace=namespace) as socket:
            return socket.change([add_virtual(server)]).ok
    except KernelError:
        return False
    finally:
        os.close(namespace)
