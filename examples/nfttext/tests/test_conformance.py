"""The mode passes what kproxy's own modes pass; what it does not claim to be capable of is skipped, and nothing else."""

from kproxy_core.testing.conformance.laws import EndpointCost, Laws
from kproxy_core.testing.conformance.oracle_kernel.tests import OracleAgainstKernel
from kproxy_core.testing.conformance.plugin import Conformance


class TestScenarios(Conformance):
    mode = "nfttext"


class TestLaws(Laws, OracleAgainstKernel):
    mode = "nfttext"
    endpoint_cost = EndpointCost(added=6, removed=5, replaced=8)
