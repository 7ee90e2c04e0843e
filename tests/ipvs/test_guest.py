"""The kernel that these tests run on has what the ipvs mode uses."""

import pytest

from kproxy_core.testing.guest.ipvs import kernel_has_ipvs

from .conftest import Run

pytestmark = [pytest.mark.ipvs, pytest.mark.kernel]
SCHEDULERS = ("rr", "wrr", "lc", "wlc", "sh", "mh", "dh", "sed", "nq", "fo", "ovf")


def test_it_has_ipvs() -> None:
    assert kernel_has_ipvs()


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_schedulers_and_protocols(run: Run, scheduler: str) -> None:
    lines = [
        f"-A {protocol} {service} -s {scheduler}\n-a {protocol} {service} -r {server} -m\n"
        for protocol in ("-t", "-u", "--sctp-service")
        for service, server in (("192.0.2.1:80", "198.51.100.1:80"), ("[2001:db8::1]:80", "[2001:db8::2]:80"))
    ]
    run("ipvsadm", "-R", reads="".join(lines))
    listing = run("ipvsadm", "-S", "-n").splitlines()
    assert sum(line.endswith(f" -s {scheduler}") for line in listing) == 6
    assert sum(" -m " in line for line in listing) == 6


def test_dummy_links(run: Run) -> None:
    run("ip", "link", "add", "kproxy-ipvs0", "type", "dummy")
    run("ip", "address", "add", "192.0.2.1/32", "dev", "kproxy-ipvs0")
    run("ip", "address", "add", "2001:db8::1/128", "dev", "kproxy-ipvs0")
    listing = run("ip", "-oneline", "address", "show", "dev", "kproxy-ipvs0")
    assert "192.0.2.1/32" in listing
    assert "2001:db8::1/128" in listing


@pytest.mark.parametrize("family", ["inet", "inet6"])
def test_rules_that_look_into_sets(run: Run, family: str) -> None:
    program = "iptables-legacy" if family == "inet" else "ip6tables-legacy"
    run("ipset", "create", "frontends", "hash:ip,port", "family", family)
    match = ("-m", "set", "--match-set", "frontends", "dst,dst", "-m", "ipvs", "--ipvs")
    run(program, "-t", "nat", "-A", "POSTROUTING", *match, "-j", "MASQUERADE")
    assert "--match-set frontends dst,dst" in run(program, "-t", "nat", "-S")
