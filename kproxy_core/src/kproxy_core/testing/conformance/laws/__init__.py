"""Laws that hold for every mode, whatever its mechanism, as tests that a mode's conformance test inherits."""

from kproxy_core.testing.conformance.laws.cost import CostLaws, EndpointCost
from kproxy_core.testing.conformance.laws.crash import CrashLaws
from kproxy_core.testing.conformance.laws.faults import FaultLaws
from kproxy_core.testing.conformance.laws.neighbours import NeighbourLaws
from kproxy_core.testing.conformance.laws.order import OrderLaws

__all__ = ["CostLaws", "CrashLaws", "EndpointCost", "FaultLaws", "Laws", "NeighbourLaws", "OrderLaws"]


class Laws(OrderLaws, CostLaws, NeighbourLaws, FaultLaws, CrashLaws):
    """All of them, in one lab. Set ``mode`` and ``endpoint_cost``."""
