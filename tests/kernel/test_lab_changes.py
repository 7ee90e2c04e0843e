"""Pods that come and go, and the end of a lab: nothing of it is left, however it ends."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy_core.testing.lab import (
    Answer,
    Dropped,
    Host,
    Lab,
    LabError,
    LabPlan,
    Namespace,
    Refused,
    ask,
    can_build,
    hold,
    in_user_namespace,
    links,
)
from kproxy_core.testing.lab.plan import NODE2

pytestmark = pytest.mark.kernel

SURE = 10.0  # seconds, where an answer is certain to come: a busy machine is no drop

SMALL = LabPlan(node_routed=1, node_bridged=1, node2_routed=1)
BOTH = pytest.mark.parametrize("ipv6", [False, True], ids=["v4", "v6"])


def _wait(condition: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Probe:
    """A namespace with a link into each namespace that is to die: the link's end here goes with it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._made = 0

    def attach(self, descriptor: int) -> None:
        cable = links.Cable(
            near=f"probe{self._made}",
            near_mac=f"02:00:00:00:00:{self._made & 255:02x}",
            far="probed",
            far_mac="02:00:00:00:01:00",
            far_in=descriptor,
        )
        self._made += 1
        with self._host.iproute() as ipr:
            links.connect(ipr, cable)

    def left(self) -> list[str]:
        return re.findall(r"probe\d+", self._host.call(Path("/proc/net/dev").read_text))


@pytest.fixture
def probe() -> Iterator[Probe]:
    if not can_build():
        pytest.skip("no privilege to make network namespaces (run as root, or: python -m kproxy_core.testing.lab pytest)")
    namespace = Namespace.create()
    from kproxy_core.testing.lab import AddressPair

    yield Probe(Host("probe", namespace, AddressPair(ipv4="", ipv6="")))
    namespace.close()


def _descriptors() -> set[str]:
    return {str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}


def _children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


@BOTH
@pytest.mark.parametrize("bridged", [False, True], ids=["routed", "bridged"])
@pytest.mark.parametrize("on", ["node", NODE2])
def test_a_pod_comes_and_goes(lab: Lab, on: str, bridged: bool, ipv6: bool) -> None:
    pod = lab.add_pod("new", on=on, bridged=bridged)
    lab.serve(pod, 80)
    for client in (lab.outside, lab.node, lab.pods["a1"], lab.pods["abr1"], lab.pods["b1"]):
        assert isinstance(ask(client, pod.address(ipv6), 80, timeout=SURE), Answer), client
    with hold(lab.outside, pod.address(ipv6), 80, timeout=SURE) as held:
        assert held.alive()
        lab.remove_pod("new")
        assert not held.alive()
    assert "new" not in lab.hosts
    assert ask(lab.outside, pod.address(ipv6), 80, timeout=0.1) == Dropped()
    again = lab.add_pod("newer", on=on, bridged=bridged)
    assert again.address(ipv6) == pod.address(ipv6)
    lab.serve(again, 80)
    assert isinstance(ask(lab.outside, again.address(ipv6), 80, timeout=SURE), Answer)


def test_a_pod_may_vanish_without_a_word(lab: Lab) -> None:
    lab.serve(lab.pods["b1"], 80)
    with hold(lab.outside, lab.pods["b1"].ipv4, 80, timeout=SURE) as held:
        lab.remove_pod("b1", abruptly=True)
        assert held.exchange(timeout=0.2) == Dropped(connected=True)


def test_a_pod_that_cannot_be_added_is_told(lab: Lab) -> None:
    before = dict(lab.hosts)
    with pytest.raises(ValueError, match="a host called 'a1'"):
        lab.add_pod("a1")
    with pytest.raises(ValueError, match="not one of"):
        lab.add_pod("x", on="outside")
    assert lab.hosts == before


def test_a_removed_pods_namespace_dies(lab: Lab, probe: Probe) -> None:
    pod = lab.pods["a1"]
    lab.serve(pod, 80)
    probe.attach(pod.namespace.descriptor)
    assert probe.left() == ["probe0"]
    lab.remove_pod("a1")
    assert _wait(lambda: probe.left() == [])
    with pytest.raises(LabError, match="closed"):
        ask(pod, "10.96.0.1", 80, timeout=SURE)


