"""Whole files: all problems at once and in order, near matches, what is no YAML, JSON, kubeadm's file."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.config.kubeproxy import API_VERSION, KIND, KubeProxyConfiguration
from kproxy_core.config.load import LARGEST, Loaded, load, load_bytes, settings_from
from kproxy_core.config.positions import field_paths
from kproxy_core.config.settings import DetectLocalMode, NodePortScope
from kproxy_core.model.addresses import parse_address, parse_network

from .fields import LEAVES, Leaf
from .test_every_field import HEAD, value_at, written

KUBEADM = (Path(__file__).parent / "kubeadm.yaml").read_text()


def told(loaded: Loaded) -> list[tuple[int, str]]:
    """Lines and fields of all problems."""
    return [(problem.line, problem.field) for problem in loaded.problems]


def only_message(text: str) -> str:
    (problem,) = load(text).problems
    return problem.message


def test_kubeadms_file_is_good_and_means_the_defaults() -> None:
    loaded = load(KUBEADM)
    assert loaded.problems == ()
    assert loaded.configuration.client_connection.kubeconfig == "/var/lib/kube-proxy/kubeconfig.conf"
    changed = {leaf.path for leaf in LEAVES if f"{leaf.path.rpartition('.')[2]}:" not in KUBEADM}
    assert changed <= {"featureGates", "logging.format", "logging.vmodule", "windowsRunAsService"} | {
        path for path in field_paths(KubeProxyConfiguration) if path.endswith("splitStream")
    }
    ours, default = settings_from(loaded.configuration, "node"), settings_from(load(HEAD).configuration, "node")
    # Zero is at once, as the field's description has it.
    assert (ours.min_sync_period, default.min_sync_period) == (0.0, 1.0)
    assert ours.cluster_cidrs == (parse_network("10.244.0.0/16"),)
    assert ours.sync_period == default.sync_period == 30.0
    assert loaded.configuration.conntrack == load(HEAD).configuration.conntrack
    assert loaded.configuration.client_connection.qps == 5.0


def test_json_is_good_too() -> None:
    document = yaml.safe_load(KUBEADM)
    for text in (json.dumps(document), json.dumps(document, indent="\t")):
        loaded = load(text)
        assert loaded.problems == ()
        assert loaded.configuration == load(KUBEADM).configuration


def test_everything_wrong_is_told_at_once_in_the_order_of_the_lines() -> None:
    text = f"""\
kind: {KIND}
apiVersion: kubeproxy.config.k8s.io/v1beta1
mod: nftables
iptables:
  syncPeriod: 30
  masqueradeBit: 99
  syncperiod: 5s
ipvs: []
iptables:
  masqueradeAll: true
oomScoreAdj: 5000
nodePortAddresses:
  - 10.0.0.0/8
  - everywhere
featureGates:
  NFTablesProxyMode: true
  Nonsense: true
