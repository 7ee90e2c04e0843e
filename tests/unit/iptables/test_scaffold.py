"""What is there once per node, by what the operator has chosen."""

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.model.addresses import Family, Network, parse_address, parse_network
from kproxy_core.model.state import LocalByInterface, LocalByNetwork, LocalDetector, NodeContext
from kproxy_iptables.objects import ROUTE_LOCALNET, SETTING, Key, Value
from kproxy_iptables.plugin import features_of, kproxy_backend
from kproxy_iptables.scaffold import Features, scaffold

MARK = "-j MARK --set-xmark 0x4000/0x4000"
TO_CLUSTER = "-m set --match-set KPROXY-4-CLUSTER-IPS dst"
LOOPBACK = (parse_network("127.0.0.0/8"), parse_network("::1/128"))
PODS = "10.244.0.0/16", "10.245.0.0/16", "fd00:244::/48"


def rules(made: dict[Key, Value], chain: str, table: str = "nat", version: str = "v4") -> tuple[str, ...]:
    value = made.get((f"{version} {table} chain", chain), ())
    assert isinstance(value, tuple)
    return value


def networks(*texts: str) -> LocalByNetwork:
    return LocalByNetwork(tuple(map(parse_network, texts)))


@pytest.mark.parametrize(
    ("detector", "version", "expected"),
    [
        pytest.param(networks(PODS[0]), "v4", f"! -s 10.244.0.0/16 {TO_CLUSTER} {MARK}", id="one network"),
        pytest.param(networks(PODS[0], PODS[1]), "v4", f"{TO_CLUSTER} -j KPROXY-MARK-OTHERS", id="two networks"),
        pytest.param(networks("0.0.0.0/0"), "v4", f"{TO_CLUSTER} -j KPROXY-MARK-OTHERS", id="every address"),
        pytest.param(LocalByInterface("cni0"), "v4", f"! -i cni0 {TO_CLUSTER} {MARK}", id="an interface"),
        pytest.param(LocalByInterface("veth", prefix=True), "v4", f"! -i veth+ {TO_CLUSTER} {MARK}", id="several"),
        pytest.param(None, "v4", "-j KPROXY-SERVICES", id="unknown"),
        pytest.param(networks(PODS[2]), "v4", "-j KPROXY-SERVICES", id="the other family's networks tell nothing"),
    ],
)
def test_who_is_masqueraded_to_cluster_addresses(detector: LocalDetector, version: str, expected: str) -> None:
    made = scaffold(NodeContext(local_detector=detector), Features())
    for chain in ("KPROXY-PREROUTING", "KPROXY-OUTPUT"):
        assert rules(made, chain, version=version)[0] == expected


def test_several_pod_networks_take_a_chain() -> None:
    made = scaffold(NodeContext(local_detector=networks(*PODS)), Features())
    assert rules(made, "KPROXY-MARK-OTHERS") == ("-s 10.244.0.0/16 -j RETURN", "-s 10.245.0.0/16 -j RETURN", MARK)
    everywhere = scaffold(NodeContext(local_detector=networks("0.0.0.0/0")), Features())
    assert rules(everywhere, "KPROXY-MARK-OTHERS") == ("-j RETURN", MARK)


def test_masquerade_all() -> None:
    node = NodeContext(local_detector=networks(PODS[0]), masquerade_all=True, masquerade_bit=5)
    assert rules(scaffold(node, Features()), "KPROXY-OUTPUT")[0] == f"{TO_CLUSTER} -j MARK --set-xmark 0x20/0x20"


def test_d28_the_mark_is_taken_off_before_masquerading() -> None:
    made = rules(scaffold(NodeContext(), Features()), "KPROXY-POSTROUTING")
    assert made[1:] == (
        "-m mark ! --mark 0x4000/0x4000 -j RETURN",
        "-j MARK --set-xmark 0x0/0x4000",
        "-j MASQUERADE --random-fully",
    )
    assert rules(scaffold(NodeContext(), Features(random_fully=False)), "KPROXY-POSTROUTING")[-1] == "-j MASQUERADE"


def test_node_ports_of_every_address() -> None:
    node = NodeContext(node_port_any=True, loopback_node_ports=LOOPBACK)
    made = scaffold(node, Features())
    assert rules(made, "KPROXY-PREROUTING")[-1] == "! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j KPROXY-NODEPORTS"
    assert rules(made, "KPROXY-OUTPUT")[-1] == "-m addrtype --dst-type LOCAL -j KPROXY-NODEPORTS"
    for chain in ("KPROXY-PREROUTING", "KPROXY-OUTPUT"):
        last = rules(made, chain, version="v6")[-1]
        assert last == "! -d ::1/128 -m addrtype --dst-type LOCAL -j KPROXY-NODEPORTS", "never ::1"


