"""The mode as a companion: it serves what a mode above it leaves, with real packets; the mode above is the in-memory one."""

from collections.abc import Iterator

import pytest

from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.state import FrontendKind, FrontendRule, Origin, ServicePort
from kproxy_core.plugin.backend import Companion
from kproxy_core.runtime.stack import StackedBackend
from kproxy_core.testing.conformance.lasting import all_alive, clients_of, held
from kproxy_core.testing.conformance.world import World as AnyWorld
from kproxy_core.testing.lab import Lab
from kproxy_core.testing.memory_backend import MemoryBackend, MemoryKernel
from kproxy_core.testing.node import NodeUnderTest
from kproxy_nftables.backend import NftablesBackend

from .world import EVERYWHERE, TCP, TCP_UDP

# Where tables can be held nobody else can do to them what is done here.
pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("an_older_kernel")]

World = AnyWorld[StackedBackend]
FEW = 2


def claims(port: ServicePort, rule: FrontendRule, origin: Origin) -> bool:
    """Claim what local pods dial at cluster addresses, and NodePorts as long as there are few endpoints."""
    if rule.frontend.kind is FrontendKind.NODE_PORT:
        return len(port.serving) <= FEW
    return rule.frontend.kind is FrontendKind.CLUSTER_IP and origin is Origin.LOCAL_POD


def upper(kernel: MemoryKernel) -> MemoryBackend:
    beneath = Companion(mode="nftables", purpose="serves real packets")
    return MemoryBackend(kernel, name="upper", companions=(beneath,), claimed=claims)


@pytest.fixture(scope="module")
def above() -> MemoryKernel:
    """The kernel of the mode above, which no real packet meets."""
    return MemoryKernel()


@pytest.fixture(scope="module")
def shared_stack(shared_lab: Lab, above: MemoryKernel) -> Iterator[World]:
    world = AnyWorld(shared_lab, StackedBackend([upper(above), NftablesBackend()]))
    yield world
    world.close()


@pytest.fixture
def world(shared_stack: World) -> World:
    shared_stack.reset()
    return shared_stack


def frontends(kernel: MemoryKernel) -> set[str]:
    return {f"{key[1]} {key[2]} {key[3]}:{key[4]}" for key in kernel.ours if key[0] == "frontend"}


def test_what_is_left_is_served_and_what_is_claimed_is_not_in_its_way(world: World, above: MemoryKernel) -> None:
    cluster, number = world.cluster, world.number()
    ports = f"t=80@31{number:03} u=80/udp@31{number:03}"
    report = world.node.set(
        cluster.service("web", number, ports, external=number),
        *cluster.endpoints("web", "a1 b1"),
        cluster.node(),
        cluster.service_cidr(),
    )
    assert report is not None
    assert report.ok
    world.see(
        # The whole rule of a ClusterIP is there, for one origin of it is left; nothing above us takes packets of local pods away.
        world.ask(EVERYWHERE, cluster.cluster(number), protocols=TCP_UDP).answered("a1 b1"),
        world.ask(EVERYWHERE, cluster.external(number), protocols=TCP_UDP).answered("a1 b1"),
        world.ask("a2 outside", cluster.cluster(number), 81).refused(),
        world.ask("a2 outside", cluster.cluster(number + 200)).dropped(),
        world.ask("a2 outside", world.node_addresses(), int(f"31{number:03}"), protocols=TCP_UDP).unreachable(),
    )
    assert f"IPv4 TCP *:31{number:03}" in frontends(above)
    assert f"IPv4 TCP {cluster.cluster(number).ipv4}:80" in frontends(above)
    assert f"IPv4 TCP {cluster.external(number).ipv4}:80" not in frontends(above)


