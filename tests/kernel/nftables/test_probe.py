"""What probe says of a node: it tries, leaves nothing behind, and names what is missing and what to do about it (D36)."""

from collections.abc import Callable

import pytest

from kproxy_core.model.addresses import Family
from kproxy_core.plugin.errors import UnsupportedError
from kproxy_core.wire.nft_layout import UnknownExpression
from kproxy_nftables import trials
from kproxy_nftables.dataplane import NftablesDataplane, probe
from kproxy_nftables.objects import Chain, Rule

from .world import World, everything

pytestmark = pytest.mark.kernel


def test_everything_works_here_and_nothing_is_left_behind(world: World, nft: Callable[..., str]) -> None:
    world.node.set(*everything(world))
    before = world.node.dataplane.read()
    with world.lab.node.enter():
        support = probe()
    assert support.usable
    new_in_6_9 = {trials.holding(family).name for family in Family}
    assert {finding.name for finding in support.findings if not finding.ok} <= new_in_6_9, support
    assert {family.label for family in Family} == {finding.name.split("(")[1].rstrip(")") for finding in support.findings}
    assert world.node.dataplane.read() == before
    assert len(nft("list", "tables").splitlines()) == 2


@pytest.mark.parametrize("fatal", [True, False])
def test_d36_a_missing_feature_is_named_with_its_remedy(world: World, monkeypatch: pytest.MonkeyPatch, fatal: bool) -> None:
    odd = Chain(rules=(Rule(expressions=(UnknownExpression(name="nosuchthing", data=b""),)),))
    feature = trials._Feature(name="odd", chains=(odd,), remedy="load nft_nosuchthing", with_sets=False, fatal=fatal)
    usual = trials._features
    monkeypatch.setattr(trials, "_features", lambda family: (*usual(family), feature))
    with world.lab.node.enter():
        support = probe()
    missing = [finding for finding in support.findings if not finding.ok]
    assert [(finding.name, finding.remedy) for finding in missing] == [
        ("odd (IPv4)", "load nft_nosuchthing"),
        ("odd (IPv6)", "load nft_nosuchthing"),
    ]
    assert "refused by the kernel" in missing[0].message
    assert support.usable != fatal


def test_a_dataplane_says_what_it_needs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from kproxy_core.kernel.errors import PermissionDeniedError
    from kproxy_nftables import dataplane

    def refuse() -> None:
        raise PermissionDeniedError("open a netlink socket", 1)

    monkeypatch.setattr(dataplane, "NftSocket", refuse)
    with pytest.raises(UnsupportedError, match="CAP_NET_ADMIN"):
        NftablesDataplane()
    (finding,) = probe().findings
    assert not finding.ok
    assert "CAP_NET_ADMIN" in finding.remedy