def test_x1_loopback_is_guarded_and_opened_only_if_it_is_wanted() -> None:
    guard = "-d 127.0.0.0/8 ! -i lo -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"
    wanted = NodeContext(node_port_any=True, loopback_node_ports=LOOPBACK)
    made = scaffold(wanted, Features())
    assert rules(made, "KPROXY-INPUT", "filter")[:2] == (guard, guard.replace("-d", "-s"))
    assert "-s 127.0.0.0/8 -j DROP" in rules(made, "KPROXY-FORWARD", "filter")
    assert made[SETTING, ROUTE_LOCALNET] == "1"
    for node, features in ((wanted, Features(localhost_node_ports=False)), (NodeContext(node_port_any=True), Features())):
        made = scaffold(node, features)
        assert len(rules(made, "KPROXY-INPUT", "filter")) == 1
        assert "-s 127.0.0.0/8 -j DROP" not in rules(made, "KPROXY-FORWARD", "filter")
        assert (SETTING, ROUTE_LOCALNET) not in made
        assert rules(made, "KPROXY-OUTPUT")[-1].startswith("! -d 127.0.0.0/8 ")


@pytest.mark.parametrize(
    ("loopback", "own"),
    [
        ((), ("-d 192.0.2.1/32",)),
        ((parse_network("127.0.0.1/32"),), ("-d 192.0.2.1/32", "-d 127.0.0.1/32")),
        (LOOPBACK, ("-d 192.0.2.1/32", "-d 127.0.0.0/8")),
    ],
)
def test_node_ports_of_chosen_addresses(loopback: tuple[Network, ...], own: tuple[str, ...]) -> None:
    addresses = (parse_address("192.0.2.1"), parse_address("2001:db8::1"))
    made = scaffold(NodeContext(node_port_addresses=addresses, loopback_node_ports=loopback), Features())
    assert rules(made, "KPROXY-PREROUTING")[1:] == ("-d 192.0.2.1/32 -j KPROXY-NODEPORTS",)
    assert rules(made, "KPROXY-OUTPUT")[1:] == tuple(f"{match} -j KPROXY-NODEPORTS" for match in own)
    firewall = rules(made, "KPROXY-FIREWALL", "filter")
    assert [rule for rule in firewall if rule.endswith("-NP")] == [f"{match} -j KPROXY-FIREWALL-NP" for match in own]
    assert rules(made, "KPROXY-OUTPUT", version="v6")[1:] == ("-d 2001:db8::1/128 -j KPROXY-NODEPORTS",)


def test_packets_that_conntrack_calls_invalid() -> None:
    drop = "-m conntrack --ctstate INVALID -j DROP"
    assert drop in rules(scaffold(NodeContext(), Features()), "KPROXY-FORWARD", "filter")
    assert drop not in rules(scaffold(NodeContext(), Features(drop_invalid=False)), "KPROXY-FORWARD", "filter")


def test_frontends_that_are_their_own_endpoints_are_let_through_for_whom_they_are_forwarded() -> None:
    made = scaffold(NodeContext(local_detector=networks(PODS[0])), Features())
    firewall = rules(made, "KPROXY-FIREWALL", "filter")
    leading = "-m set --match-set KPROXY-4-SELF dst,dst -g KPROXY-FIREWALL-SELF"
    drop = "-m set --match-set KPROXY-4-DROP dst,dst -j DROP"
    assert firewall.index(leading) == firewall.index(drop) - 1
    inside = ("-s 10.244.0.0/16 -j RETURN", "-m addrtype --src-type LOCAL -j RETURN")
    assert rules(made, "KPROXY-FIREWALL-SELF", "filter") == (*inside, drop)


def test_unallocated_addresses_are_dropped_last() -> None:
    node = NodeContext(service_cidrs=(parse_network("10.96.0.0/12"), parse_network("fd00:96::/112")))
    made = scaffold(node, Features())
    assert rules(made, "KPROXY-FIREWALL", "filter")[-2:] == (f"{TO_CLUSTER} -j KPROXY-REFUSE", "-d 10.96.0.0/12 -j DROP")
    assert rules(made, "KPROXY-FIREWALL", "filter", "v6")[-1] == "-d fd00:96::/112 -j DROP"


def test_a_family_that_the_node_has_not() -> None:
    made = scaffold(NodeContext(), Features(families=frozenset({Family.IPV4})))
    assert not [key for key in made if key[0].startswith("v6") or str(key[1]).startswith("KPROXY-6")]


def test_the_operators_options() -> None:
    assert features_of(Settings()) == Features()
    options = {"iptables.localhostNodePorts": "false", "conntrack.tcpBeLiberal": "true"}
    assert features_of(Settings(mode_options=options)) == Features(localhost_node_ports=False, drop_invalid=False)
    assert kproxy_backend(mode="nftables", settings=Settings()) is None
    assert kproxy_backend(mode="iptables", settings=Settings()) is not None
