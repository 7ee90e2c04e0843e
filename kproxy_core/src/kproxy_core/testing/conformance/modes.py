"""Installed modes as the kit tests them: with whatever they want beneath them, as in the daemon."""

from kproxy_core.config.settings import Settings
from kproxy_core.plugin.backend import AnyBackend
from kproxy_core.plugin.registry import new_plugin_manager
from kproxy_core.runtime.companions import assemble


def installed_backend(settings: Settings) -> AnyBackend:
    """Build the backend of the mode that settings name. Raises as :func:`~kproxy_core.runtime.companions.assemble`."""
    return assemble(settings, new_plugin_manager()).backend