udpIdleTimeout: 250ms
"""
    loaded = load(text)
    assert told(loaded) == [
        (2, "apiVersion"),
        (3, "mod"),
        (5, "iptables.syncPeriod"),
        (6, "iptables.masqueradeBit"),
        (7, "iptables.syncperiod"),
        (8, "ipvs"),
        (9, "iptables"),
        (11, "oomScoreAdj"),
        (14, "nodePortAddresses[1]"),
        (17, "featureGates.Nonsense"),
        (18, "udpIdleTimeout"),
    ]
    assert [problem.line for problem in loaded.problems if not problem.fatal] == [17, 18]
    assert loaded.problems[6].message == "given twice, first in line 4"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("mod: nftables", "no field of the file; did you mean mode?"),
        ("Mode: nftables", "did you mean mode?"),
        ("clustercidr: 10.0.0.0/8", "did you mean clusterCIDR?"),
        ("clusterCidrs: 10.0.0.0/8", "did you mean clusterCIDR?"),
        ("hostname-override: a", "did you mean hostnameOverride?"),
        ("iptables: {masqeradeAll: true}", "no field of iptables; did you mean masqueradeAll?"),
        ("ipvs: {masqueradeBit: 1}", "did you mean iptables.masqueradeBit or nftables.masqueradeBit?"),
        ("scheduler: rr", "did you mean ipvs.scheduler?"),
        ("kubeconfig: /etc/x", "did you mean clientConnection.kubeconfig?"),
        ("logging: {options: {text: {zzz: 1}}}", "no field of logging.options.text (there are: infoBufferSize, splitStream)"),
        ("zzzzzz: 1", "no field of the file (there are: apiVersion, bindAddress, "),
    ],
)
def test_an_unknown_field_is_told_with_what_was_probably_meant(line: str, hint: str) -> None:
    assert hint in only_message(f"{HEAD}{line}\n")


def test_what_older_versions_had_is_told_and_harmless() -> None:
    loaded = load(f"{HEAD}udpIdleTimeout: 250ms\nresourceContainer: /kube-proxy\n")
    assert loaded.usable
    assert [problem.message.partition(":")[0] for problem in loaded.problems] == ["no longer a field"] * 2


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "the file is empty"),
        ("# only a comment\n", 1, "the file is empty"),
        ("---\n---\n", 1, "the file is empty"),
        ("null\n", 1, "the file is empty"),
        ("just words\n", 1, "a section with fields is expected here"),
        ("- a\n- b\n", 1, "a section with fields is expected here"),
        (f"{HEAD}mode: [a\n", 3, "this is no YAML: "),
        (f"{HEAD}mode: 'a\n", 3, "this is no YAML: "),
        (f"{HEAD}a: b: c\n", 3, "this is no YAML: "),
        (f"{HEAD}iptables:\n\tsyncPeriod: 1s\n", 4, "indent with blanks, not with tabs"),
        (f"{HEAD}mode: a\0b\n", 3, "this is no YAML: control characters"),
        (f"{HEAD}mode: *nothing\n", 3, "this is no YAML: found undefined alias"),
        ("[" * 5000, 1, "this is no YAML: "),
        ("{" * 5000, 1, "this is no YAML: "),
        (f"{HEAD}---\n{HEAD}", 4, "one document is expected, and another one begins here"),
        (f"{HEAD}? [a]\n: b\n", 3, "the name of a field is expected here"),
        (f"{HEAD}bindAddress: ::\n", 3, "this is no YAML: "),
    ],
)
def test_what_is_no_configuration_at_all_is_told_with_its_line(text: str, line: int, message: str) -> None:
    problem = load(text).problems[0]
    assert message in problem.text
    assert problem.line == line
    assert problem.fatal


@pytest.mark.parametrize(
    "text", [f"---\n{HEAD}", f"{HEAD}---\n", f"---\n{HEAD}---\n# nothing\n", f"{HEAD}...\n", f"# x\n---\n{HEAD}"]
)
def test_empty_documents_do_no_harm(text: str) -> None:
    assert load(text).problems == ()


@pytest.mark.parametrize(
    ("head", "field", "message"),
    [
        ("kind: KubeProxyConfiguration\n", "apiVersion", "kubeproxy.config.k8s.io/v1alpha1 is expected, not ''"),
        (f"apiVersion: {API_VERSION}\n", "kind", "KubeProxyConfiguration is expected, not ''"),
        (f"apiVersion: {API_VERSION}\nkind: KubeletConfiguration\n", "kind", "not 'KubeletConfiguration'"),
        (f"apiVersion: v1\nkind: {KIND}\n", "apiVersion", "not 'v1'"),
        (f"apiVersion: 1\nkind: {KIND}\n", "apiVersion", "text is expected"),
    ],
)
def test_the_kind_of_file_is_looked_at(head: str, field: str, message: str) -> None:
    (problem,) = load(head).problems
    assert (problem.field, problem.fatal) == (field, True)
    assert message in problem.message


def test_a_file_that_is_too_large_is_not_read() -> None:
    (problem,) = load_bytes(HEAD.encode() + b"#" * LARGEST).problems
    assert problem.message == "this is no configuration: it has more than 1024 KiB"
    assert load_bytes((HEAD.encode() + b"#" * LARGEST)[:LARGEST]).usable


@pytest.mark.parametrize("data", [HEAD.encode("utf-16"), HEAD.encode() + b"mode: \xff\n"])
def test_other_encodings_are_told(data: bytes) -> None:
    (problem,) = load_bytes(data).problems
    assert "UTF-8 is expected" in problem.message
    assert problem.line == (1 if data.startswith(b"\xff") else 3)


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm() -> None:
    data = b"\xef\xbb\xbf" + HEAD.replace("\n", "\r\n").encode() + b"mode: nftables\r\nmod: x\r\n"
    loaded = load_bytes(data)
    assert loaded.configuration.mode == "nftables"
    assert told(loaded) == [(4, "mod")]


def test_an_alias_that_holds_itself_ends() -> None:
    assert "no field of logging.options" in only_message(f"{HEAD}logging: &a\n  options: *a\n")


def test_settings_are_those_of_the_section_of_the_mode() -> None:
    text = f"""{HEAD}
