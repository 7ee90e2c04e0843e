"""Virtual and real servers in the kernel: what is made here is what ipvsadm sees and the other way round; refusals are told."""

import errno
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import attrs
import pytest

from kproxy_core.kernel import namespaces
from kproxy_core.kernel.errors import NetlinkError
from kproxy_core.kernel.ipvs import IpvsSocket
from kproxy_core.wire import ipvs as wire
from kproxy_core.wire.ipvs import RealServer, Statistics, Timeouts, VirtualServer
from kproxy_core.wire.ipvs_constants import Command, Forwarding, ServiceFlag
from kproxy_core.wire.ipvs_words import reason
from kproxy_core.wire.nfnetlink import Family

from .conftest import Run

pytestmark = [pytest.mark.ipvs, pytest.mark.kernel]

SERVICE = {Family.IPV4: "192.0.2.1", Family.IPV6: "2001:db8::1"}
REAL = {Family.IPV4: "198.51.100.", Family.IPV6: "2001:db8:1::"}
FAMILIES = pytest.mark.parametrize("family", list(SERVICE), ids=lambda family: family.name)
PROTOCOLS = {6: "-t", 17: "-u", 132: "--sctp-service"}
SCHEDULERS = ("rr", "wrr", "lc", "wlc", "sh", "mh", "dh", "sed", "nq", "fo", "ovf", "lblc", "lblcr")
WEB = VirtualServer(family=Family.IPV4, protocol=6, address=ip_address("192.0.2.1").packed, port=80)


def virtual(family: Family, port: int, protocol: int = 6, **more: object) -> VirtualServer:
    address = ip_address(SERVICE[family]).packed
    return VirtualServer(family=family, protocol=protocol, address=address, port=port, **more)  # type: ignore[arg-type]


def real(family: Family, number: int, port: int = 8080, **more: int) -> RealServer:
    return RealServer(ip_address(f"{REAL[family]}{number}").packed, port, **more)


def place(family: Family, address: str, port: int) -> str:
    """Address and port as ipvsadm writes them."""
    return f"{address}:{port}" if family == Family.IPV4 else f"[{address}]:{port}"


# -- as ipvsadm sees it


@FAMILIES
def test_ipvsadm_sees_what_was_made_here(ipvs: IpvsSocket, run: Run, family: Family) -> None:
    changes = []
    lines = []
    for number, scheduler in enumerate(SCHEDULERS, 1):
        for protocol, option in PROTOCOLS.items():
            server = virtual(family, number, protocol, scheduler=scheduler)
            reals = [real(family, 1, weight=number), real(family, 2, port=number, weight=0)]
            changes += [wire.add_virtual(server), *wire.add_real(server, reals)]
            where = f"{option} {place(family, SERVICE[family], number)}"
            lines.append(f"-A {where} -s {scheduler}")
            lines.append(f"-a {where} -r {place(family, f'{REAL[family]}1', 8080)} -m -w {number}")
            lines.append(f"-a {where} -r {place(family, f'{REAL[family]}2', number)} -m -w 0")
    assert ipvs.change(changes).done == 9 * len(SCHEDULERS)
    assert sorted(without_defaults(run("ipvsadm", "-S", "-n"))) == sorted(lines)


def without_defaults(saved: str) -> list[str]:
    """The lines that `ipvsadm -S` prints, without the default flags that it adds to some schedulers."""
    return [line.removesuffix(" ").partition(" -b ")[0] for line in saved.splitlines()]


FLAGS = [
    ({"scheduler": "sh", "flags": ServiceFlag.PORT}, "-s sh -b sh-port"),
    ({"scheduler": "sh", "flags": ServiceFlag.PORT | ServiceFlag.FALLBACK}, "-s sh -b sh-fallback,sh-port"),
    ({"scheduler": "mh", "flags": ServiceFlag.PORT}, "-s mh -b mh-port"),
    ({"scheduler": "mh", "flags": ServiceFlag.FALLBACK}, "-s mh -b mh-fallback"),
    ({"scheduler": "rr", "persistence": 10800}, "-s rr -p 10800"),
]


