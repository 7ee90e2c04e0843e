"""A cluster that uses all that a mode has, and a few packets that show it to be in force."""

from typing import Any

from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.objects import TrafficPolicy
from kproxy_core.testing.conformance.world import EVERYWHERE, TCP, World


def everything(world: World[Any]) -> tuple[WatchedObject, ...]:
    """Every kind of frontend, policy, refusal, affinity, weights, ranges, long names."""
    cluster, local = world.cluster, TrafficPolicy.LOCAL
    served = "t=80@31{0:03} u=80/udp@31{0:03} s=80/sctp@31{0:03}"
    long_name = f"{'n' * 63}/{'s' * 63}"
    long_port = "p" * 63
    services = (
        cluster.service("plain", 201, served.format(201), external=201, balancer=201),
        cluster.service("local", 202, served.format(202), external=202, balancer=202, external_policy=local),
        cluster.service("inner", 203, internal_policy=local, external=203),
        cluster.service("nowhere", 204, served.format(204), external=204, external_policy=local),
        cluster.service("empty", 205, served.format(205), balancer=205, ranges="172.18.0.0/24 fd00:18::/64"),
        cluster.service("sticky", 206, served.format(206), affinity_timeout=300, external_policy=local, balancer=206),
        cluster.service("brief", 207, affinity_timeout=10),
        cluster.service("ranged", 208, balancer=208, ranges="172.18.0.0/24 10.244.0.0/16 fd00:18::/64 fd00:244::/56"),
        cluster.service("heavy", 209, weights={"*": 1, world.host("a1").ipv4: 3}),
        cluster.service(long_name, 210, f"{long_port}=80"),
    )
    behind = {"nowhere": "b1", "empty": "", "sticky": "a1 a2 b1", "heavy": "a1 b1 b2"}
    return (
        *services,
        *(piece for each in services[:-1] for piece in cluster.endpoints(str(each.name), behind.get(each.name.name, "a1 b1"))),
        *cluster.endpoints(long_name, "a1 b1", f"{long_port}=8080"),
        cluster.node(),
        cluster.service_cidr(),
    )


def see_everything(world: World[Any]) -> None:
    """Check by a few packets that :func:`everything` is in force."""
    cluster = world.cluster
    world.see(
        world.ask(EVERYWHERE, cluster.cluster(201)).answered("a1 b1"),
        world.ask(EVERYWHERE, cluster.external(201)).answered("a1 b1"),
        world.ask(EVERYWHERE, world.node_addresses(), 31201).answered("a1 b1"),
        world.ask("outside", cluster.balancer(202)).answered("a1", client="kept"),
        world.ask("outside", cluster.external(204)).dropped(),
        world.ask(EVERYWHERE, cluster.cluster(205)).refused(),
        world.ask("a2 node", cluster.cluster(206)).answered("a1 a2 b1"),
        world.ask("a2 outside", cluster.balancer(208)).answered("a1 b1"),
        world.ask("node outside", cluster.cluster(209)).answered("a1 b1 b2"),
        world.ask("node outside", cluster.cluster(210), protocols=TCP).answered("a1 b1"),
        world.ask("node outside", cluster.cluster(210), 81).refused(),
    )
