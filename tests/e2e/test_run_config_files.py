"""``kproxy check-config`` and ``kproxy run --config``: files, credentials and names that are right, wrong or missing."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from kproxy_core.config.kubeproxy import REMOVED
from kproxy_core.plugin.registry import installed_modes
from kproxy_core.testing.fake_api import Authority, User, replace_file
from kproxy_core.testing.lab import Namespace, can_build

from .conftest import Running, kproxy, wait_until
from .on_a_node import METRICS, OnANode, node_under_test

pytestmark = pytest.mark.e2e

GOOD = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables"}
WRONG = """\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mod: nftables
mode: nftable
iptables:
  syncPeriod: 30
udpIdleTimeout: 250ms
"""


@pytest.fixture
def there(tmp_path: Path, background: Callable[..., Running]) -> Iterator[OnANode]:
    if not can_build():
        pytest.skip("no privilege to make network namespaces (run as root or in a user namespace)")
    with node_under_test(tmp_path, background) as made:
        yield made


def written(folder: Path, **fields: object) -> str:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(GOOD | fields))
    return str(path)


# -- check-config


def test_a_good_file_is_called_good(tmp_path: Path) -> None:
    path = written(tmp_path)
    done = kproxy("check-config", path)
    assert (done.status, done.out, done.err) == (0, f"{path}: good, mode nftables\n", "")
    assert kproxy("check-config", path, "--json").json == {"file": path, "usable": True, "mode": "nftables", "problems": []}
    assert kproxy("check-config", "-", stdin=Path(path).read_text()).out == "-: good, mode nftables\n"


def test_all_problems_are_told_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(WRONG)
    done = kproxy("check-config", str(path))
    assert done.status == 1
    others = ", ".join(installed_modes())
    assert done.out.splitlines() == [
        f"{path}:3: error: mod: no field of the file; did you mean mode?",
        f"{path}:4: error: mode: mode 'nftable' is not installed (installed: {others}); did you mean 'nftables'?",
        f"{path}:6: error: iptables.syncPeriod: a duration such as 500ms, 30s or 1h30m is expected, not '30'",
        f"{path}:7: warning: udpIdleTimeout: no longer a field: {REMOVED['udpIdleTimeout']}",
        f"{path}: 3 errors",
    ]
    told = kproxy("check-config", str(path), "--output", "json")
    assert told.status == 1
    assert told.json["usable"] is False
    assert [(each["line"], each["field"], each["fatal"]) for each in told.json["problems"]] == [
        (3, "mod", True),
        (4, "mode", True),
        (6, "iptables.syncPeriod", True),
        (7, "udpIdleTimeout", False),
    ]


def test_a_file_that_cannot_be_opened_is_a_misuse(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Is a directory")):
        for command in (["check-config", str(path)], ["run", "--config", str(path)]):
            done = kproxy(*command)
            assert (done.status, done.err) == (2, f"Error: {path} cannot be read: {reason}\n")


# -- run --config


def test_the_daemon_refuses_a_file_with_every_line(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(WRONG)
    done = kproxy("run", "--config", str(path))
    assert done.status == 2
    assert done.err.startswith("Error: the configuration cannot be used:\n")
    assert [line.strip().partition(": ")[0] for line in done.err.splitlines()[1:]] == [f"{path}:{line}" for line in (3, 4, 6, 7)]


@pytest.mark.kernel
def test_a_kubeconfig_that_is_missing_or_wrong_is_told(tmp_path: Path) -> None:
    if not can_build():
        pytest.skip("no privilege to make network namespaces (run as root or in a user namespace)")
    namespace = Namespace.create()
    broken, empty = tmp_path / "broken", tmp_path / "empty"
    broken.write_text("kind: [Config\n")
    empty.write_text("kind: Config\napiVersion: v1\n")
    cases = {
        str(tmp_path / "none"): "no such file",
        str(broken): "is no YAML",
        str(empty): "kubeconfig",
        "": "name a kubeconfig (clientConnection.kubeconfig, --kubeconfig)",
    }
    quiet = {"conntrack": {"maxPerCore": 0}, "oomScoreAdj": 0}
    for kubeconfig, told in cases.items():
        path = written(tmp_path, clientConnection={"kubeconfig": kubeconfig}, **quiet)
        done = kproxy("run", "--config", path, "--netns", namespace.path, environment={"KUBERNETES_SERVICE_HOST": ""})
        assert done.status == 2, done.err
        last = done.err.splitlines()[-1]
        assert last.startswith("Error: ")
        assert told in last
        assert "Traceback" not in done.err
    namespace.close()


@pytest.mark.kernel
def test_wrong_credentials_and_an_unknown_authority_are_told_and_nothing_is_written(there: OnANode) -> None:
    there.serve("web", there.lab.pods["a1"])
    there.kubeconfig(User(token="wrong"))
    refused = there.start()
    refused.says("watching /api/v1/services: 401")
    refused.stop()
    there.kubeconfig(authority=Authority("somebody else"))
    untrusted = there.start()
    untrusted.says("check certificate-authority")
    assert there.tables() == []
    # The file is put right while the daemon runs.
    there.kubeconfig()
    untrusted.says("first sync: ")


@pytest.mark.kernel
def test_in_cluster_credentials(there: OnANode) -> None:
    web = there.serve("web", there.lab.pods["a1"])
    account = there.folder / "serviceaccount"
    account.mkdir()
    replace_file(account / "token", b"secret")
    replace_file(account / "ca.crt", there.api.server_authority.pem)
    # A Pod's view of the files, in a mount namespace of its own.
    script = (
        "mount --make-rprivate / && mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io && "
        f'ln -s {account} /run/secrets/kubernetes.io/serviceaccount && exec "$0" -m kproxy_core.cli.main "$@"'
    )
    port = there.api.url.rpartition(":")[2]
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    arguments = ["run", "--config", str(there.configuration(clientConnection=None)), "--netns", there.lab.node.namespace.path]
    daemon = there.background(
        *arguments, argv=["unshare", "--mount", "sh", "-c", script, sys.executable], env={**os.environ, **environment}
    )
    daemon.says("first sync: ")
    there.wait_for(there.lab.outside, web[0], {"a1"})
    assert daemon.stop() == 0


@pytest.mark.kernel
def test_warnings_of_a_usable_file_are_in_the_log(there: OnANode) -> None:
    daemon = there.run(udpIdleTimeout="250ms", featureGates={"Nonsense": True})
    assert "config.yaml:" in daemon.log
    assert "udpIdleTimeout: no longer a field" in daemon.log
    assert "featureGates.Nonsense: no feature gate that a service proxy knows" in daemon.log


@pytest.mark.kernel
def test_addresses_to_listen_at_and_the_log_are_the_files(there: OnANode) -> None:
    lab = there.lab
    daemon = there.run(
        healthzBindAddress=f"{lab.node.ipv4}:20256",
        metricsBindAddress=f"[{lab.node.ipv6}]:20249",
        logging={"format": "json", "verbosity": 4},
    )
    assert there.get("/healthz", 20256, lab.node.ipv4, lab.outside)[0] == 200
    assert there.get("/metrics", 20249, lab.node.ipv6, lab.outside)[0] == 200
    with pytest.raises(OSError):  # noqa: PT011 - refused, whatever the words
        there.get("/metrics", METRICS)
    assert daemon.log.splitlines()[-1].startswith('{"time": ')


@pytest.mark.kernel
def test_a_taken_address_is_waited_for_or_is_the_end(there: OnANode) -> None:
    import socket

    with there.lab.node.enter(), socket.socket() as other:
        other.bind(("127.0.0.1", METRICS))
        other.listen()
        hard = there.start(bindAddressHardFail=True)
        assert hard.wait() == 1
        assert f"cannot listen (127.0.0.1:{METRICS}: Address already in use), and bindAddressHardFail is set" in hard.log
        soft = there.run()
        assert f"cannot listen at 127.0.0.1:{METRICS}: Address already in use; trying again every 5 seconds" in soft.log
        assert there.health()[0] == 200
    soft.says(f"listening at 127.0.0.1:{METRICS} now")
    assert there.get("/metrics", METRICS)[0] == 200


@pytest.mark.kernel
def test_conntrack_is_set_as_the_file_says(there: OnANode) -> None:
    timeouts = {"tcpEstablishedTimeout": "2h0m0s", "tcpCloseWaitTimeout": "0s", "udpTimeout": "33s", "tcpBeLiberal": True}
    before = there.lab.node.sysctl("net.netfilter.nf_conntrack_tcp_timeout_close_wait")
    there.run(conntrack={"maxPerCore": 0, **timeouts})
    found = {
        name: there.lab.node.sysctl(f"net.netfilter.nf_conntrack_{name}")
        for name in ("tcp_timeout_established", "tcp_timeout_close_wait", "udp_timeout", "tcp_be_liberal")
    }
    assert found == {
        "tcp_timeout_established": "7200",
        "tcp_timeout_close_wait": before,
        "udp_timeout": "33",
        "tcp_be_liberal": "1",
    }


@pytest.mark.kernel
def test_udp_flows_to_endpoints_that_are_gone_are_counted(there: OnANode) -> None:
    from kproxy_core.testing.lab import UdpFlow

    from .on_a_node import slices

    lab = there.lab
    web = there.serve("web", lab.pods["a1"])
    there.run()
    with UdpFlow(lab.outside, web[0], 80) as flow:
        assert flow.exchange("one")
        there.api.apply_all(slices("web", lab.pods["b1"]))
        deleted = b'kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 1.0'
        wait_until(lambda: deleted in there.get("/metrics", METRICS)[1], "the stale flow is deleted")
    timed = b'kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family="IPv6"}'
    assert timed in there.get("/metrics", METRICS)[1]