@FAMILIES
@pytest.mark.parametrize(("settings", "text"), FLAGS, ids=[text for _, text in FLAGS])
def test_options_of_a_virtual_server(ipvs: IpvsSocket, run: Run, family: Family, settings: dict[str, Any], text: str) -> None:
    server = virtual(family, 80, **settings)
    assert ipvs.change([wire.add_virtual(server)]).ok
    where = f"-t {place(family, SERVICE[family], 80)}"
    assert run("ipvsadm", "-S", "-n").strip() == f"-A {where} {text}"
    run("ipvsadm", "-C")
    run("ipvsadm", "-R", reads=f"-A {where} {text}\n")
    (listed,) = ipvs.virtual_servers()
    assert listed.server == server


def test_one_datagram_at_a_time(ipvs: IpvsSocket, run: Run) -> None:
    server = virtual(Family.IPV4, 53, 17, flags=ServiceFlag.ONE_PACKET)
    ipvs.change([wire.add_virtual(server)])
    assert run("ipvsadm", "-S", "-n").strip() == "-A -u 192.0.2.1:53 -s rr -o"
    assert ipvs.find(server) == ipvs.virtual_servers()[0]


@FAMILIES
def test_networks_of_clients(ipvs: IpvsSocket, run: Run, family: Family) -> None:
    prefix, text = (24, "255.255.255.0") if family == Family.IPV4 else (64, "64")
    server = virtual(family, 80, persistence=600, prefix=prefix)
    ipvs.change([wire.add_virtual(server)])
    where = f"-t {place(family, SERVICE[family], 80)}"
    assert run("ipvsadm", "-S", "-n").strip() == f"-A {where} -s rr -p 600 -M {text}"
    assert [listed.server for listed in ipvs.virtual_servers()] == [server]


def test_marks_of_both_families(ipvs: IpvsSocket, run: Run) -> None:
    servers = [VirtualServer(family=family, mark=7, scheduler="wrr") for family in SERVICE]
    changes = [
        change for server in servers for change in (wire.add_virtual(server), *wire.add_real(server, [real(server.family, 1)]))
    ]
    assert ipvs.change(changes).ok
    assert sorted(run("ipvsadm", "-S", "-n").splitlines()) == [
        "-A -f 7 -6 -s wrr",
        "-A -f 7 -s wrr",
        "-a -f 7 -6 -r [2001:db8:1::1]:8080 -m -w 1",
        "-a -f 7 -r 198.51.100.1:8080 -m -w 1",
    ]
    assert sorted((listed.server for listed in ipvs.virtual_servers()), key=lambda server: server.family) == servers
    for server in servers:
        assert [listed.server for listed in ipvs.real_servers(server)] == [real(server.family, 1)]
        assert [seen.address for seen in ipvs.glance()[server.place]] == [real(server.family, 1).address]
    ipvs.change([wire.delete_virtual(servers[0])])
    assert [listed.server for listed in ipvs.virtual_servers()] == servers[1:]


@FAMILIES
def test_options_of_real_servers(ipvs: IpvsSocket, run: Run, family: Family) -> None:
    server = virtual(family, 80)
    reals = [
        real(family, 1, weight=65535, upper=100, lower=50),
        real(family, 2, port=80, forwarding=Forwarding.DIRECT),
        real(family, 3, port=80, forwarding=Forwarding.TUNNEL),
        real(family, 4),
    ]
    assert ipvs.change([wire.add_virtual(server), *wire.add_real(server, reals)]).ok
    where = f"-t {place(family, SERVICE[family], 80)}"
    options = [(8080, "-m -w 65535"), (80, "-g -w 1"), (80, "-i -w 1"), (8080, "-m -w 1")]
    lines = [f"-a {where} -r {place(family, f'{REAL[family]}{n}', port)} {option}" for n, (port, option) in enumerate(options, 1)]
    saved = [line.removesuffix(" --tun-type ipip") for line in run("ipvsadm", "-S", "-n").splitlines()]
    assert sorted(saved) == sorted([f"-A {where} -s rr", *lines])
    assert re.search(r":8080 +100 +50 +0 +0 *$", run("ipvsadm", "-L", "-n", "--thresholds"), re.MULTILINE)
    run("ipvsadm", "-C")
    run("ipvsadm", "-R", reads="\n".join([f"-A {where} -s rr", f"{lines[0]} -x 100 -y 50", *lines[1:], ""]))
    assert sorted(listed.server for listed in ipvs.real_servers(server)) == sorted(reals)


# -- changes


