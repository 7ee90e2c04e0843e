"""Turns kube-proxy's configuration file into what the daemon is started with."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kproxy_core.config.kubeproxy import ClientConnection, KubeProxyConfiguration
from kproxy_core.config.load import DEFAULT_MODE, LARGEST, Loaded, load_bytes
from kproxy_core.config.positions import Problem
from kproxy_core.config.values import split_host_port
from kproxy_core.plugin.errors import ConfigError

if TYPE_CHECKING:
    from kproxy_core.config.settings import Settings
    from kproxy_core.runtime.http_listeners import ListenAddress
    from kproxy_core.runtime.surface import SurfaceOptions
    from kproxy_core.sources.kubernetes.source import KubernetesSource

HEALTHZ_PORT: Final = 10256
METRICS_PORT: Final = 10249
_ALL_IPV4: Final = "0.0.0.0"  # noqa: S104 - probes come from outside; kube-proxy's default


def read_file(path: str) -> Loaded:
    """Read and check a file (``-`` is standard input), its mode included; raises ``ConfigError`` when it cannot be opened."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    loaded = load_bytes(data)
    return loaded.with_problems(_mode_problem(loaded))


def _mode_problem(loaded: Loaded) -> Iterator[Problem]:
    """Tell that the mode is not installed, unless nothing could be read at all."""
    if any(not problem.field and problem.fatal for problem in loaded.problems):
        return
    from kproxy_core.cli.installed import check_name

    mode = loaded.configuration.mode
    try:
        check_name(mode or DEFAULT_MODE)
    except ConfigError as error:
        unset = "" if mode else f"unset, which means {DEFAULT_MODE}, as for kube-proxy; "
        yield Problem(line=loaded.line("mode"), field="mode", message=f"{unset}{error}")


def usable_configuration(path: str) -> tuple[KubeProxyConfiguration, tuple[str, ...]]:
    """Return the configuration of a file and what to warn of; raises ``ConfigError`` with every problem when it is unusable."""
    loaded = read_file(path)
    lines = tuple(f"{path}:{problem.line}: {problem.text}" for problem in loaded.problems)
    if not loaded.usable:
        raise ConfigError("the configuration cannot be used:\n  " + "\n  ".join(lines))
    return loaded.configuration, lines


def kubernetes_source(client: ClientConnection, master: str, node_name: str) -> "KubernetesSource":
    """Make the source that watches the API server; credentials as kube-proxy finds them. Raises ``AccessError``."""
    from kproxy_core.runtime.sources import Inbox
    from kproxy_core.sources.kubernetes.access import ApiAccess
    from kproxy_core.sources.kubernetes.source import KubernetesSource

    if client.kubeconfig or master:
        access = ApiAccess.from_kubeconfig(client.kubeconfig, server=master)
    else:
        access = ApiAccess.in_cluster()
    source = KubernetesSource(access, node_name)
    source.start(Inbox())
    return source


def surface_options(configuration: KubeProxyConfiguration, settings: "Settings", needs_node: bool) -> "SurfaceOptions":
    """Return where to show health and metrics: the configured addresses, or kube-proxy's defaults."""
    from kproxy_core.runtime.surface import SurfaceOptions

    six = ":" in configuration.bind_address
    healthz = configuration.healthz_bind_address or f"{'[::]' if six else _ALL_IPV4}:{HEALTHZ_PORT}"
    metrics = configuration.metrics_bind_address or f"{'[::1]' if six else '127.0.0.1'}:{METRICS_PORT}"
    return SurfaceOptions(
        mode=settings.mode,
        sync_period=settings.sync_period,
        healthz=listen_address(healthz, HEALTHZ_PORT),
        metrics=listen_address(metrics, METRICS_PORT),
        hard_fail=configuration.bind_address_hard_fail,
        needs_node=needs_node,
    )


def listen_address(text: str, default_port: int) -> "ListenAddress":
    """Read an address to listen at; ``ValueError`` says what to write."""
    from kproxy_core.runtime.http_listeners import ListenAddress

    address, port = split_host_port(text, default_port)
    return ListenAddress(address=address, port=port)
