"""What is found on a node is judged: what is amiss, how bad it is, and what to do."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from kproxy_core.cli.findings import finding_document, finding_lines, state
from kproxy_core.kernel.writer_lock import Peer
from kproxy_core.plugin.backend import Finding
from kproxy_core.runtime.node_checks import FEWEST_TRACKED, NodeFacts, node_findings

GOOD = NodeFacts(
    ipv4_forwarding=1,
    ipv6_forwarding=1,
    bridges=("cbr0",),
    bridge_netfilter={"iptables": 1, "ip6tables": 1},
    rp_filter={"eth0": 0, "eth1": 2},
    conntrack_max=262144,
    conntrack_count=17,
)


def by_name(facts: NodeFacts) -> Mapping[str, Finding]:
    """The findings, by what they are about."""
    return {finding.name: finding for finding in node_findings(facts)}


def test_a_good_node_has_nothing_amiss() -> None:
    findings = node_findings(GOOD)
    assert all(finding.ok for finding in findings)
    assert len({finding.name for finding in findings}) == len(findings) == 9


@pytest.mark.parametrize(
    ("changed", "name", "told", "remedy"),
    [
        ({"net_admin": False}, "CAP_NET_ADMIN", "may not change", "run as root"),
        ({"ipv4_forwarding": 0}, "net.ipv4.ip_forward", "not forwarded", "sysctl -w net.ipv4.ip_forward=1"),
        ({"ipv6_forwarding": 0}, "net.ipv6.conf.all.forwarding", "not forwarded", "sysctl -w net.ipv6.conf.all.forwarding=1"),
        ({"ipv6_on": False}, "IPv6", "IPv4 only", "disable_ipv6=0"),
        (
            {"bridge_netfilter": {"iptables": None, "ip6tables": None}},
            "br_netfilter",
            "(cbr0)",
            "modprobe br_netfilter, then sysctl -w net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1",
        ),
        (
            {"bridge_netfilter": {"iptables": 1, "ip6tables": 0}},
            "br_netfilter",
            "(cbr0)",
            "sysctl -w net.bridge.bridge-nf-call-ip6tables=1",
        ),
        ({"rp_filter": {"eth1": 1, "eth0": 1}}, "rp_filter", "strict on eth0, eth1", "rp_filter=2"),
        ({"conntrack_max": None}, "nf_conntrack", "not loaded", "modprobe nf_conntrack"),
        ({"conntrack_count": 262000}, "nf_conntrack", "new connections are dropped", "nf_conntrack_max=524288"),
        ({"conntrack_max": 65536}, "nf_conntrack", "17 of 65536", f"nf_conntrack_max={FEWEST_TRACKED}"),
        ({"holder": Peer(pid=7, uid=0)}, "another kproxy", "process 7", "stop it"),
        ({"holder": Peer(pid=0, uid=0)}, "another kproxy", "in a container", "stop it"),
        ({"rivals": ("kube-proxy runs here (process 9)",)}, "kube-proxy", "process 9", "kube-proxy --cleanup"),
    ],
)
def test_what_is_amiss_is_told_with_the_remedy(changed: dict[str, Any], name: str, told: str, remedy: str) -> None:
    findings = by_name(attrs.evolve(GOOD, **changed))
    amiss = {finding.name for finding in findings.values() if not finding.ok}
    assert amiss == {name}
    assert told in findings[name].message
    assert remedy in findings[name].remedy


def test_only_the_right_to_change_the_kernel_is_indispensable() -> None:
    fatal = {finding.name for finding in node_findings(NodeFacts(net_admin=False)) if finding.fatal and not finding.ok}
    assert fatal == {"CAP_NET_ADMIN"}


def test_ipv6_forwarding_does_not_matter_without_ipv6() -> None:
    assert "net.ipv6.conf.all.forwarding" not in by_name(attrs.evolve(GOOD, ipv6_on=False, ipv6_forwarding=0))


def test_bridge_netfilter_does_not_matter_without_bridges() -> None:
    assert "br_netfilter" not in by_name(attrs.evolve(GOOD, bridges=(), bridge_netfilter={"iptables": None}))


def test_findings_have_three_states() -> None:
    assert state(Finding(name="x", ok=True, message="")) == "ok"
    assert state(Finding(name="x", ok=False, message="", fatal=False)) == "warning"
    assert state(Finding(name="x", ok=False, message="")) == "missing"


def test_findings_are_shown_with_the_remedy_below() -> None:
    findings = [Finding(name="good", ok=True, message="fine"), Finding(name="b", ok=False, message="bad", remedy="mend it")]
    assert list(finding_lines(findings)) == [
        "  \x1b[32mok     \x1b[0m good  fine",
        "  \x1b[31mmissing\x1b[0m b     bad",
        "                \x1b[1mremedy:\x1b[0m mend it",
    ]


def test_one_remedy_for_several_findings_is_told_once() -> None:
    findings = [Finding(name=name, ok=False, message="bad", remedy="run as root") for name in "abc"]
    lines = list(finding_lines([*findings, Finding(name="d", ok=True, message="")]))
    assert [index for index, line in enumerate(lines) if "run as root" in line] == [3]


def test_findings_as_json() -> None:
    assert finding_document(Finding(name="x", ok=False, message="bad", remedy="mend it", fatal=False)) == {
        "name": "x",
        "state": "warning",
        "message": "bad",
        "remedy": "mend it",
    }
