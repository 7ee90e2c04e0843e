"""A change of the cluster that is small and touches all there is: what the laws are tried on, one operation after another."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from attrs import evolve, frozen

from kproxy_core.model.addresses import Family
from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.objects import EndpointSlice, Service, TrafficPolicy
from kproxy_core.testing.conformance.expectations import SURE
from kproxy_core.testing.conformance.world import TCP, World
from kproxy_core.testing.lab import HeldConnection, hold

_T, _BEHIND = "t=80", "t=8080"


@frozen
class Change:
    """Two clusters, and a look at each: a few packets that show it to be in force, none of which has to be waited for."""

    before: tuple[WatchedObject, ...]
    after: tuple[WatchedObject, ...]
    look_before: Callable[[], object]
    look_after: Callable[[], object]


def whole_change(world: World[Any]) -> Change:
    """Services come, go and change: their endpoints, what is shared between them, their kinds; one is left alone.

    Each is in one family only, so that there are few operations; both families have some.
    """
    cluster = world.cluster

    def service(name: str, number: int, family: Family, hosts: str, **fields: Any) -> tuple[WatchedObject, ...]:
        served = f"{_T}@{31000 + number}" if fields.pop("node_port", False) else _T
        return one_family(family, cluster.service(name, number, served, **fields), *cluster.endpoints(name, hosts, _BEHIND))

    four, six = Family.IPV4, Family.IPV6
    kept = (
        *service("alone", 205, four, "a1 b1", node_port=True, external_policy=TrafficPolicy.LOCAL),
        cluster.node(),
        cluster.service_cidr(),
    )
    before = (
        *kept,
        *service("web", 201, four, "a1 b1", external=201),
        *service("sticky", 202, six, "a1 a2 b1", affinity_timeout=60),
        *service("gone", 203, four, "a2", balancer=203, ranges="172.18.0.0/24"),
        *service("served", 206, six, "b1", node_port=True),
    )
    after = (
        *kept,
        *service("web", 201, four, "a1 b1 b2 abr1", external=201),
        *service("sticky", 202, six, "a2", affinity_timeout=60),
        *service("come", 204, six, "b2", balancer=204, ranges="fd00:18::/64"),
        *service("served", 206, six, "", node_port=True),
    )

    def look_before() -> None:
        world.see(
            world.ask("a2 outside", cluster.cluster(201).ipv4, protocols=TCP).answered("a1 b1"),
            world.ask("a2", cluster.cluster(202).ipv6, protocols=TCP).answered("a1 a2 b1"),
            world.ask("node outside", cluster.balancer(203).ipv4, protocols=TCP).answered("a2"),
        )

    def look_after() -> None:
        world.see(
            world.ask("a2 outside", cluster.cluster(201).ipv4, protocols=TCP).answered("a1 b1 b2 abr1"),
            world.ask("a1", cluster.cluster(202).ipv6, protocols=TCP).answered("a2"),
            world.ask("node outside", cluster.balancer(204).ipv6, protocols=TCP).answered("b2"),
            world.ask("node outside", cluster.cluster(206).ipv6, protocols=TCP).refused(),
            world.ask("outside", cluster.cluster(205).ipv4, protocols=TCP).answered("a1 b1"),
        )

    return Change(before, after, look_before, look_after)


def one_family(family: Family, service: Service, *slices: EndpointSlice) -> tuple[WatchedObject, ...]:
    """A dual-stack Service and its slices as one of a single family."""
    single = evolve(service, cluster_ips=tuple(address for address in service.cluster_ips if address.family is family))
    return (single, *(piece for piece in slices if piece.family is family))


@contextmanager
def held(world: World[Any], address: str, origins: str = "a2 abr2 node outside") -> Iterator[Callable[[], bool]]:
    """Hold connections to an address from everywhere. Yields what tells whether each is still answered by its server."""
    with ExitStack() as stack:
        connections: list[HeldConnection] = [
            stack.enter_context(hold(world.host(origin), address, 80, timeout=SURE)) for origin in origins.split()
        ]
        yield lambda: all(connection.alive(SURE) for connection in connections)
