"""API bytes to rules in the kernel: the whole daemon as a process, the fake API server as another one."""

import contextlib
import http.client
import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from attrs import define, field

from benchmarks.bench_api_client import _services, _slice
from benchmarks.bench_nftables_load import load_peer
from benchmarks.measure import Table, in_fresh_namespace

SERVICES = 10_000
ENDPOINTS = 10
CHANGES = 200
RATES = (10, 2)
"""Changes a second: faster than the daemon commits one by one, and slower."""
PATIENCE = 120.0

Figures = dict[str, float]
METRICS_PORT = 10249

_CHANGED = bytes([11, 22])
"""The first bytes of the addresses of changed endpoints, which nothing else has."""
_NETLINK_NETFILTER, _SOL_NETLINK, _ADD_MEMBERSHIP, _NFTABLES_GROUP = 12, 270, 1, 7


def run() -> list[Table]:
    """Start the daemon on an empty and on a large cluster, then change endpoints one by one."""
    empty = in_fresh_namespace(measure, 0, ())
    full = in_fresh_namespace(measure, SERVICES, RATES)
    load = Table(f"start: {SERVICES} Services x {ENDPOINTS} endpoints, process started -> rules in the kernel")
    load.rows = [{"Services": 0, **empty["load"]}, {"Services": SERVICES, **full["load"]}]
    phases = Table("processor seconds of the start by phase; those of the sync by their shares of its time")
    phases.rows = [_phases(empty["load"], full["load"], full["phases"])]
    changes = Table("one endpoint changed: sent by the API server -> element in the kernel (milliseconds), processor time each")
    changes.rows = full["changes"]
    if shutil.which("nft"):
        _add_peer(load, changes)
    return [load, phases, changes]


def _phases(empty: Figures, full: Figures, of_sync: Figures) -> dict[str, str | float | int]:
    """Divide the processor time: the main thread starts and syncs, the others list and decode."""
    start, listing = empty["cpu s"], full["cpu s"] - full["cpu s main thread"]
    syncing = max(0.0, full["cpu s"] - start - listing)
    whole = sum(of_sync.values())
    shares = {phase: syncing * seconds / whole for phase, seconds in of_sync.items()}
    return {"start": start, "list, decode": listing, **shares}


def _add_peer(load: Table, changes: Table) -> None:
    """Set the same cluster, programmed from memory in the way kube-proxy does it, beside the whole process."""
    peer = in_fresh_namespace(load_peer, SERVICES)
    load.rows[-1] |= {"kube-proxy layout, kernel alone": peer["wall"]}
    load.rows[-1]["times faster"] = round(peer["wall"] / float(load.rows[-1]["seconds"]), 1)
    for row in changes.rows:
        row |= {"kube-proxy layout, kernel alone": peer["change"], "times faster": round(peer["change"] / float(row["p50"]), 1)}


