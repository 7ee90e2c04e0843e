"""What the daemon is started with."""

from collections.abc import Iterable

import pluggy
from attrs import field, frozen

from kproxy_core.config.settings import Settings
from kproxy_core.kernel.writer_lock import NAME
from kproxy_core.model.addresses import Address
from kproxy_core.plugin.backend import AnyBackend
from kproxy_core.plugin.registry import new_plugin_manager
from kproxy_core.plugin.source import Source
from kproxy_core.runtime.surface import SurfaceOptions


@frozen(kw_only=True)
class DaemonOptions:
    """Everything :func:`~kproxy_core.runtime.daemon.run_daemon` needs; the daemon closes the sources when it ends.

    Nothing is written before ``sources`` have listed all their kinds; the first of them is the daemon's own.
    ``plugins`` are the observers. ``addresses`` stand in for those of the node's interfaces, which are watched if it is None.
    ``lock_name`` is the name of the writer lock in the network namespace; None goes without, which is for tests. ``surface`` says
    where to show health and metrics; None shows nothing. ``unused`` are modes of which nothing is wanted any more: what they have
    left is removed after the first good sync.
    """

    settings: Settings
    backend: AnyBackend
    sources: tuple[Source, ...]
    plugins: pluggy.PluginManager = field(factory=new_plugin_manager)
    addresses: tuple[Address, ...] | None = None
    lock_name: str | None = NAME
    clean_conntrack: bool = True
    surface: SurfaceOptions | None = None
    unused: Iterable[AnyBackend] = ()
