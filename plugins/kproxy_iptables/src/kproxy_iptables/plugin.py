"""The hooks of the iptables mode."""

from kproxy_core.config.settings import Settings
from kproxy_core.plugin.hookspecs import hookimpl
from kproxy_iptables.backend import MODE, IptablesBackend
from kproxy_iptables.scaffold import Features


@hookimpl
def kproxy_backend(mode: str, settings: Settings) -> IptablesBackend | None:
    """Build the backend when the mode is ours; its options are kube-proxy's ``iptables.localhostNodePorts`` and conntrack's."""
    return IptablesBackend(features_of(settings)) if mode == MODE else None


def features_of(settings: Settings) -> Features:
    """What the operator has chosen; kube-proxy's own defaults where nothing is said."""
    return Features(
        localhost_node_ports=settings.mode_options.get("iptables.localhostNodePorts", "true") == "true",
        drop_invalid=settings.mode_options.get("conntrack.tcpBeLiberal", "false") != "true",
    )