def measure(size: int, rates: tuple[int, ...]) -> dict[str, Any]:
    """Measure one cluster; runs in a network namespace of its own."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as name, _api(Path(name), size) as api, _Elements() as elements:
        folder = Path(name)
        with _daemon(folder) as daemon:
            load = {"seconds": daemon.wait_synced(), **daemon.resources()}
            phases = daemon.phases()
            changes = [_change(api, elements, daemon, rate) for rate in rates]
            if rates:
                load["peak MiB after changes"] = daemon.resources()["peak MiB"]
                daemon.check()
                load["peak MiB after a check"] = daemon.resources()["peak MiB"]
    return {"load": load, "phases": phases, "changes": changes}


def _change(api: Connection, elements: "_Elements", daemon: "_Daemon", rate: int) -> dict[str, float]:
    """Have endpoints changed at a steady rate, each of another Service; return the latencies."""
    time.sleep(2)
    elements.seen.clear()
    cpu = daemon.resources()["cpu s"]
    api.send((CHANGES, rate))
    sent: dict[int, float] = api.recv()
    end = time.monotonic() + PATIENCE
    while len(elements.seen.keys() & sent.keys()) < len(sent):
        if time.monotonic() > end:
            raise RuntimeError("changes do not arrive")
        time.sleep(0.05)
    latencies = sorted((elements.seen[number] - at) * 1000 for number, at in sent.items())
    spent = (daemon.resources()["cpu s"] - cpu) / len(sent) * 1000
    p50, p99 = (latencies[int(len(latencies) * share)] for share in (0.5, 0.99))
    return {"changes a second": rate, "changes": len(sent), "p50": p50, "p99": p99, "worst": latencies[-1], "cpu ms each": spent}


# -- the API server, in a process of its own


@contextlib.contextmanager
def _api(folder: Path, size: int) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(str(folder), size, theirs), daemon=True)
    # A pool's workers may have no children of their own, unless they do not know that they are workers.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # noqa: SLF001
    process.start()
    theirs.close()
    try:
        if not ours.poll(PATIENCE):
            raise RuntimeError("the API server does not start")
        ours.recv()
        yield ours
    finally:
        ours.close()
        process.join(10)
        process.kill()


def _serve(folder: str, size: int, pipe: Connection) -> None:
    from kproxy_core.testing.fake_api import Cluster, FakeApi, User, write_kubeconfig

    with FakeApi() as api:
        api.apply({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-1"}})
        wanted = list(zip(_services(), range(size), strict=False))
        api.apply_all(service for service, _ in wanted)
        api.apply_all(_slice(index, 0) for index in range(size))
        cluster = Cluster(server=api.url, authority=api.server_authority.pem)
        write_kubeconfig(Path(folder) / "kubeconfig", cluster, User(token="secret"))
        pipe.send("ready")
        number = 0
        with contextlib.suppress(EOFError):
            while True:
                count, rate = pipe.recv()
                sent, began = {}, time.monotonic()
                for index in range(count):
                    time.sleep(max(0.0, began + index / rate - time.monotonic()))
                    changed = _slice((number * 37) % size, 0)
                    changed["endpoints"][-1]["addresses"] = [f"11.22.{number // 250}.{number % 250 + 1}"]
                    sent[number] = time.monotonic()
                    api.apply(changed)
                    number += 1
                pipe.send(sent)


# -- the kernel's notifications


class _Elements:
    """Notes when the kernel tells of the elements of changed endpoints."""

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        self._socket.settimeout(0.2)
        self._socket.bind((0, 0))
        self._closing = False
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> "_Elements":
        self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, _NFTABLES_GROUP)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while not self._closing:
            try:
                data = self._socket.recv(1 << 20)
            except TimeoutError:
                continue
            except OSError:
                continue  # more than fits, while everything is loaded: nothing of it is looked for
            now = time.monotonic()
            for match in re.finditer(re.escape(_CHANGED) + rb"(.)([\x01-\xfa])", data, re.DOTALL):
                self.seen.setdefault(match[1][0] * 250 + match[2][0] - 1, now)


# -- the daemon


@define
class _Daemon:
    process: "subprocess.Popen[str]"
    started: float
    log: list[str] = field(factory=list)

    def wait_synced(self) -> float:
        """Wait for the first sync; return how many seconds after the start of the process it ended."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if "first sync: " in line:
                seconds = time.monotonic() - self.started
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return seconds
        raise RuntimeError("the daemon ended:\n" + "".join(self.log))

    def resources(self) -> dict[str, float]:
        """Return processor seconds so far, and the present and the largest memory."""
        pid = self.process.pid
        cpu, main = (_processor_seconds(Path(f"/proc/{pid}/{place}stat")) for place in ("", f"task/{pid}/"))
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        names = ("VmHWM", "VmRSS", "RssAnon")
        peak, now, own = (int(re.findall(rf"{name}:\s+(\d+)", status)[0]) / 1024 for name in names)
        return {"cpu s": cpu, "cpu s main thread": main, "peak MiB": peak, "MiB": now, "MiB without files": own}

    def check(self) -> None:
        """Have it compare the kernel with what it put there, and wait until it has."""
        spent = self.phases()["read"]
        self.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + PATIENCE
        while self.phases()["read"] - spent < 0.01:
            if time.monotonic() > end:
                raise RuntimeError("the daemon does not check the kernel")
            time.sleep(0.5)

    def phases(self) -> dict[str, float]:
        """Return the seconds of the sync's phases, from the daemon's metrics."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            connection = http.client.HTTPConnection("127.0.0.1", METRICS_PORT, timeout=10)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            connection.close()
            found = re.findall(r'^kproxy_sync_phase_seconds_total\{phase="(\w+)"\} (\S+)$', text, re.MULTILINE)
            # The log tells of the sync a moment before the metrics do.
            if found:
                return {phase: float(seconds) for phase, seconds in found}
        raise RuntimeError("the metrics tell of no sync")


def _processor_seconds(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _daemon(folder: Path) -> Iterator[_Daemon]:
    configuration = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": "node-1",
        "clusterCIDR": "10.128.0.0/9",
        "clientConnection": {"kubeconfig": str(folder / "kubeconfig")},
        "nftables": {"minSyncPeriod": "0s"},
        "conntrack": {"maxPerCore": 0},
        "oomScoreAdj": 0,
    }
    path = folder / "config.json"
    path.write_text(json.dumps(configuration))
    command = [sys.executable, "-m", "kproxy_core.cli.main", "run", "--config", str(path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield _Daemon(process, time.monotonic())
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
