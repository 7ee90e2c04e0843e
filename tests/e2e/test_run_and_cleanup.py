"""The daemon keeps the kernel as the manifests want it, two of them take turns, and cleanup leaves nothing."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kproxy_core.kernel import writer_lock
from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.testing.lab import Namespace
from kproxy_core.wire.nfnetlink import Family
from kproxy_core.wire.nft_objects import Table
from kproxy_core.wire.nft_operations import add

from ..programs import program
from .conftest import TAKEN_OVER, Done, Running, install_mode, kproxy, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]

Background = Callable[..., Running]


def arguments(namespace: Namespace, manifests: Path, mode: str = "nftables") -> list[str]:
    """The command line of a daemon."""
    return ["run", "--source", f"manifests:{manifests}", "--mode", mode, "--node-name", "node-a", "--netns", namespace.path]


def leftovers(namespace: Namespace, mode_name: str = "nftables") -> list[str]:
    """What of a mode is in a network namespace."""
    command = ["cleanup", "--mode", mode_name, "--netns", namespace.path, "--dry-run", "--json"]
    (mode,) = kproxy(*command).json["modes"]
    assert mode["error"] == ""
    lines: list[str] = mode["would_remove"]
    return lines


def cleanup(namespace: Namespace, *more: str) -> Done:
    """Clean up a network namespace."""
    return kproxy("cleanup", "--mode", "nftables", "--netns", namespace.path, *more)


def status(namespace: Namespace) -> dict[str, object]:
    """What the daemon in a network namespace says of itself."""
    return writer_lock.ask({"ask": "status"}, namespace=namespace.descriptor)


def test_the_rules_follow_the_manifests_and_stay_when_the_daemon_ends(
    namespace: Namespace, manifests: Path, background: Background
) -> None:
    daemon = background(*arguments(namespace, manifests))
    daemon.says("first sync: ")
    assert status(namespace)["ports"] == 2
    (manifests / "second.yaml").write_text((manifests / "service.yaml").read_text().replace("name: web", "name: second", 1))
    wait_until(lambda: status(namespace)["ports"] == 4, "the second Service")
    assert daemon.stop() == 0
    assert "stopped; the kernel keeps its rules" in daemon.log
    assert leftovers(namespace)
    again = background(*arguments(namespace, manifests))
    again.says(TAKEN_OVER)


@pytest.mark.parametrize("modes", [("nftables", "iptables"), ("iptables", "nftables")], ids=" to ".join)
def test_a_daemon_of_another_mode_removes_what_the_former_one_left_once_its_own_rules_are_there(
    namespace: Namespace, manifests: Path, background: Background, modes: tuple[str, str]
) -> None:
    program("iptables")
    former, new = modes
    daemon = background(*arguments(namespace, manifests, former))
    daemon.says("first sync: ")
    assert daemon.stop() == 0
    assert leftovers(namespace, former)
    daemon = background(*arguments(namespace, manifests, new))
    daemon.says(f"removed what mode {former} has left: ")
    assert daemon.log.index("first sync: ") < daemon.log.index("removed what mode")
    wait_until(lambda: not leftovers(namespace, former), "nothing of the former mode is left")
    assert daemon.stop() == 0
    assert leftovers(namespace, new)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(namespace: Namespace, manifests: Path, background: Background, number: int) -> None:
    daemon = background(*arguments(namespace, manifests))
    daemon.says("first sync: ")
    assert daemon.stop(number) == 0
    assert "Traceback" not in daemon.log


def test_a_second_daemon_waits_and_takes_over(namespace: Namespace, manifests: Path, background: Background) -> None:
    first = background(*arguments(namespace, manifests))
    first.says("first sync: ")
    second = background(*arguments(namespace, manifests))
    second.says(f"process {first.process.pid} of user")
    assert "first sync" not in second.log
    first.send(signal.SIGKILL)
    second.says(TAKEN_OVER)
    assert status(namespace)["pid"] == second.process.pid


def test_the_log_can_be_json(namespace: Namespace, manifests: Path, background: Background) -> None:
    daemon = background(*arguments(namespace, manifests), "--log-format", "json")
    daemon.says("first sync: ")
    daemon.stop()
    lines = [json.loads(line) for line in daemon.log.splitlines()]
    assert all({"time", "level", "message"} <= set(line) for line in lines)
    assert [line["operations"] for line in lines if line["message"].startswith("first sync: ")]


def test_verbosity(namespace: Namespace, manifests: Path, background: Background) -> None:
    for verbose, expected in ((["-v"], True), (["--v=4"], True), (["-v=4"], True), (["--v=2"], False)):
        daemon = background(*arguments(namespace, manifests), *verbose)
        daemon.says("first sync: ")
        daemon.send(signal.SIGHUP)
        wait_until(lambda: _has_checked(namespace), "a check")
        daemon.stop()
        assert ("DEBUG sync: 0 operations" in daemon.log) == expected, (verbose, daemon.log)


def _has_checked(namespace: Namespace) -> bool:
    last = status(namespace)["last_sync"]
    assert isinstance(last, dict)
    return bool(last["operations"] == 0 and last["changed_ports"] == 0)


def test_what_is_amiss_with_the_node_is_logged(namespace: Namespace, manifests: Path, background: Background) -> None:
    daemon = background(*arguments(namespace, manifests))
    daemon.says("first sync: ")
    assert "WARNING net.ipv4.ip_forward: " in daemon.log
    assert "remedy: sysctl -w net.ipv4.ip_forward=1" in daemon.log


def test_standard_input_is_read_once(namespace: Namespace, manifests: Path, background: Background) -> None:
    text = "\n---\n".join(path.read_text() for path in sorted(manifests.iterdir()))
    source = manifests.parent / "all.yaml"
    source.write_text(text)
    command = f'exec "$0" -m kproxy_core.cli.main run --source - --mode nftables --netns {namespace.path} < {source}'
    daemon = background(argv=["bash", "-c", command, sys.executable])
    daemon.says("first sync: ")
    assert status(namespace)["ports"] == 2


def test_a_broken_manifest_does_not_take_services_away(namespace: Namespace, manifests: Path, background: Background) -> None:
    daemon = background(*arguments(namespace, manifests))
    daemon.says("first sync: ")
    (manifests / "service.yaml").write_text("kind: [Service\n")
    daemon.says("file service.yaml: line")
    assert status(namespace)["ports"] == 2


def test_an_extension_that_cannot_be_loaded_is_told_and_left_out(
    namespace: Namespace, manifests: Path, background: Background, tmp_path: Path
) -> None:
    (tmp_path / "broken_extension.py").write_text("raise RuntimeError('half installed')")
    information = tmp_path / "broken_extension-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-extension\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[kproxy.extensions]\nbroken = broken_extension\n")
    daemon = background(*arguments(namespace, manifests), env={**os.environ, "PYTHONPATH": str(tmp_path)})
    daemon.says("first sync: ")
    assert "the extension broken cannot be loaded, and is left out: RuntimeError('half installed')" in daemon.log


def test_the_daemon_imports_no_more_than_it_needs(namespace: Namespace, manifests: Path, background: Background) -> None:
    code = """
