"""A restart reads what is there; what others did is noticed and repaired, and only that; what is not ours is not touched."""

from collections.abc import Callable, Iterator

import pytest
from attrs import evolve

from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.model.changes import WatchedObject
from kproxy_core.plugin.backend import SyncReport
from kproxy_core.testing.conformance.lasting import all_alive, held
from kproxy_core.testing.lab import hold
from kproxy_core.wire.nfnetlink import Family
from kproxy_core.wire.nft_constants import DataType
from kproxy_core.wire.nft_elements import Element
from kproxy_core.wire.nft_expressions import Immediate
from kproxy_core.wire.nft_objects import Chain, DumpedRule, Set, Table
from kproxy_core.wire.nft_operations import add, delete
from kproxy_nftables import scaffold, sets
from kproxy_nftables.objects import TABLE, number

from .strangers import DEEDS, Stranger
from .world import EVERYWHERE, TCP, World, everything, see_everything

# Where tables can be held nobody else can do any of this to them while we live.
pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("an_older_kernel")]

Nft = Callable[..., str]

CNI = "table %s cni { chain c { type nat hook postrouting priority 90; meta mark 0xc0ffee masquerade; }; }\n"

ANEW = ("table lost", "set of another shape", "set lost", "catch-all element")
"""After these a table is made from scratch, or nearly so."""

FOREIGN = """
table inet kproxy-nftables {
    chain c { type filter hook forward priority 10; ip saddr 203.0.113.99 counter accept comment "not ours"; }
}
table ip kproxy-nftables-2 {
    map m {
        type ipv4_addr : verdict
        elements = { 10.0.0.1 : drop }
    }
}
table ip nat {
    chain POSTROUTING { type nat hook postrouting priority srcnat; ip daddr 203.0.113.0/24 masquerade; }
}
table ip6 raw {
    set s {
        type ipv6_addr
        flags interval
        elements = { 2001:db8:99::/48 }
    }
}
table bridge kproxy-nftables {
    chain c { }
}
table arp kproxy {
    chain c { }
}
"""


@pytest.fixture
def stranger(shared_world: World) -> Iterator[Stranger]:
    """Another process' socket."""
    with shared_world.lab.node.enter():
        socket = NftSocket()
    with socket:
        yield Stranger(socket)


def handles(stranger: Stranger) -> dict[tuple[object, ...], object]:
    """What tells whether an object is still the same one and not just alike."""
    found: dict[tuple[object, ...], object] = {}
    for family in (Family.IPV4, Family.IPV6):
        found.update({(family, "chain", each.name): each.handle for each in stranger.nft.chains(family, TABLE)})
        found.update({(family, "set", each.name): each.handle for each in stranger.nft.sets(family, TABLE)})
        found.update({(family, "rule", each.handle): each.chain for each in stranger.nft.rules(family, TABLE)})
    found.update({("table", each.family, each.name): each.handle for each in stranger.nft.tables()})
    return found


def ok(report: SyncReport | None) -> SyncReport:
    """The report of a sync that did all it had to."""
    assert report is not None
    assert report.ok, report
    return report


@pytest.fixture(scope="module")
def full(shared_world: World) -> World:
    """The module's world with everything in it, for tests that leave it as they found it."""
    shared_world.reset()
    ok(shared_world.node.set(*everything(shared_world)))
    return shared_world


# -- restarts


def test_a_second_sync_and_a_restart_do_nothing(world: World, stranger: Stranger) -> None:
    ok(world.node.set(*everything(world)))
    see_everything(world)
    before, there = world.node.dataplane.read(), handles(stranger)
    generation = stranger.nft.generation()
    assert ok(world.node.check()).operations == 0
    assert ok(world.node.restart()).operations == 0
    assert stranger.nft.generation() == generation
    assert world.node.dataplane.read() == before
    assert handles(stranger) == there


def test_d30_a_restart_changes_what_has_changed_meanwhile_and_keeps_ids_and_slots(world: World) -> None:
    service = world.cluster.service("web", 11)
    for hosts in ("a1 a2 b1", "a2 b1", "a2 b1 b2 abr1", "b2 abr1", "b2 abr1 a1"):  # slots in an order of their own
        world.node.set(service, world.cluster.service("other", 12), *world.cluster.endpoints("web", hosts))
    before = world.node.dataplane.read()
    connection = hold(world.lab.outside, world.cluster.cluster(11).ipv4, 80)
    world.node.restart()
    assert world.node.reports[-1].operations == 0
    # Meanwhile one Service goes, one comes: only these are touched.
    objects: tuple[WatchedObject, ...] = (
        service,
        world.cluster.service("third", 13),
        *world.cluster.endpoints("web", "b2 abr1 a1"),
    )
    ok(world.node.set(*objects))
    world.node.restart()
    after = world.node.dataplane.read()
    kept = {key: fragment for key, fragment in before.fragments.items() if key.name.name == "web"}
    assert kept
    assert {key: after.fragments[key] for key in kept} == kept
    assert connection.alive(10)
    connection.close()


