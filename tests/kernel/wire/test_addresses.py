"""Addresses and links of a real namespace, and that changes are noticed."""

import os
import select
import socket
from ipaddress import ip_address

import pytest

from kproxy_core.kernel.addresses import AddressSocket, AddressWatch, NodeAddress
from kproxy_core.wire.rtnetlink import AddressFlag, LinkFlag, Scope

from .conftest import Nft

pytestmark = pytest.mark.kernel


def by_address(addresses: tuple[NodeAddress, ...]) -> dict[str, NodeAddress]:
    return {str(address.address): address for address in addresses}


def test_addresses_are_listed_with_their_links(namespace: int, run: Nft) -> None:
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    run("ip", "address", "add", "192.0.2.1/24", "dev", "veth0")
    run("ip", "address", "add", "192.0.2.9/32", "peer", "198.51.100.1/32", "dev", "veth0")
    run("ip", "address", "add", "2001:db8::1/64", "dev", "veth0", "nodad")
    with AddressSocket(namespace=namespace) as node:
        found = by_address(node.addresses())
    assert set(found) == {"127.0.0.1", "::1", "192.0.2.1", "192.0.2.9", "2001:db8::1"}
    loopback, first = found["127.0.0.1"], found["192.0.2.1"]
    assert (loopback.link, loopback.scope, loopback.prefix_length) == ("lo", Scope.HOST, 8)
    assert (first.link, first.scope, first.prefix_length, first.usable) == ("veth0", Scope.UNIVERSE, 24, True)
    assert first.address == ip_address("192.0.2.1")
    assert first.flags & AddressFlag.PERMANENT
    assert found["192.0.2.9"].link == "veth0"


def test_an_address_is_not_usable_before_duplicates_are_ruled_out(namespace: int, run: Nft) -> None:
    run("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    run("ip", "address", "add", "2001:db8::1/64", "dev", "veth0")
    run("ip", "address", "add", "2001:db8::2/64", "dev", "veth0", "nodad")
    with AddressSocket(namespace=namespace) as node:
        found = by_address(node.addresses())
    assert found["2001:db8::1"].flags & AddressFlag.TENTATIVE
    assert not found["2001:db8::1"].usable


def test_links_are_listed_with_kind_and_master(namespace: int, run: Nft) -> None:
    run("ip", "link", "add", "br0", "type", "bridge")
    run("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    run("ip", "link", "set", "veth0", "master", "br0", "up")
    with AddressSocket(namespace=namespace) as node:
        links = {link.name: link for link in node.links()}
    assert set(links) == {"lo", "br0", "veth0", "veth1"}
    assert links["lo"].flags & LinkFlag.LOOPBACK
    assert (links["br0"].kind, links["br0"].master) == ("bridge", None)
    assert (links["veth0"].kind, links["veth0"].master) == ("veth", links["br0"].index)
    assert links["veth0"].flags & LinkFlag.UP
    assert not links["veth1"].flags & LinkFlag.UP


def test_many_addresses_are_all_listed(namespace: int, run: Nft) -> None:
    run("ip", "link", "set", "lo", "up")
    commands = "\n".join(f"address add 10.{n >> 8}.{n & 255}.1/32 dev lo" for n in range(2000))
    run("sh", "-c", f"ip -batch - <<'END'\n{commands}\nEND")
    with AddressSocket(namespace=namespace) as node:
        assert len(node.addresses()) == 2002


@pytest.mark.parametrize(
    "command",
    [
        "address add 192.0.2.2/24 dev veth0",
        "address del 192.0.2.1/24 dev veth0",
        "address add 2001:db8::1/64 dev veth0 nodad",
        "link set veth0 up",
        "link set veth0 name other",
        "link del veth0",
        "link add veth2 type veth peer name veth3",
    ],
)
def test_a_change_is_noticed_once(command: str, namespace: int, run: Nft) -> None:
    run("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    run("ip", "address", "add", "192.0.2.1/24", "dev", "veth0")
    with AddressWatch(namespace=namespace) as watch:
        assert watch.drain() is False
        run("ip", *command.split())
        assert select.select([watch], [], [], 5)[0]
        assert watch.drain() is True
        assert watch.drain() is False


def test_an_overrun_counts_as_a_change(namespace: int, run: Nft) -> None:
    run("ip", "link", "set", "lo", "up")
    commands = "\n".join(f"address {verb} 10.0.{n}.1/32 dev lo" for n in range(200) for verb in ("add", "del"))
    with AddressWatch(namespace=namespace) as watch:
        with socket.socket(fileno=os.dup(watch.fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        run("sh", "-c", f"ip -batch - <<'END'\n{commands}\nEND")
        assert watch.drain() is True
        while watch.drain():
            pass
        run("ip", "address", "add", "192.0.2.1/24", "dev", "lo")
        assert watch.drain() is True
