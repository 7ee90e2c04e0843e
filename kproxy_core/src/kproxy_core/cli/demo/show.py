"""Runs the demo from the first namespace to the last line, and takes everything down whatever happens."""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import click
from attrs import frozen

from kproxy_core.cli.demo import balancing, changing
from kproxy_core.cli.demo.cluster import PLAN, Cluster, frontends
from kproxy_core.cli.demo.daemon import DaemonDiedError, DaemonProcess
from kproxy_core.cli.demo.interruption import Interrupted, Interruption
from kproxy_core.cli.demo.manifests import ManifestFolder
from kproxy_core.cli.demo.report import Report, report_document
from kproxy_core.cli.demo.services import CLIENT, NODE, SERVICES, WEB
from kproxy_core.cli.demo.stage import Stage
from kproxy_core.cli.demo.traffic import Traffic, sum_of
from kproxy_core.cli.demo.view import LinesView, Part, View
from kproxy_core.cli.installed import choose_mode, probe, require_installed, require_support
from kproxy_core.cli.output import print_json
from kproxy_core.config.settings import Settings
from kproxy_core.plugin.backend import AnyBackend, Capability
from kproxy_core.plugin.registry import load_backend, new_plugin_manager
from kproxy_core.testing.lab import Lab, LabError


@frozen(kw_only=True)
class Wishes:
    """What was asked for on the command line."""

    mode: str
    as_json: bool
    stay: bool
    seconds: float
    colour: bool


@frozen(kw_only=True)
class Act:
    """A part of the demo that needs the daemon; only for modes with the capability, if there is one."""

    title: str
    about: str
    play: Callable[[Stage], None]
    needs: Capability | None = None


LOG: Final = "kproxy.log"
CLUSTER: Final = "A small cluster"
ABOUT_CLUSTER: Final = (
    "Two nodes, their pods and a client outside, out of network namespaces of this machine; kproxy runs in the first node."
)

ACTS: Final = (
    Act(
        title="kproxy starts",
        about="Its process reads the manifests and programs the kernel of the node. From then on the kernel does the work.",
        play=balancing.start,
    ),
    Act(
        title="Connections are balanced",
        about="Clients in a pod, on the node and outside connect to five Services; each connection goes to a pod of the Service.",
        play=balancing.balance,
    ),
    Act(
        title="A rolling update",
        about="Every pod of web is replaced by a new one while clients go on connecting. No connection may fail.",
        play=changing.rolling_update,
    ),
    Act(
        title="kproxy is killed",
        about="The kernel has all that it needs, so nobody should notice; nor that kproxy comes back.",
        play=changing.kill,
        needs=Capability.SURVIVES_CRASH,
    ),
    Act(
        title="Services without endpoints",
        about="api and dns lose all their pods, then get them back. Clients should be told at once, not left waiting.",
        play=changing.outage,
    ),
)


