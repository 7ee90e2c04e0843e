"""A mode that wants another beneath it: the command says what is missing, and programs both when it is there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kproxy_core.testing.lab import Namespace

from .conftest import Running, install_mode, kproxy

pytestmark = pytest.mark.e2e

UPPER = """
from kproxy_core.model.state import Origin
from kproxy_core.plugin.backend import Companion
from kproxy_core.plugin.hookspecs import hookimpl
from kproxy_core.testing.memory_backend import MemoryBackend

@hookimpl
def kproxy_backend(mode, settings):
    if mode != "upper":
        return None
    beneath = Companion(mode="{companion}", purpose="serves clients from outside", required={required})
    return MemoryBackend(name="upper", companions=(beneath,), claimed=lambda port, rule, origin: origin is not Origin.OUTSIDE)
"""
RENDER = ("render", "--source", "manifests:examples/web", "--mode", "upper", "--node-addresses", "192.0.2.1")


def upper(folder: Path, companion: str, *, required: bool = True) -> dict[str, str]:
    """Install it."""
    return install_mode(folder, "upper", UPPER.format(companion=companion, required=required))


def test_a_missing_companion_that_is_needed_ends_every_command_with_what_to_install(tmp_path: Path) -> None:
    environment = upper(tmp_path, "nosuch")
    wanted = "mode upper needs mode nosuch beneath it, which serves clients from outside and is not installed; "
    for command in (("run", "--source", "manifests:examples/web", "--mode", "upper"), RENDER):
        done = kproxy(*command, environment=environment)
        assert done.status == 2
        assert f"{wanted}try: pip install kproxy-nosuch" in done.err
        assert "Traceback" not in done.err
    probed = kproxy("probe", "upper", environment=environment)
    assert probed.status == 1
    assert "mode nosuch, which serves clients from outside, is not installed" in probed.out
    assert "pip install kproxy-nosuch" in probed.out


def test_a_missing_companion_that_is_not_needed_is_told(tmp_path: Path) -> None:
    environment = upper(tmp_path, "nosuch", required=False)
    done = kproxy(*RENDER, environment=environment)
    assert done.status == 0
    told = "nothing serves clients from outside: mode nosuch is not installed (pip install kproxy-nosuch)"
    assert told in done.err
    assert kproxy("probe", "upper", environment=environment).status == 0


def test_both_modes_are_rendered(tmp_path: Path) -> None:
    done = kproxy(*RENDER, environment=upper(tmp_path, "nftables"))
    assert done.status == 0
    above, beneath = done.out.split("# mode nftables")
    assert above.startswith("# mode upper\n")
    assert "# default/web:http/TCP (IPv4)" in above
    assert "table ip kproxy-nftables" in beneath


@pytest.mark.kernel
def test_both_modes_are_programmed(
    tmp_path: Path, namespace: Namespace, manifests: Path, background: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in upper(tmp_path, "nftables").items():
        monkeypatch.setenv(name, value)
    arguments = (
        "run",
        "--source",
        f"manifests:{manifests}",
        "--mode",
        "upper",
        "--node-name",
        "node-a",
        "--netns",
        namespace.path,
    )
    daemon = background(*arguments)
    daemon.says("first sync: ")
    daemon.stop()
    assert "programming mode upper" in daemon.log
    cleaned = kproxy("cleanup", "--mode", "nftables", "--netns", namespace.path, "--json").json["modes"]
    assert cleaned[0]["removed"]
