"""Values of options are read as Go and kube-proxy spell them, and a mistake says what to write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.config import values
from kproxy_core.config.settings import NodePortScope
from kproxy_core.model.addresses import parse_address, parse_network


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("0s", 0.0),
        ("1s", 1.0),
        ("500ms", 0.5),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("1m1m", 120.0),
        ("250us", 250e-6),
        ("250µs", 250e-6),
        ("250μs", 250e-6),
        ("10ns", 10e-9),
        ("30", 30.0),
        ("0.25", 0.25),
        (" 2s ", 2.0),
    ],
)
def test_durations_are_read_as_go_spells_them(text: str, seconds: float) -> None:
    assert values.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "s", "1x", "1 s", "-1s", "1h-30m", "1s2", "one", "1e3s", "\N{ARABIC-INDIC DIGIT ONE}s", "1S", "+1s", "nan", "inf"],
)
def test_what_is_no_duration_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration such as 500ms, 30s or 1h30m"):
        values.parse_duration(text)


@given(st.integers(0, 10_000), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_durations_add_up(hours: int, minutes: int, seconds: int, milliseconds: int) -> None:
    expected = hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    assert values.parse_duration(f"{hours}h{minutes}m{seconds}s{milliseconds}ms") == pytest.approx(expected)


def test_lists_may_be_given_in_one_or_in_several_texts() -> None:
    assert values.split_list(["a, b,", "", "c"]) == ("a", "b", "c")


def test_networks_are_read_once_each() -> None:
    assert values.parse_networks(["10.244.0.0/16,fd00::/56", "10.244.1.2/16"]) == (
        parse_network("10.244.0.0/16"),
        parse_network("fd00::/56"),
    )


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], None),
        ([""], None),
        (["primary"], NodePortScope.PRIMARY),
        (["all"], NodePortScope.ALL),
        (["all", "all"], NodePortScope.ALL),
        (["10.0.0.0/8, ::/0"], (parse_network("10.0.0.0/8"), parse_network("::/0"))),
    ],
)
def test_node_port_addresses(texts: list[str], expected: object) -> None:
    assert values.parse_node_port_addresses(texts) == expected


def test_words_for_node_port_addresses_stand_alone() -> None:
    with pytest.raises(ValueError, match=r"'primary' has to stand alone, without 10\.0\.0\.0/8"):
        values.parse_node_port_addresses(["primary,10.0.0.0/8"])


def test_ports() -> None:
    assert values.parse_ports(["22,10250", "22"]) == frozenset({22, 10250})
    assert values.parse_ports([""]) == frozenset()


@pytest.mark.parametrize("text", ["0", "65536", "ssh", "-1", "\N{ARABIC-INDIC DIGIT TWO}2"])
def test_what_is_no_port_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="is not a port from 1 to 65535"):
        values.parse_ports([text])


def test_addresses() -> None:
    assert values.parse_addresses(["10.0.0.1,fd00::1", "10.0.0.1"]) == (parse_address("10.0.0.1"), parse_address("fd00::1"))
    assert values.parse_bind_address("  ") is None
    assert values.parse_bind_address("::1") == parse_address("::1")
