"""One endpoint more or less costs as many kernel operations in a large cluster as in a small one."""

from typing import ClassVar

from attrs import frozen

from kproxy_core.model.changes import WatchedObject
from kproxy_core.testing.conformance.laws.faults import good
from kproxy_core.testing.conformance.mode_tests import ModeTests


@frozen(kw_only=True)
class EndpointCost:
    """The most operations (as a sync reports them) that a change of one of three endpoints takes.

    Of a Service with one TCP port and a cluster address, in one family: one ``added``, ``removed`` or ``replaced`` by another.
    """

    added: int
    removed: int
    replaced: int


class CostLaws(ModeTests):
    """Set ``endpoint_cost`` to what the mode's documentation says."""

    endpoint_cost: ClassVar[EndpointCost]
    sizes: ClassVar[tuple[int, ...]] = (10, 100, 1000)

    def test_one_endpoint_costs_the_same_at_any_size(self) -> None:
        """With 10, 100 and 1,000 Services of two endpoints around it."""
        found = {}
        there = 0
        for size in self.sizes:
            good(self.world.node.put(*(each for number in range(there, size) for each in self.neighbour(number))))
            there = size
            found[size] = self.measured()
        assert len(set(found.values())) == 1, f"it depends on the number of Services: {found}"
        cost, stated = found[self.sizes[0]], self.endpoint_cost
        assert cost.added <= stated.added, cost
        assert cost.removed <= stated.removed, cost
        assert cost.replaced <= stated.replaced, cost

    def measured(self) -> EndpointCost:
        """What the changes cost in the cluster as it is."""
        node, cluster = self.world.node, self.world.cluster
        node.put(cluster.service("web", 9, "t=80"), *cluster.endpoints("web", "a1 a2 b1", "t=8080"))

        def cost(hosts: str) -> int:
            four, _ = cluster.endpoints("web", hosts, "t=8080")
            return good(node.put(four)).operations

        added, removed = cost("a1 a2 b1 b2"), cost("a1 b1 b2")
        made = EndpointCost(added=added, removed=removed, replaced=cost("a1 b1 abr1"))
        cost("a1 a2 b1")
        return made

    def neighbour(self, number: int) -> tuple[WatchedObject, ...]:
        """A Service that nothing happens to."""
        name = f"n{number}"
        return (self.world.cluster.service(name, 1000 + number, "t=80"), *self.world.cluster.endpoints(name, "a1 b1", "t=8080"))
