"""Debian's nft lists everything we make, in text and in JSON, also while all features are in use: it must not break the host."""

import json
import re
from collections.abc import Callable

import pytest
from attrs import evolve

from kproxy_core.config.settings import DetectLocalMode, NodePortScope, Settings
from kproxy_core.testing.lab import BRIDGE

from .world import World, everything

pytestmark = pytest.mark.kernel

Nft = Callable[..., str]

DETECTION = {
    "ClusterCIDR": {},
    "NodeCIDR": {"detect_local_mode": DetectLocalMode.NODE_CIDR},
    "BridgeInterface": {"detect_local_mode": DetectLocalMode.BRIDGE_INTERFACE, "bridge_interface": BRIDGE},
    "InterfaceNamePrefix": {"detect_local_mode": DetectLocalMode.INTERFACE_NAME_PREFIX, "interface_name_prefix": "kpod"},
    "none": {"cluster_cidrs": ()},
    "every NodePort address": {"node_port_addresses": NodePortScope.ALL, "masquerade_all": True, "masquerade_bit": 31},
}


def _settings(world: World, mode: str) -> Settings:
    return evolve(world.defaults, **DETECTION[mode])  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", DETECTION)
def test_d33_nft_lists_everything_in_use(world: World, nft: Nft, mode: str) -> None:
    world.node.restart(_settings(world, mode))
    report = world.node.set(*everything(world))
    assert report is not None
    assert report.ok
    world.see(world.ask("a2 node", world.cluster.cluster(207)).answered("a1 b1"))  # remembered clients: live elements
    text = nft("list", "ruleset")
    assert "expires" in text
    owner = f"{'n' * 63}/{'s' * 63}:{'p' * 63}/TCP"
    assert text.count(f'comment "{owner}"') == 2
    for needle in ("172.18.0.0/24", "masquerade fully-random", "reject with tcp reset", "sctp"):
        assert needle in text
    listed = json.loads(nft("-j", "list", "ruleset"))["nftables"]
    kinds = [next(iter(item)) for item in listed]
    assert {"metainfo", "table", "chain", "rule", "map", "set"} <= set(kinds)
    for family in ("ip", "ip6"):
        assert nft("list", "table", family, "kproxy-nftables")
        assert nft("-s", "-a", "-n", "list", "table", family, "kproxy-nftables")


def test_every_set_and_chain_can_be_asked_for_by_name(world: World, nft: Nft) -> None:
    """No name is a word of nft's language."""
    world.node.set(*everything(world))
    listed = json.loads(nft("-j", "list", "ruleset"))["nftables"]
    named = {
        item[kind]["name"]: (kind, item[kind]["family"]) for item in listed for kind in ("chain", "set", "map") if kind in item
    }
    assert len(named) > 30
    for name, (kind, family) in named.items():
        assert f"{kind} {name} {{" in nft("list", kind, family, "kproxy-nftables", name)


def test_what_nft_shows_is_what_a_person_would_look_for(world: World, nft: Nft) -> None:
    """Addresses, protocols, ports and names, not numbers."""
    world.node.set(*everything(world))
    number = world.cluster.cluster(201)
    services = nft("list", "map", "ip", "kproxy-nftables", "services")
    assert re.search(rf'{re.escape(number.ipv4)} \. tcp \. 80 comment "default/plain:t/TCP"', services)
    endpoints = nft("list", "map", "ip6", "kproxy-nftables", "endpoints")
    assert f"{world.host('b1').ipv6} . 8080" in endpoints
    assert "31201" in nft("list", "map", "ip", "kproxy-nftables", "node-port-actions")
    assert world.lab.node.ipv4 in nft("list", "set", "ip", "kproxy-nftables", "node-port-ips")
    rendered = world.node.backend.render(world.node.play.engine.program)
    assert "default/plain:t/TCP" in rendered
    assert set(re.findall(r"(?:map|set|chain) (\S+) {", rendered)) == set(
        re.findall(r"(?:map|set|chain) (\S+) {", nft("list", "ruleset"))
    )
