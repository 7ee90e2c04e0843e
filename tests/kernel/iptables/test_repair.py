"""A restart reads what is there; what others did is noticed and repaired, and only that; what is not ours is not touched."""

from collections.abc import Callable

import pytest
from attrs import evolve

from kproxy_core.kernel.iptables import Variant
from kproxy_core.plugin.backend import SyncReport
from kproxy_core.testing.conformance.everything import everything, see_everything
from kproxy_core.testing.conformance.world import World
from kproxy_core.testing.lab import hold
from kproxy_iptables.backend import IptablesBackend

pytestmark = pytest.mark.kernel

Run = Callable[..., str]
IptablesWorld = World[IptablesBackend]

TREE_RULE = "KPROXY-IP-9-6 -d 10.96.0.201/32 -p tcp -m tcp --dport 80"

DEEDS = {
    "nat flushed": "iptables -t nat -F",
    "nat flushed, v6": "ip6tables -t nat -F",
    "filter flushed": "iptables -t filter -F",
    "a built-in chain flushed": "iptables -t nat -F PREROUTING",
    "a built-in chain of filter flushed": "iptables -F FORWARD",
    "our rule twice": "iptables -t nat -I OUTPUT -j KPROXY-OUTPUT",
    "somebody drops in a chain of ours": "iptables -I KPROXY-INPUT -j DROP",
    "somebody in the tree": "iptables -t nat -I KPROXY-SERVICES -d 10.96.0.201/32 -j ACCEPT",
    "a rule of a Service twice": f"iptables -t nat -A {TREE_RULE} -j ACCEPT",
    "a branch flushed": "iptables -t nat -F KPROXY-IP-9",
    "a root flushed": "iptables -t nat -F KPROXY-NODEPORTS",
    "a chain of ours flushed": "iptables -t nat -F KPROXY-POSTROUTING",
    "a chain that is new": "iptables -t nat -N KPROXY-SVC-AAAAAAAAAAAAAAAA",
    "an element lost": "ipset del KPROXY-4-REJECT 10.96.0.205,tcp:80",
    "a stray element": "ipset add KPROXY-4-REJECT 10.96.0.201,tcp:80",
    "a stray element, v6": "ipset add KPROXY-6-NP-DROP ::/1,tcp:31201",
    "a set emptied": "ipset flush KPROXY-4-CLUSTER-IPS",
    "a stray set": "ipset create KPROXY-4-SEP-AAAAAAAAAAAAAAAA hash:ip",
}


@pytest.fixture
def run(iptables: Run, shell: Run) -> Run:
    """Do a stranger's deed."""
    return lambda deed: iptables(deed) if deed.startswith("ip") and "tables" in deed.split()[0] else shell(deed)


def ok(report: SyncReport | None) -> SyncReport:
    assert report is not None
    assert report.ok, report
    return report


@pytest.fixture
def full(world: IptablesWorld) -> IptablesWorld:
    """A world in which everything is used."""
    ok(world.node.set(*everything(world)))
    return world


def test_what_is_read_is_what_was_written(full: IptablesWorld) -> None:
    program = full.node.dataplane.read()
    made = full.node.play.engine.program
    assert full.node.backend.canonical(program) == full.node.backend.canonical(made)
    assert {port: fragment.own for port, fragment in program.fragments.items()} == {
        port: fragment.own for port, fragment in made.fragments.items()
    }
    assert program.common == made.common
    assert full.node.dataplane.drift() is None


def test_d30_a_restart_changes_nothing(full: IptablesWorld) -> None:
    assert ok(full.node.restart()).operations == 0
    assert ok(full.node.check()).operations == 0
    assert full.node.dataplane.drift() is None


def test_a_restart_in_another_cluster_changes_what_differs(full: IptablesWorld) -> None:
    cluster = full.cluster
    plain = [each for each in everything(full) if getattr(each.name, "name", "").startswith("plain")]
    with hold(full.host("a2"), cluster.cluster(201).ipv4, 80, timeout=15.0) as connection:
        before = full.node.dataplane.read()
        ok(full.node.restart(cluster=[*plain, cluster.service("new", 230), *cluster.endpoints("new", "a1"), cluster.node()]))
        after = full.node.dataplane.read()
        kept = {key: fragment for key, fragment in before.fragments.items() if key.name.name == "plain"}
        assert kept
        assert {key: after.fragments[key] for key in kept} == kept
        assert connection.alive(15.0)
    full.see(full.ask("a2 outside", cluster.cluster(230)).answered("a1"), full.ask("a2", cluster.cluster(206)).dropped())
    assert not full.node.difference()