@FAMILIES
def test_changes_and_deletions(ipvs: IpvsSocket, family: Family) -> None:
    server = virtual(family, 80)
    ipvs.change([wire.add_virtual(server), *wire.add_real(server, [real(family, number) for number in (1, 2, 3)])])
    other = attrs.evolve(server, scheduler="mh", flags=ServiceFlag.PORT, persistence=60)
    assert ipvs.change([wire.set_virtual(other), *wire.set_real(server, [real(family, 2, weight=0)])]).ok
    assert [listed.server for listed in ipvs.virtual_servers()] == [other]
    assert sorted(listed.server for listed in ipvs.real_servers(server)) == [
        real(family, 1),
        real(family, 2, weight=0),
        real(family, 3),
    ]
    assert ipvs.change(wire.delete_real(server, [real(family, 1, weight=99)])).ok
    assert sorted(listed.server for listed in ipvs.real_servers(server)) == [real(family, 2, weight=0), real(family, 3)]
    back = ipvs.change([wire.set_virtual(server)])
    assert back.ok
    assert [listed.server for listed in ipvs.virtual_servers()] == [server]
    assert ipvs.change([wire.delete_virtual(server)]).ok
    assert ipvs.virtual_servers() == []
    assert ipvs.real_servers(server) == []
    assert ipvs.find(server) is None


def test_nothing_to_change(ipvs: IpvsSocket) -> None:
    assert ipvs.change([]).done == 0


def test_what_is_refused_is_told_and_the_rest_is_done(ipvs: IpvsSocket) -> None:
    v6 = virtual(Family.IPV6, 80)
    first, second = real(Family.IPV4, 1), real(Family.IPV4, 2)
    changes = [
        wire.set_virtual(WEB),
        wire.delete_virtual(v6),
        *wire.add_real(WEB, [first]),
        wire.add_virtual(WEB),
        wire.add_virtual(WEB),
        wire.add_virtual(attrs.evolve(WEB, port=81, scheduler="nobody")),
        *wire.add_real(WEB, [first, first]),
        *wire.set_real(WEB, [second]),
        *wire.delete_real(WEB, [second]),
        *wire.add_real(WEB, [RealServer(ip_address("224.0.0.1").packed, 80), real(Family.IPV4, 3, upper=1, lower=2)]),
        wire.set_virtual(attrs.evolve(WEB, scheduler="nobody")),
        *wire.add_real(WEB, [second]),
    ]
    result = ipvs.change(changes)
    tcp = "tcp 192.0.2.1:80"
    assert [(refused.index, refused.reason) for refused in result.refused] == [
        (0, f"change the virtual server {tcp}: it is not there"),
        (1, "delete the virtual server tcp [2001:db8::1]:80: it is not there"),
        (2, f"add the real server 198.51.100.1:8080 to {tcp}: the virtual server is not there"),
        (4, f"make the virtual server {tcp}: it is there already"),
        (5, "make the virtual server tcp 192.0.2.1:81: the kernel has no such scheduler"),
        (7, f"add the real server 198.51.100.1:8080 to {tcp}: it is there already"),
        (8, f"change the real server 198.51.100.2:8080 of {tcp}: it is not there"),
        (9, f"delete the real server 198.51.100.2:8080 of {tcp}: it is not there"),
        (10, f"add the real server 224.0.0.1:80 to {tcp}: {reason(Command.NEW_DEST, errno.EINVAL)}"),
        (11, f"add the real server 198.51.100.3:8080 to {tcp}: its lower limit is above its upper one"),
        (12, f"change the virtual server {tcp}: the kernel has no such scheduler"),
    ]
    assert result.done == 3
    assert [refused.error for refused in result.refused[:2]] == [errno.ESRCH, errno.ESRCH]
    assert [listed.server for listed in ipvs.virtual_servers()] == [WEB]
    assert sorted(listed.server for listed in ipvs.real_servers(WEB)) == [first, second]