def show(wishes: Wishes) -> int:
    """Run the demo and return the exit status."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that knows no bars shows question marks instead of ending the demo.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    require_installed(wishes.mode)
    with Interruption() as interruption:
        try:
            with Demo(wishes, interruption) as demo:
                report = demo.run()
                if wishes.as_json:
                    print_json(report_document(report))
                if wishes.stay:
                    demo.stay()
        except Interrupted as interrupted:
            click.echo("the demo was ended early; nothing of it is left", err=True)
            return interrupted.status
        except (LabError, DaemonDiedError) as error:
            raise click.ClickException(str(error)) from error
    return 0 if report.ok else 1


class Demo:
    """Everything that is built for the demo, taken down at the end in the opposite order."""

    def __init__(self, wishes: Wishes, interruption: Interruption) -> None:
        self._wishes = wishes
        self._interruption = interruption
        self._cleanup = contextlib.ExitStack()
        self._started = time.monotonic()
        self._view = _view_for(wishes)
        self._cleanup.callback(self._view.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._view.show(())
        self._cleanup.close()

    def run(self) -> Report:
        """Build it, play every part, and sum up."""
        self._view.begin(Part(number=1, total=len(ACTS) + 1, title=CLUSTER, about=ABOUT_CLUSTER))
        self._cluster = self._build()
        backend = self._cluster.lab.node.call(self._choose)
        self._stage = self._set()
        for number, act in enumerate(ACTS, start=2):
            self._view.begin(Part(number=number, total=len(ACTS) + 1, title=act.title, about=act.about))
            if act.needs is not None and act.needs not in backend.capabilities:
                self._view.tell(f"left out: {self._mode} is not a mode that {act.needs.value}")
                continue
            act.play(self._stage)
            if act is ACTS[0] and not self._stage.expectations[-1].ok:
                self._view.tell("the rest is left out: it would only fail for the same reason")
                break
        return self._sum_up()

    def _build(self) -> Cluster:
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            return self._built()
        except NetlinkError as error:
            needs = "it needs pairs of virtual interfaces and bridges (CONFIG_VETH, CONFIG_BRIDGE)"
            raise LabError(f"this kernel does not make the cluster's links: {error}; {needs}") from error

    def _built(self) -> Cluster:
        lab = self._cleanup.enter_context(Lab(PLAN))
        self._interruption.check()
        self._folder = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="kproxy-demo-")))
        manifests = self._folder / "manifests"
        manifests.mkdir()
        cluster = Cluster(lab, ManifestFolder(manifests))
        cluster.build()
        self._interruption.check()
        took = time.monotonic() - self._started
        self._view.tell(f"{len(lab.pods)} pods, each with an IPv4 and an IPv6 address, built in {took:.1f} s", ok=True)
        for missing in lab.missing:
            self._view.tell(f"not in this cluster: {missing.capability.value} ({missing.reason}; {missing.remedy})")
        return cluster

    def _choose(self) -> AnyBackend:
        """Find a mode that works in the node's network namespace."""
        self._mode = choose_mode(self._wishes.mode, say=self._view.tell)
        backend = load_backend(self._mode, Settings(mode=self._mode), new_plugin_manager())
        require_support(self._mode, probe(backend))
        return backend

    def _set(self) -> Stage:
        ranges = ",".join(map(str, self._cluster.pod_ranges))
        arguments = ("--source", f"manifests:{self._cluster.folder.path}", "--mode", self._mode)
        daemon = DaemonProcess(
            self._cluster.lab.node, (*arguments, "--node-name", NODE, "--cluster-cidr", ranges), self._folder / LOG
        )
        self._cleanup.callback(daemon.stop)
        traffic = Traffic(self._cluster, SERVICES)
        self._cleanup.callback(traffic.pause)
        return Stage(
            cluster=self._cluster,
            daemon=daemon,
            traffic=traffic,
            view=self._view,
            interruption=self._interruption,
            seconds=self._wishes.seconds,
        )

    def _sum_up(self) -> Report:
        stage = self._stage
        stage.traffic.pause()
        usage = stage.daemon.usage()
        stage.measured["daemon_memory_mib"] = usage.memory
        stage.measured["daemon_processor_seconds"] = usage.processor
        total = sum_of(stage.counts().values())
        report = Report(
            mode=self._mode,
            seconds=time.monotonic() - self._started,
            expectations=tuple(stage.expectations),
            services=tuple(_service_document(stage, service.name) for service in SERVICES),
            measured={**stage.measured, "connections": total.asked, "failed_connections": total.failed},
            missing=tuple(f"{missing.capability.value}: {missing.reason}" for missing in self._cluster.lab.missing),
        )
        self._view.show(())
        self._view.close()
        self._tell_end(report)
        return report

    def _tell_end(self, report: Report) -> None:
        failed = [expectation for expectation in report.expectations if not expectation.ok]
        held = len(report.expectations) - len(failed)
        measured = report.measured
        colour = "red" if failed else "green"
        self._say("")
        self._say(
            click.style(f"{held} of {len(report.expectations)} expectations held, mode {report.mode}", fg=colour, bold=True)
        )
        for expectation in failed:
            self._say(f"  ✗ {expectation.name}: {expectation.detail}")
        memory, processor = measured["daemon_memory_mib"], measured["daemon_processor_seconds"]
        failures = f"{measured['failed_connections']:.0f} failed"
        self._say(f"  {measured['connections']:.0f} connections, {failures}, in {report.seconds:.1f} s")
        self._say(f"  kproxy itself: {memory:.0f} MiB of memory, {processor:.2f} s of processor time since its last start")
        if not self._wishes.stay:
            command = own_command()
            self._say(f"  Look around in the cluster: {command} demo --stay")
            self._say(f"  Serve Services of your own: {command} run --help")

    def stay(self) -> None:
        """Keep everything until a signal comes, and say how to look around in it meanwhile."""
        lab = self._cluster.lab
        web = f"/dev/tcp/{WEB.cluster.ipv4}/{WEB.port}"
        self._say("")
        self._say(click.style("The cluster stays until Ctrl-C. In another terminal, as the same user:", bold=True))
        self._say_how("into the client's pod", lab.enter_command(lab.pods[CLIENT.name]))
        self._say_how("who answers there for web", f"for i in {{1..6}}; do head -1 < {web} | cut -d'\"' -f4; done")
        self._say_how("onto the node", lab.enter_command(lab.node))
        self._say_how("to the client outside", lab.enter_command(lab.outside))
        self._say_how("Services are changed by editing their manifests; kproxy follows", str(self._cluster.folder.path))
        self._say_how("kproxy's log", str(self._folder / LOG))
        self._interruption.wait_for_signal()

    def _say_how(self, what: str, command: str) -> None:
        """Say something to type or look at, on a line of its own, so that it can be copied."""
        self._say(f"  {what}:")
        self._say(f"      {command}")

    def _say(self, text: str) -> None:
        click.echo(text, err=self._wishes.as_json, color=None if self._wishes.colour else False)


def own_command() -> str:
    """Return how to call this kproxy from a shell: by its name where that is found, else by its path."""
    started, beside = Path(sys.argv[0]), Path(sys.executable).with_name("kproxy")
    # In a user namespace the demo was started again by its module.
    own = started if started.name == "kproxy" else beside if beside.exists() else None
    found = shutil.which("kproxy")
    if found and (own is None or Path(found).resolve() == own.resolve()):
        return "kproxy"
    return str(own) if own else f"{sys.executable} -m kproxy_core.cli.main"


def _view_for(wishes: Wishes) -> View:
    if wishes.as_json or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return LinesView(to_stderr=wishes.as_json, colour=wishes.colour)
    from kproxy_core.cli.demo.live import LiveView

    return LiveView(wishes.colour)


def _service_document(stage: Stage, name: str) -> dict[str, Any]:
    service = next(service for service in SERVICES if service.name == name)
    counts = stage.traffic.counts(name)
    present = {endpoint.pod: endpoint.node for endpoint in stage.cluster.endpoints[name]}
    return {
        "name": name,
        "type": service.type,
        "protocol": service.protocol.name,
        "frontends": list(frontends(service, stage.cluster.lab.plan.node_addresses(NODE))),
        "connections": counts.asked,
        "failed": counts.failed,
        "endpoints": [{"pod": pod, "node": node, "connections": counts.by_pod[pod]} for pod, node in present.items()],
        "connections_by_pod": dict(sorted(counts.by_pod.items())),
    }
