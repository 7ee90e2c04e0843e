"""What the mode finds out of a node and does to it: the variant that it uses, what is missing, settings of the kernel."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

from kproxy_core.config.settings import NodePortScope
from kproxy_core.kernel import programs
from kproxy_core.kernel.iptables import Variant, find_program
from kproxy_core.model.addresses import Family, parse_network
from kproxy_core.plugin.backend import Finding
from kproxy_core.testing.conformance.everything import everything, see_everything
from kproxy_core.testing.conformance.world import World
from kproxy_core.testing.lab import Host, Lab, can_build
from kproxy_iptables.backend import IptablesBackend
from kproxy_iptables.objects import ROUTE_LOCALNET
from kproxy_iptables.scaffold import Features

from ...programs import program
from .variants import hint, need

pytestmark = pytest.mark.kernel

IptablesWorld = World[IptablesBackend]
OTHER = {Variant.NFT: Variant.LEGACY, Variant.LEGACY: Variant.NFT}
SETTING = "net.ipv4.conf.all.route_localnet"


@pytest.fixture
def fresh() -> Iterator[Lab]:
    """A lab in which no table has been used."""
    if not can_build():
        pytest.skip("no privilege to make network namespaces (run as root, or: python -m kproxy_core.testing.lab pytest)")
    with Lab() as lab:
        yield lab


def probed(host: Host) -> tuple[Finding, ...]:
    with host.enter():
        return IptablesBackend().probe().findings


@pytest.mark.parametrize("variant", Variant)
def test_d22_the_variant_that_kubelet_uses_is_used(fresh: Lab, variant: Variant) -> None:
    need(variant)
    hint(fresh.node, variant)
    world = World(fresh, IptablesBackend())
    try:
        world.node.set(*everything(world))
        see_everything(world)
        (used, *_) = probed(fresh.node)
        assert used.message == f"the variant {variant.value} is used: kubelet has its chains there"
        lines = world.node.dataplane.leftovers().lines
        assert any(f"({variant.value})" in line for line in lines)
        assert not any(f"({OTHER[variant].value})" in line for line in lines)
    finally:
        world.close()


@pytest.mark.parametrize("variant", Variant)
def test_d22_rules_in_the_other_variant_are_told_and_removed(fresh: Lab, variant: Variant) -> None:
    for each in Variant:
        need(each)
    world = World(fresh, IptablesBackend(variant=OTHER[variant].value))
    try:
        objects = everything(world)
        world.node.set(*objects)
        hint(fresh.node, variant)
        found = {finding.name: finding for finding in probed(fresh.node)}
        assert OTHER[variant].value in found["other variant"].message
        assert not found["other variant"].fatal
        world.node.backend = IptablesBackend()
        report = world.node.restart(cluster=objects)
        assert report is not None
        assert report.ok
        assert not any(f"({OTHER[variant].value})" in line for line in world.node.dataplane.leftovers().lines)
        assert "other variant" not in {finding.name for finding in probed(fresh.node)}
        check = world.node.check()
        assert check is not None
        assert check.operations == 0
        see_everything(world)
    finally:
        world.close()


def test_a_probe_finds_everything_here_and_leaves_nothing(fresh: Lab) -> None:
    findings = probed(fresh.node)
    assert all(finding.ok for finding in findings), [finding for finding in findings if not finding.ok]
    assert {"IPv4 hash:ip,port,net", "IPv6 SET", "IPv6 REJECT"} <= {finding.name for finding in findings}
    assert fresh.node.run(["ipset", "save"]).stdout == ""
    with fresh.node.enter():
        assert Path("/proc/thread-self/net/ip_tables_names").read_text() == ""


def test_a_node_without_iptables(fresh: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(programs, "_SEARCH_PATH", str(tmp_path))
    (finding,) = probed(fresh.node)
    assert not finding.ok
    assert finding.fatal
    assert "install the package iptables" in finding.remedy


# -- settings of the kernel


def test_route_localnet_is_set_if_it_is_wanted_and_taken_back(world: IptablesWorld) -> None:
    node = world.lab.node
    world.node.dataplane.cleanup()
    assert node.sysctl(SETTING) == "0"
    world.node.restart(world.defaults)
    assert node.sysctl(SETTING) == "1"
    for chosen in (NodePortScope.PRIMARY, (parse_network("172.18.0.0/16"),)):
        world.node.restart(evolve(world.defaults, node_port_addresses=chosen))
        assert node.sysctl(SETTING) == "0"
    world.node.restart(evolve(world.defaults, node_port_addresses=(parse_network("127.0.0.0/8"),)))
    assert node.sysctl(SETTING) == "1"
    world.node.dataplane.cleanup()
    assert node.sysctl(SETTING) == "0"


def test_route_localnet_that_was_set_before_stays(world: IptablesWorld) -> None:
    node = world.lab.node
    world.node.dataplane.cleanup()
    node.sysctl(SETTING, 1)
    try:
        world.node.restart(world.defaults)
        assert f"setting {ROUTE_LOCALNET}" not in world.node.dataplane.leftovers().lines
        world.node.dataplane.cleanup()
        assert node.sysctl(SETTING) == "1"
    finally:
        node.sysctl(SETTING, 0)


def test_route_localnet_that_somebody_resets_is_set_again(world: IptablesWorld) -> None:
    world.lab.node.sysctl(SETTING, 0)
    report = world.node.check()
    assert report is not None
    assert report.drifted == 1
    assert world.lab.node.sysctl(SETTING) == "1"


def test_invalid_packets_pass_where_conntrack_is_liberal(world: IptablesWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    drop = "-m conntrack --ctstate INVALID -j DROP"

    def forward() -> object:
        return world.node.dataplane.read().common["v4 filter chain", "KPROXY-FORWARD"]

    assert drop in str(forward())
    world.lab.node.sysctl("net.netfilter.nf_conntrack_tcp_be_liberal", 1)
    try:
        world.node.restart()
        assert drop not in str(forward())
    finally:
        world.lab.node.sysctl("net.netfilter.nf_conntrack_tcp_be_liberal", 0)
    monkeypatch.setattr(world.node.backend, "_wanted", Features(drop_invalid=False))
    world.node.restart()
    assert drop not in str(forward())


def test_without_a_nat_table_of_ipv6_ipv4_is_served(
    world: IptablesWorld, variant: Variant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a kernel without it; here the program says so."""
    real = find_program(variant, Family.IPV6, "restore")
    word = "nft" if variant is Variant.NFT else "legacy"
    poor = tmp_path / f"ip6tables-{word}-restore"
    poor.write_text(f'#!/bin/sh\nif [ "$3" = --test ]; then echo "Table does not exist" >&2; exit 3; fi\nexec {real} "$@"\n')
    poor.chmod(0o755)
    monkeypatch.setattr(programs, "_SEARCH_PATH", f"{tmp_path}:{programs._SEARCH_PATH}")
    world.node.dataplane.cleanup()
    world.node.restart(cluster=(world.cluster.service("web", 20), *world.cluster.endpoints("web", "a1")))
    world.see(world.ask("a2 node", world.cluster.cluster(20).ipv4).answered("a1"))
    assert not any(line.startswith("IPv6") or "KPROXY-6" in line for line in world.node.dataplane.leftovers().lines)


def test_the_rights_that_are_missing_are_named(fresh: Lab) -> None:
    few = [program("setpriv"), "--bounding-set=-all,+net_admin", "--inh-caps=-all,+net_admin"]
    done = fresh.node.run([*few, sys.executable, "-m", "kproxy_core.cli.main", "probe", "iptables", "--json"], check=False)
    (mode,) = json.loads(done.stdout)["modes"]
    assert not mode["usable"]
    assert any("CAP_NET_RAW" in finding["remedy"] for finding in mode["findings"])
