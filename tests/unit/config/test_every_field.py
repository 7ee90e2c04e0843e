"""Every field of a KubeProxyConfiguration, by table: its default, what it takes, what it refuses and with which words."""

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from kproxy_core.config.kubeproxy import API_VERSION, KIND, KubeProxyConfiguration
from kproxy_core.config.load import load
from kproxy_core.config.positions import field_paths

from .fields import HARMLESS, LEAVES, Leaf

HEAD = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"
KEYS_OF_THE_FILE = {"apiVersion", "kind"}
LINE = 3
"""Of a top-level field behind the head."""


def written(path: str, text: str) -> str:
    """A file that sets one field; the mode is that of the section, which would be idle otherwise."""
    *sections, name = path.split(".")
    lines = [f"{'  ' * depth}{section}:" for depth, section in enumerate(sections)]
    mode = f"mode: {sections[0]}\n" if sections[:1] in (["ipvs"], ["nftables"]) else ""
    return HEAD + "\n".join([*lines, f"{'  ' * len(sections)}{name}: {text}"]) + f"\n{mode}"


def value_at(configuration: KubeProxyConfiguration, path: str) -> Any:
    """The value of a field by its name in the file."""
    value: Any = configuration
    for name in path.split("."):
        (attribute,) = [each for each in attrs.fields(type(value)) if each.metadata["key"] == name]
        value = getattr(value, attribute.name)
    return value


def wrong_values() -> Iterator[tuple[Leaf, str, str]]:
    for leaf in LEAVES:
        for text, told in leaf.wrong.items():
            if text not in HARMLESS.get(leaf.path, ()):
                yield leaf, text, told


def test_the_table_has_every_field() -> None:
    assert [leaf.path for leaf in LEAVES] == [
        path for path in field_paths(KubeProxyConfiguration) if path not in KEYS_OF_THE_FILE
    ]
    assert len(LEAVES) == 60


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.path)
def test_the_default_holds_when_nothing_is_given_or_null(leaf: Leaf) -> None:
    for loaded in (load(HEAD), load(written(leaf.path, "")), load(written(leaf.path, "null")), load(written(leaf.path, "~"))):
        assert loaded.problems == ()
        assert value_at(loaded.configuration, leaf.path) == leaf.default


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.path)
def test_a_good_value_is_taken_and_its_line_is_known(leaf: Leaf) -> None:
    loaded = load(written(leaf.path, leaf.text))
    assert loaded.problems == ()
    assert value_at(loaded.configuration, leaf.path) == leaf.value
    assert leaf.value != leaf.default
    assert loaded.line(leaf.path) == LINE + leaf.path.count(".")


@pytest.mark.parametrize(
    ("leaf", "text", "told"), list(wrong_values()), ids=lambda value: str(getattr(value, "path", value))[:60]
)
def test_a_wrong_value_is_refused_with_line_field_and_what_is_expected(leaf: Leaf, text: str, told: str) -> None:
    loaded = load(written(leaf.path, text))
    (problem,) = loaded.problems
    assert problem.fatal
    assert not loaded.usable
    assert problem.line == LINE + leaf.path.count(".")
    assert problem.field.partition("[")[0] == leaf.path
    assert told in problem.message


def test_whole_numbers_are_read_as_go_reads_them() -> None:
    for text, number in (("0x1f", 31), ("017", 15), ("0b11", 3), ("+7", 7), ("1_0", 10), ("0", 0)):
        assert load(written("iptables.masqueradeBit", text)).configuration.iptables.masquerade_bit == number, text
    assert "a whole number is expected, not '1:30'" in load(written("oomScoreAdj", "1:30")).problems[0].message


@pytest.mark.parametrize("text", ["yes", "Yes", "ON", "on", "true", "True"])
def test_booleans_of_yaml_1_1(text: str) -> None:
    assert load(written("iptables.masqueradeAll", text)).configuration.iptables.masquerade_all
    assert not load(written("iptables.masqueradeAll", "off")).configuration.iptables.masquerade_all


def test_a_boolean_word_is_no_text() -> None:
    assert "(put it in quotes)" in load(written("ipvs.scheduler", "on")).problems[0].message
    assert load(written("hostnameOverride", "'no'")).configuration.hostname_override == "no"


def test_zero_stands_for_the_default_where_kube_proxy_has_it_so() -> None:
    for path in ("iptables.syncPeriod", "ipvs.syncPeriod", "nftables.syncPeriod", "configSyncPeriod", "logging.flushFrequency"):
        for text in ("0s", "0", '"0"', "0h0m0s"):
            loaded = load(written(path, text))
            assert loaded.problems == (), (path, text)
            assert value_at(loaded.configuration, path) == value_at(KubeProxyConfiguration(), path)
    assert load(written("clientConnection.qps", "0")).configuration.client_connection.qps == 5.0
    assert load(written("clientConnection.burst", "0")).configuration.client_connection.burst == 10


def test_zero_is_itself_elsewhere() -> None:
    assert load(written("nftables.minSyncPeriod", "0s")).configuration.nftables.min_sync_period == 0.0
    assert load(written("conntrack.maxPerCore", "0")).configuration.conntrack.max_per_core == 0
    assert load(written("conntrack.tcpEstablishedTimeout", "0s")).configuration.conntrack.tcp_established_timeout == 0.0
    assert load(written("oomScoreAdj", "0")).configuration.oom_score_adj == 0


def test_the_flush_frequency_may_be_nanoseconds() -> None:
    assert load(written("logging.flushFrequency", "2500000000")).configuration.logging.flush_frequency == 2.5


@pytest.mark.parametrize("section", ["ipvs", "nftables"])
def test_what_is_wrong_with_an_idle_section_is_a_warning(section: str) -> None:
    text = f"{HEAD}{section}:\n  minSyncPeriod: 2m\n"
    idle, used = load(f"{text}mode: iptables\n"), load(f"{text}mode: {section}\n")
    assert [problem.fatal for problem in (*idle.problems, *used.problems)] == [False, True]
    assert idle.usable
    assert not load(f"{HEAD}mode: {section}\niptables:\n  minSyncPeriod: 2m\n").usable


def test_a_scheduler_that_linux_may_not_have_is_told() -> None:
    (problem,) = load(written("ipvs.scheduler", "rrr")).problems
    assert not problem.fatal
    assert "'rrr'" in problem.message


def test_detection_by_interface_needs_its_name() -> None:
    for mode, name in (("BridgeInterface", "bridgeInterface"), ("InterfaceNamePrefix", "interfaceNamePrefix")):
        (problem,) = load(f"{HEAD}detectLocalMode: {mode}\n").problems
        assert (problem.line, problem.field) == (1, f"detectLocal.{name}")
        (problem,) = load(f"{HEAD}detectLocalMode: {mode}\ndetectLocal: {{}}\n").problems
        assert problem.line == 4
        assert load(f"{HEAD}detectLocalMode: {mode}\ndetectLocal:\n  {name}: cni\n").problems == ()


def test_vmodule_is_for_text() -> None:
    (problem,) = load(f"{HEAD}logging:\n  format: json\n  vmodule: [{{filePattern: a, verbosity: 1}}]\n").problems
    assert (problem.line, problem.message) == (5, "works with logging.format text only")


def test_nothing_is_said_of_a_period_whose_fellow_cannot_be_read() -> None:
    (problem,) = load(f"{HEAD}iptables:\n  syncPeriod: 100\n  minSyncPeriod: 1m\n").problems
    assert problem.field == "iptables.syncPeriod"