import atexit, sys
atexit.register(lambda: print(*sys.modules))
from kproxy_core.cli.main import main
main(sys.argv[1:])
"""
    daemon = background(*arguments(namespace, manifests), argv=[sys.executable, "-c", code])
    daemon.says("first sync: ")
    assert daemon.stop() == 0
    modules = set(daemon.out.split())
    assert "kproxy_core.runtime.daemon" in modules
    heavy = {"rich", "pyroute2", "kubernetes", "hypothesis", "pytest", "kproxy_core.testing", "asyncio", "urllib3", "requests"}
    assert heavy & modules == set()


def test_it_ends_with_its_parent_when_told_to(namespace: Namespace, manifests: Path, background: Background) -> None:
    code = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(1000)"
    daemon = [sys.executable, "-m", "kproxy_core.cli.main", *arguments(namespace, manifests), "--end-with-parent"]
    parent = background(argv=[sys.executable, "-c", code, *daemon])
    parent.says("first sync: ")
    parent.send(signal.SIGKILL)
    parent.wait()
    assert writer_lock.wait_until_free(timeout=30, namespace=namespace.descriptor)


def test_cleanup_removes_ours_and_touches_nothing_else(namespace: Namespace, manifests: Path, background: Background) -> None:
    foreign = [Table(family=family, name=name) for family in (Family.IPV4, Family.INET) for name in ("theirs", "kproxyish")]
    with NftSocket(namespace=namespace.descriptor) as nft:
        assert nft.commit([add(table) for table in foreign]).ok
    daemon = background(*arguments(namespace, manifests))
    daemon.says("first sync: ")
    daemon.stop()
    found = leftovers(namespace)
    done = cleanup(namespace)
    assert done.status == 0
    assert all(f"  {line}\n" in done.out for line in found)
    assert leftovers(namespace) == []
    with NftSocket(namespace=namespace.descriptor) as nft:
        assert sorted(table.name for table in nft.tables()) == sorted(table.name for table in foreign)
    again = cleanup(namespace)
    assert (again.status, again.out) == (0, "nftables: nothing there\n")


def test_cleanup_does_not_work_against_a_daemon(namespace: Namespace, manifests: Path, background: Background) -> None:
    daemon = background(*arguments(namespace, manifests))
    daemon.says("first sync: ")
    refused = cleanup(namespace)
    assert refused.status == 1
    assert f"(process {daemon.process.pid}, user " in refused.err
    assert refused.err.rstrip().endswith("kproxy cleanup --stop")
    assert leftovers(namespace)
    assert daemon.process.poll() is None


def test_cleanup_can_stop_the_daemon_first(namespace: Namespace, manifests: Path, background: Background) -> None:
    daemon = background(*arguments(namespace, manifests))
    daemon.says("first sync: ")
    done = cleanup(namespace, "--stop", "--json")
    assert done.status == 0, done.err
    assert done.json["stopped_process"] == daemon.process.pid
    assert done.json["modes"][0]["removed"]
    assert daemon.wait() == 0
    assert leftovers(namespace) == []
    assert cleanup(namespace, "--stop").status == 0


def test_cleanup_goes_on_when_a_mode_is_broken(
    namespace: Namespace, manifests: Path, background: Background, tmp_path: Path
) -> None:
    daemon = background(*arguments(namespace, manifests))
    daemon.says("first sync: ")
    daemon.stop()
    folder = tmp_path / "plugins"
    folder.mkdir()
    environment = install_mode(folder, "broken", "raise RuntimeError('half installed')")
    done = kproxy("cleanup", "--netns", namespace.path, "--json", environment=environment)
    assert done.status == 1
    modes = {mode["name"]: mode for mode in done.json["modes"]}
    assert "half installed" in modes["broken"]["error"]
    assert modes["nftables"]["removed"]
    assert leftovers(namespace) == []


def test_ctrl_c_while_standard_input_is_waited_for(namespace: Namespace) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kproxy_core.cli.main", "run", "--source", "-", "--mode", "nftables", "--netns", namespace.path],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    # The node is looked at before standard input is read; from then on it waits.
    assert b"WARNING" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in rest


def test_a_mistake_at_the_start_takes_nothing_out_of_the_kernel(
    namespace: Namespace, manifests: Path, background: Background
) -> None:
    daemon = background(*arguments(namespace, manifests))
    daemon.says("first sync: ")
    assert daemon.stop() == 0
    before = leftovers(namespace)
    service = manifests / "service.yaml"
    text = service.read_text()
    service.write_text(text.replace("\nspec:\n  ", "\nspec:\n\t"))
    daemon = background(*arguments(namespace, manifests))
    daemon.says("the kernel keeps what it has")
    assert "file service.yaml: line" in daemon.log
    assert "indent with spaces only" in daemon.log
    assert leftovers(namespace) == before
    service.write_text(text)
    daemon.says(TAKEN_OVER)
    assert daemon.stop() == 0
    assert leftovers(namespace) == before
