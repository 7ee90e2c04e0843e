"""A proxy as a process of its own, put under test by what it takes: a KubeProxyConfiguration and a kubeconfig.

It runs in the network namespace of the lab's node, and in a mount namespace of its own, with its own /run and /sys: what it locks
and looks up there is not the machine's. The API server is the fake one, in the same network namespace.
"""

import contextlib
import itertools
import shlex
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from kproxy_core.model.addresses import Family
from kproxy_core.testing.conformance.notation import Object, fill, key_of
from kproxy_core.testing.conformance.places import Places, either
from kproxy_core.testing.conformance.scenario import ServiceNote
from kproxy_core.testing.conformance.strangers import remove_all_rules
from kproxy_core.testing.conformance.subject import Key, SubjectError
from kproxy_core.testing.conformance.world import forget_connections
from kproxy_core.testing.fake_api import (
    ENDPOINT_SLICES,
    NODES,
    SERVICE_CIDRS,
    SERVICES,
    Cluster,
    FakeApi,
    Resource,
    User,
    write_kubeconfig,
)
from kproxy_core.testing.lab import Answer, Lab, Question, ask_all

CONFIG = "{config}"
"""What a command has where the path of the configuration file is to be."""

PATIENCE = 20.0
"""Seconds within which whatever was told must have come into force."""

_CANARIES = range(230, 250)
_TRY = 0.3
_ENDING = 10.0
_SHOWN = 20  # lines of its log

_PRIVATE = 'mount -t sysfs sysfs /sys 2>/dev/null; mount -t tmpfs tmpfs /run 2>/dev/null; exec "$@"'

_RESOURCES: Mapping[str, Resource] = {
    "Service": SERVICES,
    "EndpointSlice": ENDPOINT_SLICES,
    "Node": NODES,
    "ServiceCIDR": SERVICE_CIDRS,
}