def test_frontends_move_between_the_modes_with_their_service(world: World, above: MemoryKernel) -> None:
    cluster, number = world.cluster, world.number()
    node_port = 31000 + number
    web = cluster.service("web", number, f"t=80@{node_port} u=80/udp@{node_port}")
    here = f"IPv4 TCP *:{node_port}"
    asked = world.ask("a2 node outside", world.node_addresses(), node_port, protocols=TCP_UDP)
    world.node.set(web, *cluster.endpoints("web", "a1 b1"), cluster.node())
    assert here in frontends(above)
    world.see(asked.unreachable())
    world.node.put(*cluster.endpoints("web", "a1 a2 b1"))
    assert here not in frontends(above)
    world.see(asked.answered("a1 a2 b1"))
    world.node.put(*cluster.endpoints("web", "a1 b1"))
    assert here in frontends(above)
    world.see(asked.unreachable())
    assert all(report.ok for report in world.node.reports)
    assert not world.node.difference()


def test_both_get_a_change_in_one_sync_and_a_restart_changes_nothing(world: World, above: MemoryKernel) -> None:
    cluster, number = world.cluster, world.number()
    world.node.set(cluster.service("web", number), *cluster.endpoints("web", "a1 b1"), cluster.node())
    syncs = len(world.node.reports)
    world.node.put(*cluster.endpoints("web", "b2"))
    assert len(world.node.reports) == syncs + 1
    world.see(world.ask(EVERYWHERE, cluster.cluster(number)).answered("b2"))
    assert {str(value[0]) for key, value in above.ours.items() if key[0] == "slot" and isinstance(value, tuple)} >= {
        world.host("b2").ipv4
    }
    report = world.node.restart()
    assert report is not None
    assert (report.ok, report.operations) == (True, 0)
    checked = world.node.check()
    assert checked is not None
    assert (checked.operations, checked.drifted) == (0, 0)


def test_what_somebody_does_to_either_is_noticed_and_repaired(world: World, above: MemoryKernel) -> None:
    cluster, number = world.cluster, world.number()
    world.node.set(cluster.service("web", number), *cluster.endpoints("web", "a1 b1"), cluster.node())
    before = dict(above.ours)
    world.lab.node.run(["nft", "flush", "ruleset"])
    noticed = world.node.notice()
    assert noticed is not None
    assert noticed.drifted
    world.see(world.ask(EVERYWHERE, cluster.cluster(number), protocols=TCP).answered("a1 b1"))
    above.meddle(dict.clear)
    noticed = world.node.notice()
    assert noticed is not None
    assert above.ours == before


def test_a_mode_is_put_above_and_taken_away_again_under_load(lab: Lab) -> None:
    kernel = MemoryKernel()
    alone = AnyWorld(lab, NftablesBackend())
    cluster = alone.cluster
    objects: tuple[WatchedObject, ...] = (
        cluster.service("web", 10, "t=80 u=80/udp s=80/sctp"),
        *cluster.endpoints("web", "a1 b1 b2"),
        cluster.node(),
    )
    alone.node.set(*objects)
    with held(alone, 10) as connections, clients_of(alone, 10) as clients:
        clients.go_on(20)
        alone.node.close()
        stack = NodeUnderTest(lab.node, StackedBackend([upper(kernel), NftablesBackend()]), alone.defaults)
        report = stack.set(*objects)
        assert report is not None
        assert report.ok
        assert kernel.ours
        clients.go_on(20)
        stack.put(*cluster.endpoints("web", "a1 a2 b1 b2"))
        clients.go_on(20)
        stack.close()
        again = NodeUnderTest(lab.node, NftablesBackend(), alone.defaults)
        report = again.set(*objects)
        assert report is not None
        assert report.ok
        clients.go_on(20)
        assert all_alive(connections)
        again.close()


def test_cleanup_leaves_nothing_of_either(world: World, above: MemoryKernel) -> None:
    cluster, number = world.cluster, world.number()
    world.node.set(cluster.service("web", number), *cluster.endpoints("web", "a1 b1"), cluster.node())
    assert len(world.node.dataplane.leftovers().lines) >= 2
    world.node.dataplane.cleanup()
    assert not world.node.dataplane.leftovers()
    assert above.tables == {}
