"""The conformance of the nftables mode: scenarios, laws, the second opinion, and whether the kit finds faults in it."""

from pathlib import Path

import pytest

from kproxy_core.testing.conformance.laws import EndpointCost, Laws
from kproxy_core.testing.conformance.oracle_kernel.tests import OracleAgainstKernel
from kproxy_core.testing.conformance.planted.tests import PlantedFaults
from kproxy_core.testing.conformance.plugin import Conformance

from ..nftables.planted_faults import FAULTS

pytestmark = pytest.mark.kernel

SCENARIOS = Path(__file__).parents[1] / "nftables" / "scenarios"
"""What only this mode has."""


class TestNftables(Conformance):
    mode = "nftables"
    own_scenarios = SCENARIOS


class TestLaws(Laws):
    mode = "nftables"
    endpoint_cost = EndpointCost(added=11, removed=14, replaced=3)
    restart_cost = 2  # a table in each family, which the process before has left without a holder


class TestOracle(OracleAgainstKernel):
    mode = "nftables"


class TestPlantedFaults(PlantedFaults):
    mode = "nftables"
    own_scenarios = SCENARIOS
    own_faults = FAULTS