def test_many_at_once(ipvs: IpvsSocket) -> None:
    servers = [attrs.evolve(WEB, port=port) for port in range(1, 801)]
    reals = [real(Family.IPV4, number) for number in range(1, 6)]
    changes = [change for server in servers for change in (wire.add_virtual(server), *wire.add_real(server, reals))]
    doubled = [*changes[:4000], changes[0], *changes[4000:]]
    result = ipvs.change(doubled)
    assert [refused.index for refused in result.refused] == [4000]
    assert sorted((listed.server for listed in ipvs.virtual_servers()), key=lambda server: server.port) == servers
    seen = ipvs.glance()
    assert set(seen) == {server.place for server in servers}
    for server in (servers[0], servers[-1]):
        listed = sorted(listed.server for listed in ipvs.real_servers(server))
        assert listed == reals
        assert sorted(RealServer(*one[:4]) for one in seen[server.place]) == reals
    everything_again = ipvs.change(changes)
    assert len(everything_again.refused) == len(changes)
    ipvs.flush()
    assert ipvs.virtual_servers() == []
    assert ipvs.glance() == {}


# -- connections


@FAMILIES
def test_statistics_and_connections(ipvs: IpvsSocket, run: Run, namespace: int, family: Family) -> None:
    """A datagram from this node to a virtual server, whose real server is this node too."""
    run("ip", "link", "add", "kproxy-ipvs0", "type", "dummy")
    run("ip", "link", "set", "kproxy-ipvs0", "up")
    length = 32 if family == Family.IPV4 else 128
    for address in (SERVICE[family], f"{REAL[family]}1"):
        option = ["nodad"] if family == Family.IPV6 else []
        run("ip", "address", "add", f"{address}/{length}", "dev", "kproxy-ipvs0", *option)
    server = virtual(family, 53, 17)
    assert ipvs.change([wire.add_virtual(server), *wire.add_real(server, [real(family, 1)])]).ok
    kind = socket.AF_INET if family == Family.IPV4 else socket.AF_INET6
    with (
        namespaces.entered(namespace),
        socket.socket(kind, socket.SOCK_DGRAM) as answering,
        socket.socket(kind, socket.SOCK_DGRAM) as asking,
    ):
        answering.bind((f"{REAL[family]}1", 8080))
        answering.settimeout(20)
        asking.sendto(b"x" * 100, (SERVICE[family], 53))
        assert answering.recvfrom(200)[0] == b"x" * 100
    header = 28 if family == Family.IPV4 else 48
    wanted = Statistics(connections=1, packets_in=1, bytes_in=100 + header)
    assert comes(lambda: ipvs.virtual_servers()[0].statistics == wanted)
    (listed,) = ipvs.real_servers(server)
    assert listed.statistics == wanted
    assert (listed.active, listed.inactive, listed.persistent) == (0, 1, 0)
    (seen,) = ipvs.glance()[server.place]
    assert (seen.active, seen.inactive) == (0, 1)
    ipvs.zero(server)
    assert ipvs.real_servers(server)[0].statistics == Statistics()
    ipvs.zero()


def comes(condition: Callable[[], bool]) -> bool:
    """Whether something comes true: the kernel sums up its counts every two seconds."""
    for _ in range(300):
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_timeouts(ipvs: IpvsSocket, run: Run) -> None:
    ipvs.set_timeouts(Timeouts(tcp=500, tcp_fin=50, udp=60))
    assert ipvs.timeouts() == Timeouts(tcp=500, tcp_fin=50, udp=60)
    assert run("ipvsadm", "-L", "--timeout").strip() == "Timeout (tcp tcpfin udp): 500 50 60"
    ipvs.set_timeouts(Timeouts(udp=70))
    assert ipvs.timeouts() == Timeouts(tcp=500, tcp_fin=50, udp=70)


# -- who may


def test_namespaces_have_their_own(ipvs: IpvsSocket) -> None:
    ipvs.change([wire.add_virtual(WEB)])
    other = namespaces.create()
    with IpvsSocket(namespace=other) as elsewhere:
        assert elsewhere.virtual_servers() == []
        assert elsewhere.glance() == {}
    os.close(other)


def test_a_user_without_the_right(ipvs: IpvsSocket) -> None:
    program = """
import os, sys
from kproxy_core.kernel.errors import PermissionDeniedError
from kproxy_core.kernel.ipvs import IpvsSocket
from kproxy_core.wire.ipvs import VirtualServer, add_virtual
with IpvsSocket() as socket:
    os.setuid(65534)
    try:
        socket.change([add_virtual(VirtualServer(family=2, mark=1))])
    except PermissionDeniedError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "Operation not permitted" in done.stdout, done.stderr


def test_what_is_refused_outright(ipvs: IpvsSocket) -> None:
    with pytest.raises(NetlinkError):
        ipvs.zero(WEB)
