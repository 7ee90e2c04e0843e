"""The kit's laws, and its second opinion, for the nftables mode; and whether the kit finds faults in it."""

from pathlib import Path

import pytest

from kproxy_core.testing.conformance.laws import EndpointCost, Laws
from kproxy_core.testing.conformance.oracle_kernel.tests import OracleAgainstKernel
from kproxy_core.testing.conformance.planted.tests import PlantedFaults

from .planted_faults import FAULTS

pytestmark = pytest.mark.kernel


class TestLaws(Laws):
    mode = "nftables"
    endpoint_cost = EndpointCost(added=10, removed=13, replaced=3)


class TestOracle(OracleAgainstKernel):
    mode = "nftables"


class TestPlantedFaults(PlantedFaults):
    mode = "nftables"
    own_scenarios = Path(__file__).parent / "scenarios"
    own_faults = FAULTS
