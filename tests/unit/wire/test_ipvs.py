"""IPVS: what is encoded is read back, what cannot be is refused, and the kernel's own text is understood."""

import errno
from ipaddress import ip_address

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.wire import ipvs, netlink
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.ipvs import (
    Change,
    ListedRealServer,
    ListedVirtualServer,
    Place,
    RealServer,
    Statistics,
    Timeouts,
    VirtualServer,
)
from kproxy_core.wire.ipvs_constants import Command, Forwarding, ServiceFlag
from kproxy_core.wire.ipvs_listing import SeenRealServer, parse_listing
from kproxy_core.wire.ipvs_words import describe, describe_change, reason
from kproxy_core.wire.nfnetlink import Family

from .strategies import damaged

SIZES = {Family.IPV4: 4, Family.IPV6: 16}
V4 = ip_address("192.0.2.1").packed
V6 = ip_address("2001:db8::1").packed
WEB = VirtualServer(family=Family.IPV4, protocol=6, address=V4, port=80)
ports = st.integers(0, 65535)
numbers = st.integers(0, 2**32 - 1)


@st.composite
def virtual_servers(draw: st.DrawFn) -> VirtualServer:
    family = draw(st.sampled_from([Family.IPV4, Family.IPV6]))
    place: dict[str, object] = {"mark": draw(st.integers(1, 2**32 - 1))}
    if draw(st.booleans()):
        address = draw(st.binary(min_size=SIZES[family], max_size=SIZES[family]))
        place = {"protocol": draw(st.sampled_from([6, 17, 132])), "address": address, "port": draw(ports)}
    return VirtualServer(
        family=family,
        scheduler=draw(st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=15)),
        flags=draw(st.sampled_from([0, ServiceFlag.ONE_PACKET, ServiceFlag.PORT, ServiceFlag.PORT | ServiceFlag.FALLBACK])),
        persistence=draw(st.none() | numbers),
        prefix=draw(st.none() | st.integers(1, 8 * SIZES[family] - 1)),
        **place,  # type: ignore[arg-type]
    )


@st.composite
def real_servers(draw: st.DrawFn, family: Family) -> RealServer:
    return RealServer(
        address=draw(st.binary(min_size=SIZES[family], max_size=SIZES[family])),
        port=draw(ports),
        weight=draw(st.integers(0, 65535)),
        forwarding=draw(st.sampled_from(Forwarding)),
        upper=draw(numbers),
        lower=draw(numbers),
    )


servers_with_reals = virtual_servers().flatmap(lambda s: st.tuples(st.just(s), st.lists(real_servers(s.family), max_size=5)))


def listed(change: Change, *more: bytes) -> bytes:
    """The payload of a request about a real server as the kernel lists it: with counts of connections."""
    found = netlink.attributes(change.payload, 4)
    counts = b"".join(netlink.attribute(kind, kind.to_bytes(4, "little")) for kind in (7, 8, 9))
    return change.payload[:4] + netlink.nested(2, found[2], counts, *more)


@given(virtual_servers())
def test_a_virtual_server_is_read_back(server: VirtualServer) -> None:
    for change in (ipvs.add_virtual(server), ipvs.set_virtual(server)):
        assert VirtualServer.decode(change.payload) == server
        assert ListedVirtualServer.decode(change.payload) == ListedVirtualServer(server=server, statistics=Statistics())
    bare = VirtualServer.decode(ipvs.delete_virtual(server).payload)
    assert bare.place == server.place
    assert ipvs.identity(bare) == ipvs.identity(server)


@given(servers_with_reals)
def test_real_servers_are_read_back(case: tuple[VirtualServer, list[RealServer]]) -> None:
    server, reals = case
    for make in (ipvs.add_real, ipvs.set_real, ipvs.delete_real):
        changes = make(server, reals)
        assert [VirtualServer.decode(change.payload).place for change in changes] == [server.place] * len(reals)
        found = [ListedRealServer.decode(listed(change), server.family) for change in changes]
        assert [one.server for one in found] == reals
        assert all((one.active, one.inactive, one.persistent) == (7, 8, 9) for one in found)