iptables: {{masqueradeBit: 1, masqueradeAll: true, syncPeriod: 10s, minSyncPeriod: 1s}}
ipvs: {{syncPeriod: 20s, minSyncPeriod: 2s}}
nftables: {{masqueradeBit: 3, syncPeriod: 40s, minSyncPeriod: 3s}}
"""
    found = {}
    for mode in ("", "iptables", "ipvs", "nftables", "userspace"):
        settings = settings_from(load(f"{text}mode: {mode}\n").configuration, "node")
        found[mode] = (
            settings.mode,
            settings.masquerade_bit,
            settings.masquerade_all,
            settings.sync_period,
            settings.min_sync_period,
        )
    assert found == {
        "": ("iptables", 1, True, 10.0, 1.0),
        "iptables": ("iptables", 1, True, 10.0, 1.0),
        "ipvs": ("ipvs", 1, True, 20.0, 2.0),
        "nftables": ("nftables", 3, False, 40.0, 3.0),
        "userspace": ("userspace", 1, True, 10.0, 1.0),
    }


def test_settings_carry_what_the_file_says() -> None:
    text = f"""{HEAD}
bindAddress: 10.0.0.9
clusterCIDR: 10.244.0.0/16,fd00::/56
detectLocalMode: InterfaceNamePrefix
detectLocal: {{bridgeInterface: br0, interfaceNamePrefix: veth}}
nodePortAddresses: [primary]
featureGates: {{AllowServiceExternalIPs: false}}
conntrack: {{tcpBeLiberal: true}}
ipvs: {{scheduler: mh, excludeCIDRs: [10.0.0.0/8, 11.0.0.0/8], strictARP: true, tcpTimeout: 1m}}
iptables: {{localhostNodePorts: false}}
"""
    settings = settings_from(load(text).configuration, "node")
    assert settings.node_name == "node"
    assert settings.bind_address == parse_address("10.0.0.9")
    assert settings.cluster_cidrs == (parse_network("10.244.0.0/16"), parse_network("fd00::/56"))
    assert settings.detect_local_mode is DetectLocalMode.INTERFACE_NAME_PREFIX
    assert (settings.bridge_interface, settings.interface_name_prefix) == ("br0", "veth")
    assert settings.node_port_addresses is NodePortScope.PRIMARY
    assert not settings.external_ips_allowed
    assert dict(settings.mode_options) == {
        "iptables.localhostNodePorts": "false",
        "ipvs.scheduler": "mh",
        "ipvs.excludeCIDRs": "10.0.0.0/8,11.0.0.0/8",
        "ipvs.strictARP": "true",
        "ipvs.tcpTimeout": "60",
        "ipvs.tcpFinTimeout": "0",
        "ipvs.udpTimeout": "0",
        "conntrack.tcpBeLiberal": "true",
    }


@pytest.mark.parametrize("text", ["", "bindAddress: 0.0.0.0", "bindAddress: '::'"])
def test_the_unspecified_address_overrides_nothing(text: str) -> None:
    assert settings_from(load(f"{HEAD}{text}\n").configuration, "node").bind_address is None


WORDS = st.sampled_from(
    [*(leaf.path for leaf in LEAVES), *"abc", "mode", "iptables", "'", '"', "[", "{", ":", "-", "\t", "&a", "*a", "#"]
)
TEXTS = st.lists(st.one_of(WORDS, st.text(max_size=5), st.sampled_from(["\n", "\n  ", ": ", "\r\n", "---\n"])), max_size=30)


@given(TEXTS, st.booleans())
def test_every_problem_names_a_line_that_there_is(parts: list[str], with_head: bool) -> None:
    text = (HEAD if with_head else "") + "".join(parts)
    loaded = load_bytes(text.encode("utf-8", "surrogatepass"))
    lines = max(1, len(text.splitlines()))
    assert all(1 <= problem.line <= lines for problem in loaded.problems)
    assert [problem.line for problem in loaded.problems] == sorted(problem.line for problem in loaded.problems)
    assert loaded.usable or any(problem.fatal for problem in loaded.problems)


@given(st.lists(st.sampled_from(LEAVES), unique_by=lambda leaf: leaf.path.partition(".")[0], min_size=1, max_size=8))
def test_fields_do_not_disturb_one_another(leaves: list[Leaf]) -> None:
    chosen = [leaf for leaf in leaves if leaf.path != "mode"]
    parts = (written(leaf.path, leaf.text).removeprefix(HEAD).partition("\nmode:")[0].rstrip("\n") for leaf in chosen)
    text = HEAD + "\n".join(parts)
    loaded = load(text)
    assert loaded.usable
    for leaf in chosen:
        assert value_at(loaded.configuration, leaf.path) == leaf.value