@pytest.mark.parametrize("deed", DEEDS)
def test_what_others_did_is_noticed_and_repaired(full: IptablesWorld, run: Run, deed: str) -> None:
    for repair in (full.node.notice, full.node.restart):
        run(DEEDS[deed])
        report = ok(repair())
        assert report.drifted > 0 or repair == full.node.restart
        assert not full.node.difference()
    assert ok(full.node.check()).operations == 0
    assert full.node.dataplane.drift() is None


@pytest.mark.parametrize("deed", ["nat flushed", "filter flushed", "a branch flushed", "a set emptied"])
def test_traffic_is_as_before_after_a_repair(full: IptablesWorld, run: Run, deed: str) -> None:
    run(DEEDS[deed])
    ok(full.node.notice())
    see_everything(full)


def test_a_rule_replaced_by_another_is_found_at_the_next_check_at_the_latest(full: IptablesWorld, run: Run) -> None:
    run("iptables -R KPROXY-FIREWALL 3 -m set --match-set KPROXY-4-DROP dst,dst -j ACCEPT")
    assert ok(full.node.check()).drifted == 1
    assert not full.node.difference()


def test_d26_nft_flush_ruleset(full: IptablesWorld, variant: Variant, shell: Run) -> None:
    if variant is Variant.LEGACY:
        pytest.skip("it does not concern legacy tables")
    with hold(full.host("a2"), full.cluster.cluster(201).ipv4, 80, timeout=15.0) as connection:
        shell("nft flush ruleset")
        report = ok(full.node.notice())
        assert "nft" in report.culprit
        assert connection.alive(15.0)
    see_everything(full)


FOREIGN = """*nat
:OTHERS - [0:0]
-A PREROUTING -d 203.0.113.9/32 -p tcp -j OTHERS
-A OTHERS -p tcp -j DNAT --to-destination 192.0.2.9:80
-A POSTROUTING -s 203.0.113.0/24 -m comment --comment "not ours: KPROXY" -j MASQUERADE
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
-A INPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL -s 203.0.113.99/32 -j DROP
COMMIT
*mangle
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
"""


def theirs(iptables: Run, shell: Run) -> list[str]:
    """The rules and sets that are not ours."""
    saved = [line for program in ("iptables-save", "ip6tables-save") for line in iptables(program).splitlines()]
    return [line for line in (*saved, *shell("ipset save").splitlines()) if not line.startswith("#") and "KPROXY-" not in line]


def test_what_is_not_ours_is_left_alone(world: IptablesWorld, iptables: Run, shell: Run) -> None:
    iptables("iptables-restore --noflush", FOREIGN)
    shell("ipset create KPROXY hash:ip")
    shell("ipset create OTHERS hash:net")
    shell("ipset add OTHERS 203.0.113.0/24")
    try:
        before = theirs(iptables, shell)
        ok(world.node.set(*everything(world)))
        ok(world.node.restart(evolve(world.defaults, masquerade_bit=3)))
        assert theirs(iptables, shell) == before
        world.node.set()
        assert world.node.dataplane.cleanup()
        assert not world.node.dataplane.leftovers()
        assert theirs(iptables, shell) == before
        assert not world.node.dataplane.cleanup()
    finally:
        iptables("iptables -t nat -F")
        iptables("iptables -F")
        for table, chain in (("nat", "OTHERS"), ("filter", "KUBE-FIREWALL"), ("mangle", "KUBE-KUBELET-CANARY")):
            iptables(f"iptables -t {table} -X {chain}")
        shell("ipset destroy KPROXY")
        shell("ipset destroy OTHERS")


OLD = """*nat
:KPROXY-OLDER - [0:0]
:KPROXY-OLD - [0:0]
-A KPROXY-OLD -j KPROXY-OLDER
-A POSTROUTING -j KPROXY-OLD
COMMIT
"""


def test_d20_d47_cleanup_takes_what_another_version_of_us_has_made(world: IptablesWorld, iptables: Run, shell: Run) -> None:
    iptables("iptables-restore --noflush", OLD)
    shell("ipset create KPROXY-4-OLD hash:ip")
    assert "set KPROXY-4-OLD" in world.node.dataplane.leftovers().lines
    world.node.dataplane.cleanup()
    assert "KPROXY" not in iptables("iptables-save") + shell("ipset save")


def test_d20_so_does_a_start(world: IptablesWorld, iptables: Run, shell: Run) -> None:
    iptables("iptables-restore --noflush", OLD)
    shell("ipset create KPROXY-4-OLD hash:ip")
    ok(world.node.restart(cluster=everything(world)))
    assert "OLD" not in iptables("iptables-save") + shell("ipset save")
    see_everything(world)