def test_a_restart_with_other_settings_changes_chains_alone(world: World) -> None:
    ok(world.node.set(*everything(world)))
    before = world.node.dataplane.read()
    ok(world.node.restart(evolve(world.defaults, masquerade_bit=3)))
    after = world.node.dataplane.read()
    changed = {key for key, value in before.common.items() if after.common.get(key) != value}
    assert changed
    assert all(place.endswith(" chain") for place, _ in changed)
    assert after.fragments == before.fragments
    see_everything(world)


# -- repairs


@pytest.mark.parametrize("deed", DEEDS)
def test_what_others_did_is_repaired_and_nothing_else(full: World, stranger: Stranger, deed: str) -> None:
    """By the process that made it all, which notices, and by a new one, which just reads."""
    canonical, before, there = full.node.backend.canonical, full.node.dataplane.read(), handles(stranger)
    for repair in (full.node.notice, full.node.restart):
        stranger.commit(DEEDS[deed](stranger))
        report = ok(repair())
        assert report.drifted > 0 or repair == full.node.restart
        assert not full.node.difference()
        assert canonical(full.node.dataplane.read()) == canonical(before)
        if deed not in ANEW:
            assert report.operations < 40, "not everything anew"
            untouched = {key for key in there if Family.IPV6 in key or key[0] == "table"}
            assert {key: there[key] for key in untouched}.items() <= handles(stranger).items()
    assert ok(full.node.check()).operations == 0


@pytest.mark.parametrize(
    "deed", ["services emptied", "policy drop", "foreign map", "table lost", "set of another shape", "owner renamed"]
)
def test_traffic_is_as_before_after_a_repair(world: World, stranger: Stranger, deed: str) -> None:
    ok(world.node.set(*everything(world)))
    stranger.commit(DEEDS[deed](stranger))
    ok(world.node.notice())
    see_everything(world)


@pytest.mark.parametrize("rule", ["meta mark { 0, 1 } drop", "meta l4proto vmap { tcp : goto theirs, udp : drop }", "counter"])
def test_foreign_rules_with_what_belongs_to_them(full: World, nft: Nft, rule: str) -> None:
    nft("add", "chain", "ip", "kproxy-nftables", "theirs")
    for chain in ("theirs", "output", "refuse"):
        nft(
            "insert",
            "rule",
            "ip",
            "kproxy-nftables",
            chain,
            *rule.replace("goto theirs", "accept" if chain == "theirs" else "goto theirs").split(),
        )
    assert ok(full.node.notice()).drifted == 3
    assert not full.node.difference()
    assert "theirs" not in nft("list", "table", "ip", "kproxy-nftables")


STRANGE = """
add counter ip kproxy-nftables theirs
add quota ip kproxy-nftables theirs over 25 mbytes
add limit ip6 kproxy-nftables theirs rate 400/minute
add counter ip6 kproxy-nftables theirs
add map ip6 kproxy-nftables their-counters { type mark : counter; }
add element ip6 kproxy-nftables their-counters { 1 : "theirs" }
insert rule ip kproxy-nftables output counter name theirs
insert rule ip kproxy-nftables refuse quota name theirs
insert rule ip6 kproxy-nftables prerouting counter name meta mark map @their-counters
"""


def test_what_a_table_of_ours_never_has_is_removed(world: World, nft: Nft) -> None:
    """Counters, quotas and limits by name, and what refers to them."""
    ok(world.node.set(*everything(world)))
    before = nft("list", "ruleset")
    for repair in (world.node.notice, world.node.restart):
        nft("-f", "-", stdin=STRANGE)
        report = ok(repair())
        assert report.drifted == 8 or repair == world.node.restart
        assert nft("list", "ruleset") == before
    assert not world.node.difference()