@given(servers_with_reals, st.data())
def test_damage_is_read_as_something_or_refused(case: tuple[VirtualServer, list[RealServer]], data: st.DataObject) -> None:
    server, reals = case
    for payload in [ipvs.add_virtual(server).payload, *(listed(change) for change in ipvs.add_real(server, reals))]:
        raw = data.draw(damaged(payload))
        for read in (
            ListedVirtualServer.decode,
            VirtualServer.decode,
            lambda value: ListedRealServer.decode(value, server.family),
            Timeouts.decode,
        ):
            try:
                read(raw)
            except MalformedMessageError:
                continue


def statistics(kind: int, widths: list[int]) -> bytes:
    """Counts of 1, 2, 3 and so on, then rates."""
    return netlink.nested(
        kind, *(netlink.attribute(number, number.to_bytes(width, "little")) for number, width in enumerate(widths, 1))
    )


OLD, NEW = statistics(10, [4, 4, 4, 8, 8, 4, 4, 4, 4, 4]), statistics(12, [8] * 10)


@pytest.mark.parametrize("more", [(OLD,), (NEW,), (OLD, NEW)])
def test_statistics(more: tuple[bytes, ...]) -> None:
    wanted = Statistics(connections=1, packets_in=2, packets_out=3, bytes_in=4, bytes_out=5)
    found = netlink.attributes(ipvs.add_virtual(WEB).payload, 4)
    assert ListedVirtualServer.decode(bytes(4) + netlink.nested(1, found[1], *more)).statistics == wanted
    (change,) = ipvs.add_real(WEB, [RealServer(V4, 8080)])
    assert ListedRealServer.decode(listed(change, *more), Family.IPV4).statistics == wanted


def test_a_real_server_of_the_other_family() -> None:
    (change,) = ipvs.add_real(attrs.evolve(WEB, family=Family.IPV6, address=V6), [RealServer(V6, 8080)])
    payload = listed(change, netlink.attribute(11, b"\x0a\0"))
    assert ListedRealServer.decode(payload, Family.IPV4).server.address == V6


def test_the_kernels_own_flags_are_nobodys() -> None:
    server = attrs.evolve(WEB, flags=ServiceFlag.PORT | ServiceFlag.PERSISTENT | ServiceFlag.HASHED)
    assert VirtualServer.decode(ipvs.add_virtual(server).payload) == attrs.evolve(WEB, flags=ServiceFlag.PORT)


