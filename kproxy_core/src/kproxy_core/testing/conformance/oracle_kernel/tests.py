"""The oracle against the kernel as tests that a mode's conformance test inherits."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from attrs import evolve

from kproxy_core.plugin.backend import Capability
from kproxy_core.testing.conformance.mode_tests import ModeTests
from kproxy_core.testing.conformance.oracle_kernel.abilities import VISIBLE, fitted
from kproxy_core.testing.conformance.oracle_kernel.atlas import Atlas, atlas_of
from kproxy_core.testing.conformance.oracle_kernel.deck import Card, Extent, deal
from kproxy_core.testing.conformance.oracle_kernel.failure import Investigation
from kproxy_core.testing.conformance.oracle_kernel.reproduction import write_scenario
from kproxy_core.testing.conformance.oracle_kernel.run import DisagreementError, OracleRun, Tally

ENOUGH = 5_000
"""Packets from which on every sort of them must have occurred."""


class OracleAgainstKernel(ModeTests):
    """Generated clusters and real packets. Set ``mode``.

    ``KPROXY_SEED`` repeats a run, ``KPROXY_CLUSTERS`` and ``KPROXY_PACKETS`` (for each cluster) say how much is tried.
    What goes wrong is made as small as can be and written as a scenario.
    """

    tally: ClassVar[Tally | None] = None

    def test_the_kernel_does_what_the_oracle_says(self, tmp_path: Path) -> None:
        """Each packet meets what the second opinion says, however the mode was told of the cluster."""
        extent = Extent.from_environment()
        keeps = Capability.CLIENT_ADDRESS_KEPT in self.world.node.backend.capabilities
        with atlas_of(self.world.lab, clients_kept=keeps) as atlas:
            run = OracleRun(self.world, atlas, extent.packets)
            try:
                run.run(self.cards(extent))
            except DisagreementError as error:
                pytest.fail(self.told(error, atlas, extent, tmp_path), pytrace=False)
        type(self).tally = run.tally

    @pytest.mark.parametrize("capability", VISIBLE, ids=[each.name.lower() for each in VISIBLE])
    def test_packets_have_been_sent_that_need(self, capability: Capability) -> None:
        """Packets that need what a mode does not claim are not sent; that is told here by the name of the capability."""
        tally = self.tally_of_enough()
        left_out = tally.left_out[capability]
        if capability not in self.world.node.backend.capabilities:
            pytest.skip(f"the mode lacks the capability {capability.name}: {left_out} packets that need it were not sent")
        assert tally.needing[capability] > 0
        assert not left_out

    def test_every_sort_of_packet_has_been_sent(self) -> None:
        """Both families, every protocol, from everywhere, and every verdict."""
        tally = self.tally_of_enough()
        sorts = list(zip(*tally.packets, strict=True))
        families = 2 if len(self.world.lab.families) == 2 else 1
        protocols = 3 if Capability.SCTP in self.world.node.backend.capabilities else 2
        assert [len(set(sort)) for sort in sorts] == [families, protocols, 3, 4], tally.packets
        assert len(tally.clusters) == 3, tally.clusters

    # -- how

    def cards(self, extent: Extent) -> Iterator[Card]:
        """Clusters with the node as it is here."""
        node = self.world.node
        for card in deal(extent):
            yield evolve(card, scene=fitted(card.scene, node.backend, node.addresses()))

    def told(self, error: DisagreementError, atlas: Atlas, extent: Extent, folder: Path) -> str:
        """All that is needed to see a failure again."""
        failure = Investigation(self.world, atlas, error).failure()
        path = write_scenario(failure, atlas, folder, extent.seed)
        return f"{extent}\n{error}\n\nas small as can be ({path}):\n\n{path.read_text()}"

    def tally_of_enough(self) -> Tally:
        """What the run has sent. Skips where it has not ended well, or was a short one."""
        if self.tally is None:
            pytest.skip("the run against the oracle is not complete")
        if self.tally.packets.total() < ENOUGH:
            pytest.skip(f"only {self.tally.packets.total()} packets were sent (KPROXY_CLUSTERS)")
        return self.tally
