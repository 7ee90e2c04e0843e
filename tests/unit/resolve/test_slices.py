"""Joining slices: by port name, protocol and family, never by number, whatever the order of the slices."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from kproxy_core.model.addresses import Family, parse_address
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import EndpointSlice, Service, ServicePortSpec, SliceEndpoint, SlicePort
from kproxy_core.resolve.slices import join_slices

Make = Callable[..., Any]


def joined(service: Service, *slices: EndpointSlice) -> dict[tuple[str, str, str], list[str]]:
    found = join_slices(service, slices, "here", [])
    return {(f.label, name, protocol.name): [str(e) for e in endpoints] for (f, name, protocol), endpoints in found.items()}


def test_s38_the_slices_port_counts_and_one_name_may_mean_different_numbers(make_service: Make, make_slice: Make) -> None:
    service = make_service(ports=(ServicePortSpec(name="http", port=80),))
    one = make_slice("10.244.0.1", ports=(SlicePort(name="http", port=8080),))
    other = make_slice("10.244.0.2", ports=(SlicePort(name="http", port=9090),))
    assert joined(service, one, other) == {("IPv4", "http", "TCP"): ["10.244.0.1:8080", "10.244.0.2:9090"]}


def test_a_service_port_gets_only_ports_of_its_name_and_protocol(make_service: Make, make_slice: Make) -> None:
    service = make_service(
        ports=(ServicePortSpec(name="dns", port=53, protocol=Protocol.UDP), ServicePortSpec(name="dns-tcp", port=53))
    )
    part = make_slice(
        "10.244.0.1",
        ports=(
            SlicePort(name="dns", protocol=Protocol.UDP, port=5353),
            SlicePort(name="dns-tcp", port=5354),
            SlicePort(name="dns", port=1),
            SlicePort(name="metrics", port=2),
            SlicePort(name="", port=3),
        ),
    )
    assert joined(service, part) == {
        ("IPv4", "dns", "UDP"): ["10.244.0.1:5353"],
        ("IPv4", "dns-tcp", "TCP"): ["10.244.0.1:5354"],
    }


def test_an_unnamed_port_joins_an_unnamed_one(make_service: Make, make_slice: Make) -> None:
    assert joined(make_service(), make_slice("10.244.0.1")) == {("IPv4", "", "TCP"): ["10.244.0.1:8080"]}


def test_port_zero_is_ignored(make_service: Make, make_slice: Make) -> None:
    assert joined(make_service(), make_slice("10.244.0.1", ports=(SlicePort(port=0),))) == {}


def test_families_are_kept_apart(make_service: Make, make_slice: Make) -> None:
    found = joined(make_service(), make_slice("10.244.0.1"), make_slice("fd00:244::1"))
    assert found == {("IPv4", "", "TCP"): ["10.244.0.1:8080"], ("IPv6", "", "TCP"): ["[fd00:244::1]:8080"]}


def test_s35_one_address_with_two_ports_is_two_endpoints(make_service: Make, make_slice: Make) -> None:
    one = make_slice("10.0.1.1", ports=(SlicePort(port=8080),))
    other = make_slice("10.0.1.1", ports=(SlicePort(port=8081),))
    assert joined(make_service(), one, other) == {("IPv4", "", "TCP"): ["10.0.1.1:8080", "10.0.1.1:8081"]}


def test_endpoints_are_sorted_by_address_and_port_and_repeated_ones_count_once(make_service: Make, make_slice: Make) -> None:
    parts = (
        make_slice("10.244.0.9", "10.244.0.10"),
        make_slice("10.244.0.10", "10.244.0.2"),
        make_slice("10.244.0.9", ports=(SlicePort(port=80),)),
    )
    expected = ["10.244.0.2:8080", "10.244.0.9:80", "10.244.0.9:8080", "10.244.0.10:8080"]
    assert {tuple(joined(make_service(), *order)["IPv4", "", "TCP"]) for order in permutations(parts)} == {tuple(expected)}


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param("10.1.1.5 notready", "10.1.1.5 terminating", id="s37: what does not terminate beats what does"),
        pytest.param("10.1.1.5", "10.1.1.5 terminating here", id="s37: even if the ghost is local"),
        pytest.param("10.1.1.5", "10.1.1.5 notready here", id="ready beats not ready"),
        pytest.param("10.1.1.5 terminating", "10.1.1.5 terminating dead here", id="serving beats not serving"),
        pytest.param("10.1.1.5 here", "10.1.1.5", id="local beats elsewhere"),
    ],
)
def test_of_two_entries_for_one_place_the_better_one_wins_in_any_order(
    better: str, worse: str, make_service: Make, make_slice: Make
) -> None:
    one, other = make_slice(better), make_slice(worse)
    expected = join_slices(make_service(), [one], "here", [])
    assert join_slices(make_service(), [one, other], "here", []) == expected
    assert join_slices(make_service(), [other, one], "here", []) == expected
    both = make_slice(better, worse)
    assert join_slices(make_service(), [both], "here", []) == expected


def test_entries_that_differ_in_hints_only_settle_the_same_way_in_any_order(
    make_service: Make, make_slice: Make, make_endpoint: Make
) -> None:
    versions = [make_endpoint("10.1.1.5", zone_hints=frozenset(hints)) for hints in ((), ("a",), ("b",), ("a", "b"))]
    results = {
        join_slices(make_service(), [make_slice(e) for e in order], "here", [])[Family.IPV4, "", Protocol.TCP]
        for order in permutations(versions)
    }
    assert len(results) == 1


def test_o1_without_a_node_name_nothing_is_local(make_service: Make, make_slice: Make) -> None:
    nameless = SliceEndpoint(address=parse_address("10.244.0.1"), node_name="")
    for name in ("", "here"):
        found = join_slices(make_service(), [make_slice(nameless)], name, [])
        assert not found[Family.IPV4, "", Protocol.TCP][0].local


def test_weights_come_by_address_or_by_star(make_service: Make, make_slice: Make) -> None:
    part = make_slice("10.244.0.1", "10.244.0.2")

    def weights(given: dict[str, int]) -> list[int]:
        endpoints = join_slices(make_service(weights=given), [part], "here", [])[Family.IPV4, "", Protocol.TCP]
        return [endpoint.weight for endpoint in endpoints]

    assert weights({}) == [1, 1]
    assert weights({"10.244.0.2": 5}) == [1, 5]
    assert weights({"*": 3, "10.244.0.2": 0}) == [3, 0]


@pytest.mark.parametrize(
    ("address", "use"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.0.9", "loopback"),
        ("169.254.169.254", "link-local"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("255.255.255.255", "broadcast"),
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("fe80::1", "link-local"),
        ("febf::1", "link-local"),
        ("ff02::1", "multicast"),
    ],
)
def test_endpoints_at_special_addresses_are_left_out_and_told(
    address: str, use: str, make_service: Make, make_slice: Make
) -> None:
    good = "10.244.0.1" if "." in address else "fd00:244::1"
    told: list[Any] = []
    found = join_slices(make_service(), [make_slice(good, address)], "here", told)
    assert [str(e.address) for endpoints in found.values() for e in endpoints] == [good]
    (diagnostic,) = told
    assert diagnostic.subject == "EndpointSlice shop/web-1"
    assert address in diagnostic.message
    assert use in diagnostic.message
    assert diagnostic.remedy


@pytest.mark.parametrize("address", ["169.253.0.1", "0.0.0.1", "128.0.0.1", "223.255.255.255", "::2", "fec0::1", "fd00::1"])
def test_addresses_beside_the_special_ones_are_fine(address: str, make_service: Make, make_slice: Make) -> None:
    told: list[Any] = []
    found = join_slices(make_service(), [make_slice(address)], "here", told)
    assert [str(e.address) for endpoints in found.values() for e in endpoints] == [address]
    assert told == []


def test_an_endpoint_of_another_family_than_its_slice_is_left_out_and_told(make_service: Make, make_slice: Make) -> None:
    told: list[Any] = []
    part = make_slice("10.244.0.1", "fd00:244::1", family=Family.IPV4, name=ObjectName("shop", "odd"))
    found = join_slices(make_service(), [part], "here", told)
    assert [str(e) for e in found[Family.IPV4, "", Protocol.TCP]] == ["10.244.0.1:8080"]
    assert [(d.subject, "IPv4" in d.message) for d in told] == [("EndpointSlice shop/odd", True)]