def test_persistence_of_no_time_is_persistence() -> None:
    server = attrs.evolve(WEB, persistence=0)
    assert VirtualServer.decode(ipvs.add_virtual(server).payload).persistence == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"family": Family.INET},
        {"address": V6},
        {"port": 65536},
        {"protocol": 256},
        {"address": b"", "mark": 1 << 32},
        {"scheduler": ""},
        {"scheduler": "s" * 16},
        {"persistence": 1 << 32},
        {"prefix": 0},
        {"prefix": 33},
    ],
)
def test_what_is_no_virtual_server(wrong: dict[str, object]) -> None:
    with pytest.raises(EncodingError):
        ipvs.add_virtual(attrs.evolve(WEB, **wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [{"address": V6}, {"port": 65536}, {"port": -1}, {"weight": -1}, {"weight": 65536}, {"upper": -1}, {"lower": 1 << 32}],
)
def test_what_is_no_real_server(wrong: dict[str, object]) -> None:
    with pytest.raises(EncodingError):
        ipvs.add_real(WEB, [RealServer(V4, 8080)._replace(**wrong)])  # type: ignore[arg-type]


@given(st.builds(Timeouts, tcp=numbers, tcp_fin=numbers, udp=numbers))
def test_timeouts_are_read_back(wanted: Timeouts) -> None:
    payload = wanted.encode()
    zeros = b"".join(netlink.attribute(kind, bytes(4)) for kind in (4, 5, 6) if kind not in netlink.attributes(payload, 4))
    assert Timeouts.decode(payload + zeros) == wanted


@pytest.mark.parametrize("kind", [1, 3, 4])
def test_a_virtual_server_that_lacks_something(kind: int) -> None:
    inner = netlink.attributes(ipvs.add_virtual(WEB).payload, 4)[1]
    kept = [netlink.attribute(number, value) for number, value in netlink.iter_attributes(inner) if number != kind]
    with pytest.raises(MalformedMessageError):
        VirtualServer.decode(bytes(4) + netlink.nested(1, *kept))


def test_messages_about_something_else() -> None:
    with pytest.raises(MalformedMessageError, match="without SERVICE"):
        VirtualServer.decode(bytes(4))
    with pytest.raises(MalformedMessageError, match="without DEST"):
        ListedRealServer.decode(bytes(4), Family.IPV4)


def test_changes_in_words() -> None:
    six = VirtualServer(family=Family.IPV6, protocol=17, address=V6, port=53)
    marked = VirtualServer(family=Family.IPV6, mark=7)
    real = [RealServer(ip_address("198.51.100.7").packed, 8080)]
    assert [
        describe_change(change) for change in (ipvs.add_virtual(WEB), ipvs.set_virtual(six), ipvs.delete_virtual(marked))
    ] == [
        "make the virtual server tcp 192.0.2.1:80",
        "change the virtual server udp [2001:db8::1]:53",
        "delete the virtual server mark 7 (IPv6)",
    ]
    assert [describe_change(make(WEB, real)[0]) for make in (ipvs.add_real, ipvs.set_real, ipvs.delete_real)] == [
        "add the real server 198.51.100.7:8080 to tcp 192.0.2.1:80",
        "change the real server 198.51.100.7:8080 of tcp 192.0.2.1:80",
        "delete the real server 198.51.100.7:8080 of tcp 192.0.2.1:80",
    ]
    assert describe(attrs.evolve(WEB, protocol=51)) == "51 192.0.2.1:80"
    assert reason(Command.DEL_DEST, errno.ENOENT) == "it is not there"
    assert reason(Command.DEL_DEST, errno.ENOMEM) is None


# -- the kernel's text

LISTING = """IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  C0000201:0050 mh  persistent 30000 FFFFFF00
  -> C6336407:1F90      Masq    3      5          7         
  -> C6336408:1F90      Route   0      0          0         
UDP  [2001:0db8:0000:0000:0000:0000:0000:0001]:0035 rr ops  
SCTP  C0000201:0050 rr 
  -> C6336407:1F90      Tunnel  1      0          0         
FWM  00000007 wlc 
  -> [2001:0db8:0000:0000:0000:0000:0000:0009]:1F90      Local   1      0          0         
FWM  00000007 wlc 
FWM  00000008 wlc 
"""  # noqa: W291


def test_a_listing() -> None:
    one, two = ip_address("198.51.100.7").packed, ip_address("198.51.100.8").packed
    assert parse_listing(LISTING) == {
        Place(2, 6, V4, 80, 0): [
            SeenRealServer(one, 8080, 3, Forwarding.MASQUERADE, 5, 7),
            SeenRealServer(two, 8080, 0, Forwarding.DIRECT, 0, 0),
        ],
        Place(10, 17, V6, 53, 0): [],
        Place(2, 132, V4, 80, 0): [SeenRealServer(one, 8080, 1, Forwarding.TUNNEL, 0, 0)],
        Place(10, 0, b"", 0, 7): [SeenRealServer(ip_address("2001:db8::9").packed, 8080, 1, Forwarding.LOCAL, 0, 0)],
    }
    assert parse_listing("") == {}
    assert WEB.place in parse_listing(LISTING)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "TCP",
        "TCP C0000201",
        "XYZ C0000201:0050 rr",
        "  -> C0:0050 Masq 1 0 0",
        "  -> C0000201:0050 Odd 1 0 0",
        "  -> x Masq 1 0",
        "FWM z",
    ],
)
def test_what_is_no_listing(line: str) -> None:
    with pytest.raises(MalformedMessageError, match="is no server"):
        parse_listing(LISTING + line + "\n")
