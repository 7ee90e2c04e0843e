"""The world of these tests: the kit's, around the nftables mode."""

from collections.abc import Iterator
from contextlib import contextmanager

from kproxy_core.testing.conformance.everything import everything, see_everything
from kproxy_core.testing.conformance.expectations import SURE, servers
from kproxy_core.testing.conformance.world import ALL, EVERYWHERE, SCTP, TCP, TCP_UDP, UDP
from kproxy_core.testing.conformance.world import World as AnyWorld
from kproxy_core.testing.lab import Lab
from kproxy_core.wire.nft_operations import flush_set
from kproxy_nftables import sets
from kproxy_nftables.backend import NftablesBackend
from kproxy_nftables.dataplane import NftablesDataplane
from kproxy_nftables.objects import FAMILY_NAMES

__all__ = ["ALL", "EVERYWHERE", "SCTP", "SURE", "TCP", "TCP_UDP", "UDP", "World", "everything", "see_everything", "servers"]


class World(AnyWorld[NftablesBackend]):
    """A lab and the nftables mode at work on its node; what it programs stays as it is from test to test."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab, NftablesBackend())

    @property
    def taking_over(self) -> int:
        """How many operations it takes to take the tables over from a process that has ended, where tables can be held."""
        return len(FAMILY_NAMES) if self.node.backend.table_flags else 0

    @contextmanager
    def ended(self) -> Iterator[None]:
        """End the mode's process meanwhile, so that another may hold the tables; a new one begins with an empty cluster."""
        self.close()
        try:
            yield
        finally:
            self.node.restart(self.defaults, ())

    def forget_clients(self) -> None:
        """Empty the affinity maps, and nothing else."""
        dataplane = self.node.dataplane
        assert isinstance(dataplane, NftablesDataplane)
        shapes = [sets.shapes(family)[f"{name} set", sets.AFFINITY] for family, name in FAMILY_NAMES.items()]
        assert dataplane._socket.commit([flush_set(shape) for shape in shapes]).ok
