"""Modes and extensions are found by entry point; one that is broken harms nobody else. With real distributions on the path."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.model.state import NodeContext, NodeState
from kproxy_core.plugin.errors import ConfigError, ContractError
from kproxy_core.plugin.registry import BACKENDS, EXTENSIONS, installed_modes, load_backend, load_extensions, new_plugin_manager
from kproxy_core.runtime.sources import extension_sources

Install = Callable[[str, str, str, str], None]

MODE = """
from kproxy_core.plugin.hookspecs import hookimpl
from kproxy_core.testing.memory_backend import MemoryBackend

@hookimpl
def kproxy_backend(mode, settings):
    return MemoryBackend() if mode == "testmode" else None
"""
OBSERVER = """
from kproxy_core.plugin.hookspecs import hookimpl

seen = []

@hookimpl
def kproxy_state_resolved(state):
    seen.append(state)
"""
SOURCE = """
from kproxy_core.model.snapshot import Kind
from kproxy_core.plugin.hookspecs import hookimpl

class Nothing:
    kinds = frozenset({Kind.SERVICE})
    def __init__(self, name):
        self.name = name
    def fileno(self):
        return -1
    def poll(self):
        return ()
    def close(self):
        pass

@hookimpl
def kproxy_sources(settings):
    return [Nothing(f"%s of {settings.node_name}"), Nothing("%s, too")]
"""
MISSPELT = """
from kproxy_core.plugin.hookspecs import hookimpl

@hookimpl
def kproxy_state_resovled(state):
    pass
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a distribution with one entry point on the path: its group, name, module and source."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(group: str, name: str, module: str, source: str) -> None:
        (tmp_path / f"{module}.py").write_text(source)
        metadata = tmp_path / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}\n")

    return put


def test_a_mode_is_found_by_name_and_only_it_is_imported(install: Install) -> None:
    install(BACKENDS, "testmode", "registry_good_mode", MODE)
    install(BACKENDS, "badmode", "registry_bad_mode", "raise RuntimeError('broken')")
    assert {"testmode", "badmode"} <= set(installed_modes())
    assert load_backend("testmode", Settings(), new_plugin_manager()).name == "memory"


def test_an_unknown_mode_is_the_operators_mistake_and_the_message_says_what_there_is(install: Install) -> None:
    install(BACKENDS, "testmode", "registry_mode_to_name", MODE)
    with pytest.raises(
        ConfigError, match=r"'nosuch' is not installed \(installed: .*testmode.*\); try: pip install kproxy-nosuch"
    ):
        load_backend("nosuch", Settings(), new_plugin_manager())


def test_a_mode_that_cannot_be_imported_is_named(install: Install) -> None:
    install(BACKENDS, "badmode", "registry_unimportable", "raise RuntimeError('broken')")
    with pytest.raises(ContractError, match=r"'badmode' \(registry_unimportable\) cannot be imported: .*broken"):
        load_backend("badmode", Settings(), new_plugin_manager())


def test_a_mode_that_builds_nothing_is_named(install: Install) -> None:
    install(BACKENDS, "othername", "registry_builds_nothing", MODE)
    with pytest.raises(ContractError, match="built no backend"):
        load_backend("othername", Settings(), new_plugin_manager())


def test_extensions_are_loaded_and_broken_ones_told(install: Install) -> None:
    install(EXTENSIONS, "good", "registry_observer", OBSERVER)
    install(EXTENSIONS, "unimportable", "registry_bad_extension", "raise RuntimeError('broken')")
    install(EXTENSIONS, "misspelt", "registry_misspelt", MISSPELT)
    plugins = new_plugin_manager()
    failures = load_extensions(plugins)
    assert set(failures) == {"unimportable", "misspelt"}
    assert "broken" in str(failures["unimportable"])
    assert "kproxy_state_resovled" in str(failures["misspelt"])
    state = NodeState(node=NodeContext())
    plugins.hook.kproxy_state_resolved(state=state)
    assert plugins.get_plugin(f"{EXTENSIONS}:good").seen == [state]  # type: ignore[union-attr]
    plugins.check_pending()


def test_sources_are_asked_for_in_the_order_of_the_extensions_names(install: Install) -> None:
    for name in ("b", "c", "a"):
        install(EXTENSIONS, name, f"registry_source_{name}", SOURCE.replace("%s", name))
    install(EXTENSIONS, "leaving", "registry_leaving", "raise SystemExit(3)")
    plugins = new_plugin_manager()
    assert set(load_extensions(plugins)) == {"leaving"}
    names = [source.name for source in extension_sources(plugins, Settings(node_name="here"))]
    assert names == ["a of here", "a, too", "b of here", "b, too", "c of here", "c, too"]