class Command:
    """See :class:`~kproxy_core.testing.conformance.subject.Subject`.

    ``command`` is a command line with ``{config}`` in it, ``mode`` what its configuration names, ``folder`` where files may be
    written. What it has been told is known to be in force once a Service answers that was told after it, in each family.
    """

    patience = PATIENCE

    def __init__(self, lab: Lab, command: str, mode: str, traits: frozenset[str], folder: Path) -> None:
        self.lab = lab
        self.mode = mode
        self.traits = traits
        self._argv = shlex.split(command)
        if not any(CONFIG in part for part in self._argv):
            raise ValueError(f"the command has no {CONFIG} in it, where the path of its configuration file is to be")
        self._folder = folder
        self._places = Places(lab.plan)
        self._document: Mapping[str, Any] = {}
        self._process: subprocess.Popen[str] | None = None
        self._log = folder / "log"
        self._starts = 0
        self._canary = 0
        self._canaries = itertools.cycle(_CANARIES)
        self._is_cut = False
        self._api = FakeApi()
        with lab.node.enter():
            self._api.start()
        cluster = Cluster(server=self._api.url, authority=self._api.server_authority.pem)
        self._kubeconfig = write_kubeconfig(folder / "kubeconfig", cluster, User(token="secret"))

    # -- the cluster

    def begin(self, document: Mapping[str, Any], objects: Iterable[Object]) -> None:
        """Delete all that is there, and start again if the configuration is another one."""
        self.join_silently()
        for resource in (SERVICES, ENDPOINT_SLICES, NODES, SERVICE_CIDRS):
            for stored in self._api.store[resource].sorted():
                metadata = stored.object["metadata"]
                self._api.delete(resource, metadata["name"], metadata.get("namespace", ""))
        self._api.apply_all(list(objects))
        self._canary = 0
        if self._process is None or document != self._document:
            self._end(signal.SIGTERM)
            self._start(document)
        self._settle()
        forget_connections(self.lab)

    def configure(self, document: Mapping[str, Any]) -> None:
        """End it in good order, and start it with another file."""
        self._end(signal.SIGTERM)
        self._start(document)
        self._settle()

    def apply(self, objects: Iterable[Object]) -> None:
        """Put objects into the API server."""
        self._api.apply_all(list(objects))
        self._settle()

    def delete(self, keys: Iterable[Key]) -> None:
        """Delete objects from the API server."""
        for kind, namespace, name in keys:
            self._api.delete(_RESOURCES[kind], name, namespace)
        self._settle()

    def see_addresses(self) -> None:
        """It has to see for itself."""

    def cut(self) -> None:
        """Stop the API server; its port is closed."""
        if not self._is_cut:
            self._api.stop()
            self._is_cut = True

    def join(self) -> None:
        """Start the API server again."""
        self.join_silently()
        self._settle()

    def join_silently(self) -> None:
        """Do so without waiting for anything."""
        if self._is_cut:
            with self.lab.node.enter():
                self._api.start()
            self._is_cut = False

    # -- the process

    def restart(self, what: str) -> None:
        """Kill it, or end it in good order, and start it again."""
        self._end(signal.SIGKILL if what == "daemon" else signal.SIGTERM)
        self._start(self._document)
        self._settle()

    def flush(self) -> None:
        """Remove all rules of the node, whoever made them, and wait until they are there again."""
        remove_all_rules(self.lab.node)
        self._await_canary()

    def close(self) -> None:
        """End it, and the API server."""
        self._end(signal.SIGTERM)
        self.join_silently()
        self._api.stop()

    def _start(self, document: Mapping[str, Any]) -> None:
        self._document = document
        path = self._folder / "config.yaml"
        path.write_text(yaml.safe_dump(self._whole(document)))
        self._starts += 1
        self._log = self._folder / f"log-{self._starts}"
        private = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _PRIVATE, "sh"]
        argv = [*private, *(part.replace(CONFIG, str(path)) for part in self._argv)]
        with self._log.open("w") as log:
            self._process = self.lab.node.popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _whole(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration with what concerns the process: where the API server is, and a short period for its own checks."""
        made = dict(document)
        section = self.mode if self.mode in ("iptables", "ipvs", "nftables") else "iptables"
        made[section] = {"syncPeriod": "2s", **made.get(section, {})}
        return made | {
            "clientConnection": {"kubeconfig": str(self._kubeconfig), "qps": 1000, "burst": 1000},
            "oomScoreAdj": 0,
        }

    def _end(self, how: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING)
            return
        process.kill()
        process.wait()

    # -- what it has been told is in force

    def _settle(self) -> None:
        """Tell it of one more Service, after everything else, and wait until that answers."""
        if self._is_cut:
            time.sleep(1.0)  # for what must not happen
            return
        # Another number each time: of the last ones the kernel may not have let go yet.
        last, self._canary = self._canary, next(self._canaries)
        note = ServiceNote(service=f"canary-{self._canary}", number=self._canary, ports="t=80", behind="t=8080", endpoints="b1")
        self._api.apply_all(fill([note], self._places))
        self._await_canary()
        if last:
            for obj in fill([ServiceNote(service=f"canary-{last}", number=last, ports="t=80", endpoints="b1")], self._places):
                kind, namespace, name = key_of(obj)
                self._api.delete(_RESOURCES[kind], name, namespace)

    def _await_canary(self) -> None:
        pair = self._places.frontend("cluster", self._canary)
        end = time.monotonic() + PATIENCE
        families = list(Family)[: len(self.lab.families)]
        waiting = [Question(host=self.lab.node, address=either(pair, family), port=80, timeout=_TRY) for family in families]
        while True:
            self._check_alive()
            outcomes = ask_all(waiting)
            waiting = [one for one, outcome in zip(waiting, outcomes, strict=True) if not isinstance(outcome, Answer)]
            if not waiting:
                return
            if time.monotonic() > end:
                missing = ", ".join(one.address for one in waiting)
                raise SubjectError(f"{PATIENCE:g} s after it was told of a Service, {missing} does not answer\n{self._said()}")
            time.sleep(0.02)

    def _check_alive(self) -> None:
        assert self._process is not None
        status = self._process.poll()
        if status is not None:
            self._process = None
            raise SubjectError(f"the command has ended, with status {status}\n{self._said()}")

    def _said(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(
            ["the end of what it said:", *(f"  {line}" for line in lines[-_SHOWN:])] if lines else ["it said nothing"]
        )