def test_a_flowtable_is_removed(world: World, stranger: Stranger, nft: Nft) -> None:
    ok(world.node.set(*everything(world)))
    flowtable = "add flowtable ip kproxy-nftables theirs { hook ingress priority 0; }"
    if world.lab.node.run(["nft", flowtable], check=False).returncode:
        pytest.skip("this kernel has no flowtables (CONFIG_NF_FLOW_TABLE)")
    assert ok(world.node.notice()).drifted == 1
    assert not stranger.nft.flowtables(Family.IPV4, TABLE)


def test_one_lost_element_takes_one_operation(world: World, stranger: Stranger) -> None:
    ok(world.node.set(*everything(world)))
    there = handles(stranger)
    for deed in ("element lost from endpoints", "stray element in endpoints", "element lost from hairpin"):
        stranger.commit(DEEDS[deed](stranger))
        assert ok(world.node.notice()).operations == 1
    assert handles(stranger) == there


def test_several_deeds_at_once(world: World, stranger: Stranger) -> None:
    ok(world.node.set(*everything(world)))
    canonical, before = world.node.backend.canonical, world.node.dataplane.read()
    for deed in (
        "owner renamed",
        "foreign map",
        "actions emptied",
        "policy drop",
        "rules reordered",
        "an action's chain emptied",
    ):
        stranger.commit(DEEDS[deed](stranger))
    report = world.node.notice()
    assert report is not None
    assert report.ok
    assert canonical(world.node.dataplane.read()) == canonical(before)
    see_everything(world)


def test_d25_d26_flush_ruleset_is_repaired_and_connections_live_on(world: World, nft: Nft) -> None:
    ok(world.node.set(*everything(world)))
    with held(world, 201) as connections:
        nft("flush", "ruleset")
        report = ok(world.node.notice())
        assert "nft" in report.culprit
        assert all_alive(connections)
    see_everything(world)


def test_a_change_that_meets_a_flush_is_no_fault_of_its_service(world: World, stranger: Stranger) -> None:
    """The change comes before the flush is noticed, and the kernel refuses it; nobody is to blame for that."""
    ok(world.node.set(*everything(world)))
    tables = [table for table in stranger.nft.tables() if table.name == TABLE]
    stranger.commit([delete(table) for table in tables])
    world.node.put(*world.cluster.endpoints("plain", "a1 b1 b2"))
    assert not world.node.play.engine.quarantine.refusals
    assert not world.node.difference()
    world.see(world.ask(EVERYWHERE, world.cluster.cluster(201), protocols=TCP).answered("a1 b1 b2"))


def test_somebody_adds_what_we_are_about_to_add(world: World, stranger: Stranger) -> None:
    """The kernel says EEXIST, by no fault of the Service: it is looked at again, and put right."""
    web = world.number()
    world.node.set(world.cluster.service("web", web), *world.cluster.endpoints("web", "a1"))
    fragment = next(f for key, f in world.node.play.engine.program.fragments.items() if key.family.bits == 32)
    element = Element(key=number(fragment.id) + number(1), data=b"\x0a\x09\x09\x09\x00\x09\x00\x00")
    stranger.commit(stranger.codec(sets.ENDPOINTS).add_elements([element]))
    stranger.commit(stranger.codec(sets.CLUSTER_IPS).add_keys([b"\x0a\x60\xee\xee"]))
    world.node.put(*world.cluster.endpoints("web", "a1 b1"))
    assert not world.node.play.engine.quarantine.refusals
    assert not world.node.difference()
    asked = world.ask("a2 outside", world.cluster.cluster(web), protocols=TCP, times=5)
    world.see(asked.answered("a1 b1"))


def test_changes_of_others_to_their_own_tables_are_no_drift(world: World, stranger: Stranger) -> None:
    ok(world.node.set(*everything(world)))
    theirs = Table(family=Family.IPV4, name="theirs")
    stranger.commit([add(theirs)])
    report = world.node.notice()
    assert report is None or (report.drifted == 0 and report.operations == 0)
    stranger.commit([delete(theirs)])


# -- what is not ours


def test_foreign_tables_are_not_touched_by_a_single_byte(world: World, nft: Nft, stranger: Stranger) -> None:
    nft("-f", "-", stdin=FOREIGN)
    tables = [("inet", "kproxy-nftables"), ("ip", "kproxy-nftables-2"), ("ip", "nat"), ("ip6", "raw")]
    tables += [("bridge", "kproxy-nftables"), ("arp", "kproxy")]

    def listed() -> list[str]:
        return [nft("-a", "list", "table", *table) for table in tables]

    before = listed()
    try:
        ok(world.node.set(*everything(world)))
        for deed in ("foreign map", "table lost", "set of another shape"):
            stranger.commit(DEEDS[deed](stranger))
            ok(world.node.notice())
        ok(world.node.restart())
        assert listed() == before
        assert len(world.node.dataplane.leftovers().lines) == 2
        assert len(world.node.dataplane.cleanup().lines) == 2
        assert listed() == before
        ok(world.node.check())
        assert not world.node.difference()
        assert listed() == before
    finally:
        for table in tables:
            nft("delete", "table", *table)


