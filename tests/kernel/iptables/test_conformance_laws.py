"""The kit's laws, and its second opinion, for the iptables mode in both variants."""

import pytest

from kproxy_core.kernel.iptables import Variant
from kproxy_core.testing.conformance.laws import EndpointCost, Laws
from kproxy_core.testing.conformance.oracle_kernel.tests import OracleAgainstKernel

from .variants import OneVariant, hint

pytestmark = pytest.mark.kernel

COST = EndpointCost(added=6, removed=5, replaced=6)
"""The chain of the Service port anew: its declaration and a rule for each endpoint; and an element if the endpoint is here."""


class LawsInOneVariant(OneVariant, Laws):
    endpoint_cost = COST

    def setup_method(self) -> None:
        # For the process that finds out for itself.
        hint(self.world.lab.node, self.variant)
        super().setup_method()


class TestLawsNft(LawsInOneVariant):
    variant = Variant.NFT


class TestLawsLegacy(LawsInOneVariant):
    variant = Variant.LEGACY


class TestOracleNft(OneVariant, OracleAgainstKernel):
    variant = Variant.NFT


class TestOracleLegacy(OneVariant, OracleAgainstKernel):
    variant = Variant.LEGACY
