"""An extension is a distribution that is found when it is installed: it adds a source of Services, and hears what happens."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kproxy_core.kernel import writer_lock
from kproxy_core.testing.lab import Namespace

from .conftest import Running, install_mode, kproxy, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]

EXTENSION = """
import json
from pathlib import Path

from kproxy_core.model.addresses import Family, parse_address
from kproxy_core.model.changes import Replaced, Upserted
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Service, ServicePortSpec, SliceEndpoint, SlicePort
from kproxy_core.model.snapshot import Kind
from kproxy_core.plugin.hookspecs import hookimpl

NOTES = Path({notes!r})
WANTED = Path({wanted!r})
DNS = ObjectName("static", "dns")


def note(what):
    with NOTES.open("a") as notes:
        notes.write(json.dumps(what) + "\\n")


class Static:
    \"\"\"One Service whose endpoints are in a file, looked at once a second.\"\"\"

    name = "the static Service"
    kinds = frozenset({{Kind.SERVICE, Kind.ENDPOINT_SLICE}})

    def __init__(self):
        self.told = None

    def fileno(self):
        return -1

    def poll(self):
        wanted = WANTED.read_text()
        if wanted == self.told:
            return ()
        first, self.told = self.told is None, wanted
        service = Service(name=DNS, cluster_ips=(parse_address("10.96.0.53"),), ports=(ServicePortSpec(port=53),))
        endpoints = tuple(SliceEndpoint(address=parse_address(address)) for address in wanted.split())
        part = EndpointSlice(name=DNS, service=DNS, family=Family.IPV4, endpoints=endpoints, ports=(SlicePort(port=5353),))
        if first:
            return Replaced(kind=Kind.SERVICE, objects=(service,)), Replaced(kind=Kind.ENDPOINT_SLICE, objects=(part,))
        return (Upserted(object=part),)

    def close(self):
        note("closed")


@hookimpl
def kproxy_sources(settings):
    note(["sources", settings.node_name])
    return [Static()]


@hookimpl
def kproxy_state_resolved(state):
    note(["state", sorted(str(port.name) for port in state.ports)])


@hookimpl
def kproxy_sync_finished(report):
    note(["sync", report.ok])


@hookimpl
def kproxy_shutdown():
    note("shutdown")
"""
RAISING = """
from kproxy_core.plugin.hookspecs import hookimpl

@hookimpl
def kproxy_sources():
    raise RuntimeError("nothing to offer")
"""
USELESS = RAISING.replace('raise RuntimeError("nothing to offer")', 'return ["a text"]')


@pytest.fixture
def run(
    tmp_path: Path, namespace: Namespace, manifests: Path, background: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Running]:
    """Run the daemon with extensions, given by name."""

    def start(**extensions: str) -> Running:
        folder = tmp_path / "site"
        folder.mkdir()
        for name, source in extensions.items():
            for variable, value in install_mode(folder, name, source, "kproxy.extensions").items():
                monkeypatch.setenv(variable, value)
        arguments = ("--mode", "nftables", "--node-name", "node-a", "--netns", namespace.path)
        return background("run", "--source", f"manifests:{manifests}", *arguments)

    return start


def test_an_extensions_service_is_served_beside_the_others(
    tmp_path: Path, namespace: Namespace, run: Callable[..., Running]
) -> None:
    notes, wanted = tmp_path / "notes", tmp_path / "wanted"
    wanted.write_text("10.244.7.1")
    daemon = run(static=EXTENSION.format(notes=str(notes), wanted=str(wanted)))
    daemon.says("first sync: ")
    status = writer_lock.ask({"ask": "status"}, namespace=namespace.descriptor)
    assert status["ports"] == 3
    rules = namespace_rules(namespace)
    assert "10.96.0.53" in rules
    wanted.write_text("10.244.7.1 10.244.7.2")
    wait_until(lambda: notes.read_text().count('"sync"') >= 2, "the change of the extension's Service")
    daemon.stop()
    noted = [json.loads(line) for line in notes.read_text().splitlines()]
    assert noted[0] == ["sources", "node-a"]
    assert ["state", ["default/web:http/TCP", "default/web:http/TCP", "static/dns/TCP"]] in noted
    assert ["sync", True] in noted
    assert set(noted[-2:]) == {"shutdown", "closed"}


def namespace_rules(namespace: Namespace) -> str:
    """The rules in a namespace, as the mode reads them back."""
    from kproxy_core.kernel.namespaces import entered
    from kproxy_nftables.backend import NftablesBackend

    with entered(namespace.path), NftablesBackend().open() as dataplane:
        return NftablesBackend().render(dataplane.read())


def test_a_broken_extension_costs_its_own_sources_only(run: Callable[..., Running]) -> None:
    daemon = run(raising=RAISING, useless=USELESS, unimportable="raise RuntimeError('half installed')")
    daemon.says("first sync: ")
    assert "the sources of kproxy.extensions:raising cannot be had, and are left out" in daemon.log
    assert "kproxy.extensions:useless offers 'a text', which is no source; it is left out" in daemon.log
    assert "the extension unimportable cannot be loaded, and is left out" in daemon.log


def test_extensions_are_of_no_concern_to_commands_that_serve_nothing(tmp_path: Path) -> None:
    environment = install_mode(tmp_path, "raising", RAISING, "kproxy.extensions")
    done = kproxy("render", "--source", "manifests:examples/web", "--mode", "nftables", environment=environment)
    assert (done.status, "nothing to offer" in done.err) == (0, False)