def test_o5_o6_cleanup_leaves_nothing_whatever_is_in_our_tables(world: World, stranger: Stranger) -> None:
    ok(world.node.set(*everything(world)))
    for deed in ("foreign map", "foreign base chain", "catch-all element", "table dormant", "owner renamed"):
        stranger.commit(DEEDS[deed](stranger))
        assert world.node.dataplane.cleanup()
        assert not [table for table in stranger.nft.tables() if table.name == TABLE]
        assert not world.node.dataplane.leftovers()
        assert not world.node.dataplane.cleanup(), "nothing there is no error"
        world.node.restart()
    world.see(world.ask(EVERYWHERE, world.cluster.cluster(201), protocols=TCP).answered("a1 b1"))


def test_o8_established_connections_survive_a_cleanup(world: World, nft: Nft) -> None:
    """As long as anybody translates: with the last rule that does, the kernel stops to translate what is established, too."""
    nft("-f", "-", stdin="".join(CNI % family for family in ("ip", "ip6")))
    ok(world.node.set(*everything(world)))
    with held(world, 201) as connections:
        world.node.dataplane.cleanup()
        assert all_alive(connections)
    world.see(world.ask("a2 outside", world.cluster.cluster(201), protocols=TCP).dropped())
    for family in ("ip", "ip6"):
        nft("delete", "table", family, "cni")


# -- versions


@pytest.mark.parametrize("change", ["priority", "set", "rules", "more sets"])
def test_d35_another_version_is_migrated_in_one_transaction(
    world: World, stranger: Stranger, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    with monkeypatch.context() as older:
        if change == "priority":
            older.setattr(scaffold, "_DSTNAT", -90)
        elif change == "set":
            older.setattr(sets, "AFFINITY_SIZE", 4096)
        elif change == "rules":
            older.setattr(scaffold, "_unserved", lambda family, cidrs: ())
        else:
            ours = sets._sets
            old = Set(family=Family.IPV4, table=TABLE, name="old", key_type=DataType.MARK, key_length=4)
            older.setattr(sets, "_sets", lambda family: (*ours(family), evolve(old, family=Family(family))))
        world.node.restart()
        ok(world.node.set(*everything(world)))
    world.see(world.ask(EVERYWHERE, world.cluster.cluster(206)).answered("a1 a2 b1"))
    connection = hold(world.lab.outside, world.cluster.cluster(201).ipv4, 80)
    generation, clients = stranger.nft.generation(), len(stranger.elements("affinity"))
    assert clients
    ok(world.node.restart())
    assert stranger.nft.generation() == generation + 1
    assert not world.node.difference()
    if change != "set":
        assert len(stranger.elements("affinity")) == clients, "nobody is forgotten"
    assert connection.alive(10)
    connection.close()
    see_everything(world)


# -- families


def test_s59_the_families_are_independent(world: World, stranger: Stranger) -> None:
    """What happens to the IPv6 table leaves that of IPv4 as it is, object by object."""
    ok(world.node.set(*everything(world)))
    ours = {key: value for key, value in handles(stranger).items() if Family.IPV4 in key}
    stranger.commit([delete(Table(family=Family.IPV6, name=TABLE))])
    assert ok(world.node.notice()).drifted > 0
    assert ours.items() <= handles(stranger).items()
    see_everything(world)


def test_objects_read_back_say_the_same_as_before(world: World, stranger: Stranger) -> None:
    """Nothing of ours looks different when the kernel tells it: no constant that it fills in, no order that it changes."""
    ok(world.node.set(*everything(world)))
    for family in (Family.IPV4, Family.IPV6):
        rules = stranger.nft.rules(family, TABLE)
        assert all(isinstance(rule, DumpedRule) and rule.decoded() for rule in rules)
        assert any(isinstance(expression, Immediate) for rule in rules for expression in rule.decoded())
        assert all(isinstance(chain, Chain) for chain in stranger.nft.chains(family, TABLE))
    assert not world.node.difference()
