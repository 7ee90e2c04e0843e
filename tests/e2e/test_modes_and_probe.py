"""The installed modes are listed, probed and chosen from, whatever is wrong with some of them."""

from pathlib import Path

import pytest

from kproxy_core.kernel.namespaces import entered
from kproxy_core.kernel.writer_lock import WriterLock
from kproxy_core.plugin.backend import Capability
from kproxy_core.testing.lab import Namespace

from .conftest import Done, install_mode, ipv6_is_on, kproxy

pytestmark = pytest.mark.e2e

BROKEN = "raise RuntimeError('half installed')"
LEAVING = "raise SystemExit(7)"
MEMORY = """
from kproxy_core.plugin.hookspecs import hookimpl
from kproxy_core.testing.memory_backend import MemoryBackend, MemoryKernel

@hookimpl
def kproxy_backend(mode, settings):
    return MemoryBackend(MemoryKernel())
"""
REFUSING = """
from kproxy_core.plugin.backend import Finding, Support
from kproxy_core.plugin.hookspecs import hookimpl
from kproxy_core.testing.memory_backend import MemoryBackend, MemoryKernel

class Refusing(MemoryBackend):
    capabilities = frozenset()
    def probe(self):
        return Support(findings=(Finding(name="magic", ok=False, message="there is no magic here", remedy="learn some"),))

@hookimpl
def kproxy_backend(mode, settings):
    return Refusing(MemoryKernel())
"""
FAILING = REFUSING.replace("return Support(", "raise ValueError('oops') or Support(")


def mode_of(done: Done, name: str) -> dict[str, object]:
    """One mode of ``kproxy modes --json``."""
    found: dict[str, object] = next(mode for mode in done.json["modes"] if mode["name"] == name)
    return found


def test_modes_tell_what_they_can_do() -> None:
    done = kproxy("modes")
    assert done.status == 0
    assert "nftables  (kproxy-nftables " in done.out
    assert f"  - {Capability.ATOMIC.value}" in done.out


def test_modes_as_json() -> None:
    mode = mode_of(kproxy("modes", "--json"), "nftables")
    assert (mode["distribution"], mode["loads"], mode["error"]) == ("kproxy-nftables", True, "")
    assert mode["capabilities"] == {
        capability.name.lower(): capability.value
        for capability in sorted(Capability, key=lambda capability: capability.name)
        if capability.name.lower() in mode["capabilities"]  # type: ignore[operator]
    }
    assert kproxy("modes", "--output", "json").json == kproxy("modes", "--json").json


@pytest.mark.parametrize("source", [BROKEN, LEAVING])
def test_a_broken_mode_is_listed_and_harms_no_other(tmp_path: Path, source: str) -> None:
    environment = install_mode(tmp_path, "broken", source)
    listed = kproxy("modes", environment=environment)
    assert listed.status == 0
    assert "broken  (kproxy-test-broken 3.2.1)\n  does not load: " in listed.out
    assert "nftables  (kproxy-nftables " in listed.out
    mode = mode_of(kproxy("modes", "--json", environment=environment), "broken")
    assert (mode["loads"], mode["usable"], mode["version"]) == (False, False, "3.2.1")


def test_a_broken_mode_that_is_asked_for_is_told(tmp_path: Path) -> None:
    environment = install_mode(tmp_path, "broken", BROKEN)
    done = kproxy("render", "--source", "manifests:examples/web", "--mode", "broken", environment=environment)
    assert done.status == 1
    assert "half installed" in done.err
    assert "Traceback" not in done.err
    probed = kproxy("probe", "broken", environment=environment)
    assert probed.status == 1
    assert "missing plugin" in probed.out
    assert "remedy: install kproxy-test-broken again, or remove it" in probed.out


def test_the_best_mode_is_chosen_and_said_aloud(tmp_path: Path) -> None:
    environment = install_mode(tmp_path, "broken", BROKEN) | install_mode(tmp_path, "refusing", REFUSING)
    done = kproxy("render", "--source", "manifests:examples/web", environment=environment)
    assert done.status == 0
    assert done.err.startswith("mode nftables: the best of the installed ones")
    assert "table ip kproxy-nftables" in done.out


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (REFUSING, "magic: there is no magic here"),
        (FAILING, "the probe itself failed: oops"),
    ],
)
def test_a_mode_that_cannot_work_here_is_not_run(tmp_path: Path, source: str, told: str) -> None:
    environment = install_mode(tmp_path, "refusing", source)
    done = kproxy("run", "--source", "manifests:examples/web", "--mode", "refusing", environment=environment)
    assert done.status == 1
    assert "mode refusing cannot run here" in done.err
    assert told in done.err
    assert "Traceback" not in done.err
    probed = kproxy("probe", "refusing", "--json", environment=environment)
    assert probed.status == 1
    (mode,) = probed.json["modes"]
    assert (mode["name"], mode["usable"], mode["findings"][0]["state"]) == ("refusing", False, "missing")


