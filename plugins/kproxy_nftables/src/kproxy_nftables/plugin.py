"""The hooks of the nftables mode."""

from kproxy_core.config.settings import Settings
from kproxy_core.plugin.hookspecs import hookimpl
from kproxy_nftables.backend import MODE, NftablesBackend


@hookimpl
def kproxy_backend(mode: str, settings: Settings) -> NftablesBackend | None:
    """Build the backend when the mode is ours; it takes no options of its own."""
    del settings
    return NftablesBackend() if mode == MODE else None
