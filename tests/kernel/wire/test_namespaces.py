"""Entering network namespaces moves one thread only, and it comes back."""

import os
import threading

import pytest

from kproxy_core.kernel import namespaces, sysctl
from kproxy_core.kernel.errors import NamespaceError
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.kernel.sysctl import (
    InvalidSysctlError,
    MissingSysctlError,
    ReadOnlySysctlError,
)
from kproxy_core.wire import nftables as nft_wire
from kproxy_core.wire.nftables import Family, Table

pytestmark = pytest.mark.kernel


def test_a_new_namespace_is_another_one(namespace: int) -> None:
    assert namespaces.identity(namespace) != namespaces.identity()


def test_inside_and_back(namespace: int) -> None:
    home = namespaces.identity()
    with namespaces.entered(namespace):
        assert namespaces.identity() == namespaces.identity(namespace)
    assert namespaces.identity() == home
    assert namespaces.in_namespace(namespace, namespaces.identity) == namespaces.identity(namespace)
    assert namespaces.in_namespace(None, namespaces.identity) == home


def test_back_after_an_exception(namespace: int) -> None:
    home = namespaces.identity()
    with pytest.raises(ZeroDivisionError), namespaces.entered(namespace):
        raise ZeroDivisionError
    assert namespaces.identity() == home


def test_by_path(namespace: int) -> None:
    path = f"/proc/self/fd/{namespace}"
    assert namespaces.in_namespace(path, namespaces.identity) == namespaces.identity(namespace)
    assert namespaces.in_thread(path, namespaces.identity) == namespaces.identity(namespace)


def test_other_threads_stay_where_they_are(namespace: int) -> None:
    home = namespaces.identity()
    inside, done = threading.Event(), threading.Event()
    seen: list[tuple[int, int]] = []

    def look() -> None:
        inside.wait(10)
        seen.append(namespaces.identity())
        done.set()

    thread = threading.Thread(target=look)
    thread.start()
    with namespaces.entered(namespace):
        inside.set()
        assert done.wait(10)
    thread.join()
    assert seen == [home]


def test_a_thread_of_its_own(namespace: int) -> None:
    home = namespaces.identity()
    assert namespaces.in_thread(namespace, namespaces.identity) == namespaces.identity(namespace)
    assert namespaces.identity() == home

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        namespaces.in_thread(namespace, fail)


def test_what_is_no_namespace() -> None:
    with pytest.raises(NamespaceError, match="No such file"), namespaces.entered("/nonexistent"):
        pass
    with pytest.raises(NamespaceError, match="enter"), namespaces.entered("/dev/null"):
        pass
    with pytest.raises(NamespaceError):
        namespaces.identity("/nonexistent")


def test_a_socket_stays_where_it_was_opened(namespace: int) -> None:
    elsewhere = namespaces.create()
    with NftSocket(namespace=namespace) as first:
        assert first.commit([nft_wire.add(Table(family=Family.IPV4, name="here"))]).ok
        with namespaces.entered(elsewhere), NftSocket() as second:
            assert second.tables() == ()
            assert len(first.tables()) == 1
    os.close(elsewhere)


def test_settings_are_those_of_the_namespace(namespace: int) -> None:
    with namespaces.entered(namespace):
        assert sysctl.write("net.ipv4.ip_forward", 0) in (True, False)
        assert sysctl.write("net/ipv4/ip_forward", 1) is True
        assert sysctl.write("net/ipv4/ip_forward", 1) is False
        assert sysctl.read("net.ipv4.ip_forward") == "1"
        assert sysctl.read("net/ipv4/conf/lo/forwarding") == "1"
        with pytest.raises(InvalidSysctlError, match=r"net\.ipv4\.ip_forward"):
            sysctl.write("net.ipv4.ip_forward", "much")
        sysctl.write("net/ipv4/ip_local_port_range", "40000 50000")
        assert sysctl.read("net/ipv4/ip_local_port_range").split() == ["40000", "50000"]
        assert sysctl.write("net/ipv4/ip_local_port_range", "40000 50000") is False


@pytest.mark.parametrize("name", ["net.ipv4.no_such_thing", "net/ipv4", "../version", "net..ipv4", "", "net/ipv4/ip_forward/x"])
def test_a_setting_that_is_not_there(name: str) -> None:
    with pytest.raises(MissingSysctlError):
        sysctl.read(name)
    with pytest.raises(MissingSysctlError):
        sysctl.write(name, 1)


def test_a_setting_that_may_not_be_written() -> None:
    with pytest.raises(ReadOnlySysctlError, match="kernel/osrelease"):
        sysctl.write("kernel/osrelease", "6.0")
