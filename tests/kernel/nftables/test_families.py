"""A family that the kernel refuses as a whole does not hold up the other one; it is told, and served as soon as it can be."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.model.addresses import Family
from kproxy_core.testing.conformance.lasting import all_alive, held
from kproxy_core.testing.lab import AddressPair
from kproxy_core.wire.nfnetlink import Family as NetlinkFamily
from kproxy_core.wire.nft_constants import TableFlag
from kproxy_core.wire.nft_layout import UnknownExpression
from kproxy_core.wire.nft_objects import Table
from kproxy_core.wire.nft_operations import add, delete
from kproxy_nftables import actions, dataplane, scaffold, trials
from kproxy_nftables.objects import TABLE, Chain, Rule

from .daemon import changed, running
from .world import EVERYWHERE, TCP_UDP, World, everything, see_everything, servers

pytestmark = pytest.mark.kernel

BOTH = pytest.mark.parametrize("refused", list(Family), ids=lambda family: family.label)


def other(family: Family) -> Family:
    return Family.IPV4 if family is Family.IPV6 else Family.IPV6


def address(pair: AddressPair, family: Family) -> str:
    return pair.ipv4 if family is Family.IPV4 else pair.ipv6


@contextmanager
def blocked(world: World, family: Family) -> Iterator[None]:
    """Somebody else holds a table of our name meanwhile; it goes with them."""
    table = Table(family=NetlinkFamily(family), name=TABLE, flags=TableFlag.OWNER)
    with world.lab.node.enter():
        socket = NftSocket()
    with socket:
        ours = [delete(each) for each in socket.tables() if (each.family, each.name) == (table.family, TABLE)]
        result = socket.commit([*ours, add(table)])
        assert result.ok, result
        yield


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is tried again whenever somebody asks whether anything has changed."""
    monkeypatch.setattr(dataplane, "_RETRY_PERIOD", 0.0)


@BOTH
def test_a_table_of_somebody_else_in_one_family_costs_that_family_alone(world: World, hasty: None, refused: Family) -> None:
    number, served = world.number(), other(refused)
    service = world.cluster.service("web", number)
    pair = world.cluster.cluster(number)
    world.node.dataplane.cleanup()
    world.node.close()
    with blocked(world, refused):
        report = world.node.restart(cluster=(service, *world.cluster.endpoints("web", "a1 b1")))
        assert report is not None
        assert (report.ok, report.error, list(report.unserved)) == (False, "", [refused])
        assert "held by another process" in report.unserved[refused]
        assert not report.failed, "no Service is to blame"
        world.see(world.ask(EVERYWHERE, address(pair, served), protocols=TCP_UDP).answered("a1 b1"))
        # It goes on: changes are one sync each, at once, without another attempt at what is refused.
        world.node.play.transcript.clear()
        world.node.put(*world.cluster.endpoints("web", "b1"))
        assert [line for line in world.node.play.transcript if line == "read" or "failed" in line] == []
        world.see(world.ask(EVERYWHERE, address(pair, served), protocols=TCP_UDP).answered("b1"))
        assert not world.node.difference()
    noticed = world.node.notice()
    assert noticed is not None
    assert noticed.ok
    assert not noticed.drifted
    world.see(world.ask(EVERYWHERE, pair, protocols=TCP_UDP).answered("b1"))
    assert not world.node.difference()


@BOTH
def test_a_feature_that_one_family_lacks_costs_that_family_alone(
    world: World, hasty: None, refused: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = other(refused)
    number = world.number()
    pair = world.cluster.cluster(number)
    odd = Chain(rules=(Rule(expressions=(UnknownExpression(name="nosuchthing", data=b""),)),))
    rejecting, features = actions.reject_chain, trials._features
    world.node.dataplane.cleanup()
    with monkeypatch.context() as kernel:
        kernel.setattr(scaffold, "reject_chain", lambda family: odd if family is refused else rejecting(family))
        lacking = trials._Feature(name="odd", chains=(odd,), remedy="load nft_nosuchthing", with_sets=False)
        kernel.setattr(trials, "_features", lambda family: (*features(family), *([lacking] if family is refused else ())))
        with world.lab.node.enter():
            assert world.node.backend.probe().usable
        report = world.node.restart(cluster=(world.cluster.service("web", number), *world.cluster.endpoints("web", "a1")))
        assert report is not None
        assert list(report.unserved) == [refused]
        assert "odd" in report.unserved[refused]
        world.see(world.ask(EVERYWHERE, address(pair, served), protocols=TCP_UDP).answered("a1"))
    noticed = world.node.notice()
    assert noticed is not None
    assert noticed.ok
    world.see(world.ask(EVERYWHERE, pair, protocols=TCP_UDP).answered("a1"))


def test_if_both_are_refused_it_is_no_matter_of_families(world: World) -> None:
    world.node.dataplane.cleanup()
    world.node.close()
    with blocked(world, Family.IPV4), blocked(world, Family.IPV6):
        report = world.node.restart(cluster=everything(world))
        assert report is not None
        assert "Operation not permitted" in report.error
        assert not report.unserved
    world.node.check()
    assert world.node.reports[-1].ok
    see_everything(world)


def test_a_daemon_goes_on_with_one_family_and_says_so(world: World, tmp_path: Path) -> None:
    """On an older kernel, where somebody can take the name from a daemon that is at work."""
    pair = world.cluster.cluster(201)
    with running(world, tmp_path, "older_kernel") as daemon:
        with held(world, 201) as connections, blocked(world, Family.IPV6):
            daemon.wait(lambda: daemon.logged("IPv6 is not served"))
            assert "held by another process" in daemon.status()["unserved"]["IPv6"]
            daemon.write(*changed(world, "plain", "b2"))
            asked = world.ask("node", pair.ipv4, protocols=TCP_UDP, times=10).answered("a1 b1 b2")
            daemon.wait(lambda: servers(world.see(asked)) == {"b2"})
            assert all_alive([each for each in connections if ":" not in each.source[0]])
        daemon.wait(lambda: daemon.logged("IPv6 is served again"))
        world.see(world.ask(EVERYWHERE, pair, protocols=TCP_UDP).answered("b2"))
