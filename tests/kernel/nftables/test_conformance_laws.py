"""The kit's laws, and its second opinion, for the nftables mode."""

import pytest

from kproxy_core.testing.conformance.laws import EndpointCost, Laws
from kproxy_core.testing.conformance.oracle_kernel.tests import OracleAgainstKernel

pytestmark = pytest.mark.kernel


class TestLaws(Laws):
    mode = "nftables"
    endpoint_cost = EndpointCost(added=10, removed=13, replaced=3)


class TestOracle(OracleAgainstKernel):
    mode = "nftables"
