"""New connections while everything changes, other versions of the mode among them."""

from collections.abc import Callable

import pytest
from attrs import evolve

from kproxy_core.model.objects import TrafficPolicy
from kproxy_core.testing.conformance.lasting import clients_of
from kproxy_nftables import scaffold, sets

from .world import World, everything

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("affinity", [None, 1, 60], ids=["plain", "brief", "sticky"])
def test_no_new_connection_fails_while_everything_else_changes(
    world: World, affinity: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, other = world.number(), world.number()
    service = world.cluster.service("web", number, affinity_timeout=affinity)
    neighbour = world.cluster.service("next", other, external=other)
    world.node.set(service, *world.cluster.endpoints("web", "a1 b1"))
    others = [thing for thing in everything(world) if thing.name not in ("node", "kubernetes")]
    steps: list[Callable[[], object]] = [
        lambda: world.node.put(*others),
        lambda: world.node.put(neighbour, *world.cluster.endpoints("next", "a2")),
        lambda: world.node.put(world.cluster.node(), world.cluster.service_cidr()),
        lambda: world.node.put(evolve(service, external_policy=TrafficPolicy.LOCAL, external_ips=neighbour.external_ips)),
        lambda: world.node.put(evolve(service, affinity_timeout=30)),
        lambda: world.node.put(service),
        lambda: world.node.remove(neighbour, *others),
        lambda: world.node.restart(evolve(world.defaults, masquerade_bit=3)),
        lambda: world.node.restart(world.defaults),
    ]
    with clients_of(world, number) as clients:
        for step in steps * 3:
            step()
            clients.go_on()
        with monkeypatch.context() as older:  # another version: base chains are made anew, then everything
            older.setattr(scaffold, "_DSTNAT", -90)
            world.node.restart()
            clients.go_on()
            older.setattr(sets, "AFFINITY_SIZE", 4096)
            world.node.restart()
            clients.go_on()
        world.node.restart()
