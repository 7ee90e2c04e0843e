"""Addresses and networks: lenient in, canonical out; the standard library's slower parser agrees."""

import ipaddress
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.model.addresses import (
    Address,
    Family,
    Network,
    collapse,
    host_network,
    network_of,
    parse_address,
    parse_network,
)

ipv4 = st.ip_addresses(v=4).map(lambda a: Address(a.packed))
ipv6 = st.ip_addresses(v=6).map(lambda a: Address(a.packed))
addresses = ipv4 | ipv6


@st.composite
def networks(draw: st.DrawFn) -> Network:
    address = draw(addresses)
    # Long prefixes of few addresses, so that some touch or contain each other.
    return network_of(address, draw(st.sampled_from([0, 1, 2, 3, 8])))


def standard(network: Network) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network((bytes(network.address), network.length))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("010.000.00.01", "10.0.0.1"),
        ("192.0.2.08", "192.0.2.8"),
        ("000000010.0.0.1", "10.0.0.1"),
        (" 10.0.0.1\n", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:0a00:0001", "10.0.0.1"),
        ("FD00:0:0:0::1", "fd00::1"),
        ("2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"),
        ("::", "::"),
    ],
)
def test_lenient_in_canonical_out(text: str, canonical: str) -> None:
    address = parse_address(text)
    assert str(address) == canonical
    assert address == parse_address(canonical)
    assert address.family is (Family.IPV6 if ":" in canonical else Family.IPV4)
    assert repr(address) == f"Address({canonical})"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "10.0.0",
            "10.0.0.1.2",
            "10.0.0.256",
            "10.0.0.-1",
            "0x0a.0.0.1",
            "10.0.0.1/24",
            "10..0.1",
            "host",
            "fe80::1%eth0",
        ),
        *("1::2::3", "12345::", "10.0.0.1\0", "\u0661.0.0.1", "1" * 200, "10.0.0.1 10.0.0.2", "[::1]", "\ud800"),
    ],
)
def test_what_is_no_address_is_refused_and_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="is not an IP address") as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)


@given(addresses)
def test_addresses_survive_text_and_pickling(address: Address) -> None:
    mapped = address.startswith(bytes(10) + b"\xff\xff")
    assert mapped or parse_address(str(address)) == address
    assert str(address) == str(ipaddress.ip_address(bytes(address))) or mapped or address.startswith(bytes(12))
    again = pickle.loads(pickle.dumps(address))
    assert (again, type(again)) == (address, Address)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.0/8", "10.0.0.0/8"),
        (" 010.1.2.3/8 ", "10.0.0.0/8"),
        ("10.1.2.3/32", "10.1.2.3/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("2001:DB8:1::/32", "2001:db8::/32"),
        ("::/0", "::/0"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("10.0.0.0/08", "10.0.0.0/8"),
    ],
)
def test_networks_lose_their_host_bits(text: str, canonical: str) -> None:
    network = parse_network(text)
    assert str(network) == canonical
    assert network == parse_network(canonical)
    assert network.family is network.address.family


@pytest.mark.parametrize(
    "text",
    [
        *("", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/8 x", "10.0.0/8", "::/129"),
        *("::ffff:10.0.0.0/95", "10.0.0.0/255.0.0.0", "/8", "10.0.0.0/\u0668", "10.0.0.0/1_0", "x/8"),
    ],
)
def test_what_is_no_network_is_refused_and_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address range") as caught:
        parse_network(text)
    assert repr(text) in str(caught.value)


@given(networks(), addresses)
def test_networks_contain_what_the_standard_library_says(network: Network, address: Address) -> None:
    theirs = standard(network)
    assert str(network) == str(theirs)
    assert bytes(network.last) == theirs[-1].packed
    same_family = address.family is network.family
    assert (address in network) == (same_family and ipaddress.ip_address(bytes(address)) in theirs)
    assert network.address in network
    assert network.last in network
    assert "10.0.0.1" not in network


@given(st.lists(networks() | addresses.map(host_network), max_size=8))
def test_collapse_covers_the_same_with_as_few_as_possible(given_networks: list[Network]) -> None:
    found = collapse(given_networks)
    for family in Family:
        theirs = ipaddress.collapse_addresses([standard(n) for n in given_networks if n.family is family])  # type: ignore[type-var]
        # By value: Python spells IPv4-mapped addresses in another way, and differently from version to version.
        assert [standard(n) for n in found if n.family is family] == list(theirs)
    assert collapse(found) == found
    assert collapse(given_networks[::-1]) == found


def test_family_speaks_the_apis_and_the_kernels_language() -> None:
    assert [(f.label, f.bits, int(f)) for f in Family] == [("IPv4", 32, 2), ("IPv6", 128, 10)]