def test_twenty_labs_leave_nothing(probe: Probe) -> None:
    with Lab(SMALL) as first:
        assert ask(first.node, "127.0.0.1", 1, timeout=SURE) == Refused(by="rst")
    descriptors, threads, children = _descriptors(), threading.active_count(), _children()
    for _ in range(20):
        with Lab(SMALL) as lab:
            for host in lab.hosts.values():
                lab.serve(host, 80)
                probe.attach(host.namespace.descriptor)
            assert isinstance(ask(lab.outside, lab.pods["a1"].ipv6, 80, timeout=SURE), Answer)
    assert (_descriptors(), threading.active_count(), _children()) == (descriptors, threads, children)
    assert _wait(lambda: probe.left() == [])


def test_closing_twice_is_closing(probe: Probe) -> None:
    with Lab(SMALL) as lab:
        probe.attach(lab.node.namespace.descriptor)
        lab.close()
        assert not lab.hosts
        with pytest.raises(LabError, match="closed"):
            lab.serve(lab.hosts.get("node"), 80)  # type: ignore[arg-type]
    lab.close()
    assert _wait(lambda: probe.left() == [])


def _names(prefix: str) -> list[str]:
    return sorted(path.name for path in Path("/run/netns").glob(f"{prefix}-*"))


@pytest.fixture
def prefix() -> str:
    if os.geteuid() != 0 or not os.access("/run", os.W_OK):
        pytest.skip("no privilege to write to /run/netns (run as root)")
    return f"klab{os.getpid()}"


def test_names_are_there_and_gone(prefix: str) -> None:
    with Lab(SMALL, names=prefix) as lab:
        assert _names(prefix) == sorted(f"{prefix}-{name}" for name in lab.hosts)
        assert lab.node.namespace.path == f"/run/netns/{prefix}-node"
        way = lab.node.namespace.descriptor_path if in_user_namespace() else lab.node.namespace.name
        assert way in lab.enter_command(lab.node)
        assert os.stat(lab.node.namespace.path).st_ino == os.stat(lab.node.namespace.descriptor_path).st_ino  # noqa: PTH116
        lab.remove_pod("a1")
        assert f"{prefix}-a1" not in _names(prefix)
    assert _names(prefix) == []


def test_a_name_in_use_stops_the_building_and_is_left_alone(prefix: str) -> None:
    taken = Namespace.create()
    taken.publish(f"{prefix}-node2")
    try:
        descriptors, children = _descriptors(), _children()
        with pytest.raises(LabError, match="exists: choose another name"), Lab(SMALL, names=prefix):
            pass
        assert (_descriptors(), _children()) == (descriptors, children)
        assert _names(prefix) == [f"{prefix}-node2"]
    finally:
        taken.close()
    assert _names(prefix) == []


SCRIPT = """
import os, sys, time
from kproxy_core.testing.lab import Lab, LabPlan
with Lab(LabPlan(node_routed=1, node_bridged=0, node2_routed=0), names=sys.argv[1]) as lab:
    for host in lab.hosts.values():
        lab.serve(host, 80)
    print(lab.node.namespace.descriptor_path, flush=True)
    time.sleep(600)
"""


def _start(names: str) -> tuple[subprocess.Popen[str], str]:
    argv = [sys.executable, "-c", SCRIPT, names]
    started = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert started.stdout is not None
    return started, started.stdout.readline().strip()


def test_a_killed_lab_leaves_nothing(probe: Probe) -> None:
    started, path = _start("")
    descriptor = os.open(path, os.O_RDONLY)
    probe.attach(descriptor)
    os.close(descriptor)
    started.send_signal(signal.SIGKILL)
    started.communicate()
    assert _wait(lambda: probe.left() == []), "its server process, or something else, still holds the node"


def test_ctrl_c_at_a_terminal_cleans_up(prefix: str, probe: Probe) -> None:
    started, path = _start(prefix)
    descriptor = os.open(path, os.O_RDONLY)
    probe.attach(descriptor)
    os.close(descriptor)
    assert _names(prefix) != []
    os.killpg(started.pid, signal.SIGINT)
    _out, error = started.communicate(timeout=60)
    assert "KeyboardInterrupt" in error
    assert "LabError" not in error
    assert _names(prefix) == []
    assert _wait(lambda: probe.left() == [])
