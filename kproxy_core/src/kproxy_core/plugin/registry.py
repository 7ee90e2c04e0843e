"""Finds the installed modes by entry point and loads the chosen one alone, so that a broken plugin harms nobody else."""

from importlib.metadata import EntryPoint, entry_points
from typing import cast

import pluggy

from kproxy_core.config.settings import Settings
from kproxy_core.plugin import hookspecs
from kproxy_core.plugin.backend import AnyBackend
from kproxy_core.plugin.errors import ConfigError, ContractError

BACKENDS = "kproxy.backends"
EXTENSIONS = "kproxy.extensions"


def installed_modes() -> dict[str, EntryPoint]:
    """Return the entry point of each installed mode by name, sorted; imports nothing."""
    return {point.name: point for point in sorted(entry_points(group=BACKENDS), key=lambda point: point.name)}


def new_plugin_manager() -> pluggy.PluginManager:
    """Return a plugin manager that knows the hooks and no plugin."""
    plugins = pluggy.PluginManager(hookspecs.PROJECT)
    plugins.add_hookspecs(hookspecs)
    return plugins


def load_backend(mode: str, settings: Settings, plugins: pluggy.PluginManager) -> AnyBackend:
    """Import the plugin of ``mode``, register it with ``plugins`` and build its backend.

    Raises ``ConfigError`` when the mode is not installed (the message lists what is) or refuses its settings, ``ContractError``
    when the plugin cannot be imported or does not keep the contract.
    """
    modes = installed_modes()
    if mode not in modes:
        known = ", ".join(modes) or "none"
        raise ConfigError(f"mode {mode!r} is not installed (installed: {known}); try: pip install kproxy-{mode}")
    try:
        module = modes[mode].load()
    except Exception as error:
        raise ContractError(f"the plugin of mode {mode!r} ({modes[mode].value}) cannot be imported: {error!r}") from error
    plugins.register(module, name=f"{BACKENDS}:{mode}")
    plugins.check_pending()
    backend = plugins.hook.kproxy_backend(mode=mode, settings=settings)
    if backend is None:
        raise ContractError(f"the plugin of mode {mode!r} ({modes[mode].value}) built no backend for it")
    return cast("AnyBackend", backend)


def load_extensions(plugins: pluggy.PluginManager) -> dict[str, BaseException]:
    """Register each installed extension, in the order of their names; return the failures by name, none of which is fatal."""
    failures: dict[str, BaseException] = {}
    for point in sorted(entry_points(group=EXTENSIONS), key=lambda point: point.name):
        try:
            plugins.register(point.load(), name=f"{EXTENSIONS}:{point.name}")
            plugins.check_pending()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a stranger's import may raise anything
            plugins.unregister(name=f"{EXTENSIONS}:{point.name}")
            failures[point.name] = error
    return failures