@pytest.mark.kernel
def test_a_node_that_lacks_much_is_told_so(namespace: Namespace) -> None:
    done = kproxy("probe", "nftables", "--netns", namespace.path, "--json")
    assert done.status == 0, done.out
    states = {finding["name"]: finding["state"] for finding in done.json["node"]}
    assert states["net.ipv4.ip_forward"] == "warning"
    assert (states["CAP_NET_ADMIN"], states["another kproxy"], states["kube-proxy"]) == ("ok", "ok", "ok")
    assert [mode["name"] for mode in done.json["modes"]] == ["nftables"]


@pytest.mark.kernel
def test_a_node_in_order_is_told_so(namespace: Namespace) -> None:
    with namespace.enter():
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        if ipv6_is_on():
            Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1")
        Path("/proc/sys/net/ipv4/conf/all/rp_filter").write_text("0")
    states = {f["name"]: f["state"] for f in kproxy("probe", "--netns", namespace.path, "--json").json["node"]}
    expected = {"net.ipv4.ip_forward": "ok", "rp_filter": "ok"}
    if ipv6_is_on():
        expected["net.ipv6.conf.all.forwarding"] = "ok"
    assert {name: states[name] for name in expected} == expected


@pytest.mark.kernel
def test_strict_reverse_path_filters_are_told_by_interface(namespace: Namespace) -> None:
    _add_link(namespace, "pod0", kind="veth", peer={"ifname": "pod1"})
    with namespace.enter():
        Path("/proc/sys/net/ipv4/conf/all/rp_filter").write_text("0")
        Path("/proc/sys/net/ipv4/conf/pod0/rp_filter").write_text("1")
    done = kproxy("probe", "--netns", namespace.path)
    assert "the reverse path filter is strict on pod0" in done.out
    with namespace.enter():
        Path("/proc/sys/net/ipv4/conf/all/rp_filter").write_text("2")
    assert "no interface drops packets by a strict reverse path filter" in kproxy("probe", "--netns", namespace.path).out


@pytest.mark.kernel
def test_a_bridge_makes_br_netfilter_matter(namespace: Namespace) -> None:
    assert "br_netfilter" not in kproxy("probe", "--netns", namespace.path).out
    _add_link(namespace, "cbr0", kind="bridge")
    assert "br_netfilter" in kproxy("probe", "--netns", namespace.path).out


def _add_link(namespace: Namespace, name: str, **attributes: object) -> None:
    from pyroute2.iproute import IPRoute

    with namespace.enter(), IPRoute() as ipr:
        ipr.link("add", ifname=name, **attributes)


@pytest.mark.kernel
def test_another_kproxy_is_told(namespace: Namespace) -> None:
    with entered(namespace.descriptor), WriterLock():
        findings = kproxy("probe", "--netns", namespace.path, "--json").json["node"]
    (another,) = [finding for finding in findings if finding["name"] == "another kproxy"]
    assert another["state"] == "warning"


@pytest.mark.kernel
@pytest.mark.parametrize("table", ["kube-proxy", "nat"])
def test_rules_of_kube_proxy_are_told(namespace: Namespace, table: str) -> None:
    from kproxy_core.kernel.nftables import NftSocket
    from kproxy_core.wire.nfnetlink import Family
    from kproxy_core.wire.nft_objects import Chain, Table
    from kproxy_core.wire.nft_operations import add

    with NftSocket(namespace=namespace.descriptor) as nft:
        operations = [add(Table(family=Family.IPV4, name=table))]
        operations.append(add(Chain(family=Family.IPV4, table=table, name="KUBE-SERVICES")))
        assert nft.commit(operations).ok
    findings = kproxy("probe", "--netns", namespace.path, "--json").json["node"]
    (found,) = [finding for finding in findings if finding["name"] == "kube-proxy"]
    assert found["state"] == "warning"
    assert table in found["message"]
    assert "kube-proxy --cleanup" in found["remedy"]
