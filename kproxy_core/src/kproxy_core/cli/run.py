"""``kproxy run``: the daemon."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kproxy_core.cli.examples import Command
from kproxy_core.cli.options import (
    alias,
    daemon_source_option,
    mode_option,
    netns_option,
    period_options,
    settings_from,
    settings_options,
    with_aliases,
)

if TYPE_CHECKING:
    from pluggy import PluginManager

    from kproxy_core.config.kubeproxy import KubeProxyConfiguration
    from kproxy_core.config.settings import Settings
    from kproxy_core.plugin.backend import AnyBackend
    from kproxy_core.plugin.source import Source
    from kproxy_core.runtime.surface import SurfaceOptions

DEBUGGING = 4
"""From this verbosity on, as in kube-proxy, the log holds what only somebody who looks for a fault wants to read."""

PR_SET_PDEATHSIG = 1

EXAMPLES = (
    ("kproxy run --config /var/lib/kube-proxy/config.conf", "on a cluster's node, in kube-proxy's place"),
    ("kproxy run --source manifests:/etc/kproxy/manifests --mode nftables", ""),
    ("kubectl get services,endpointslices -A -o yaml | kproxy run --source manifests:-", "a snapshot of a cluster"),
    ("kproxy run --source manifests:web.yaml --cluster-cidr 10.244.0.0/16 --node-name node-a --nodeport-addresses all", ""),
)


class Verbosity(click.ParamType[int]):
    """kube-proxy's ``-v=2``, with and without the equals sign."""

    name = "level"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        try:
            return int(str(value).removeprefix("="))
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)


@click.command(cls=Command, examples=EXAMPLES)
@click.option(
    "--config",
    metavar="FILE",
    default="",
    help="kube-proxy's configuration file. Beside it only --source, --node-name, --master, --netns and the log's options count.",
)
@daemon_source_option
@click.option("--kubeconfig", metavar="FILE", default="", help="How to reach the API server.  [default: as a pod of the cluster]")
@click.option("--master", metavar="URL", default="", help="The API server, if not the kubeconfig's.")
@mode_option
@settings_options
@period_options
@netns_option
@click.option(
    "-v",
    "--v",
    "verbosity",
    type=Verbosity(),
    is_flag=False,
    flag_value=str(DEBUGGING),
    default="0",
    help=f"How much to log; from {DEBUGGING} on (or -v alone) what is for debugging, too.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to write the log."
)
@alias("--logging-format", "log_format", type=click.Choice(["text", "json"]))
@click.option("--healthz-bind-address", metavar="ADDRESS", default=None, help="Where to serve /healthz and /livez.")
@click.option("--metrics-bind-address", metavar="ADDRESS", default=None, help="Where to serve /metrics and /proxyMode.")
@click.option("--bind-address-hard-fail", is_flag=True, help="End when one of the two is taken, instead of trying again.")
@click.option("--end-with-parent", is_flag=True, hidden=True, help="Stop when the process that started this one ends.")
@click.pass_context
def command(context: click.Context, /, netns: str | None, end_with_parent: bool, **options: Any) -> None:
    """Keep the kernel as Services and EndpointSlices want it, until stopped.

    Reads what is in the kernel and changes only what differs, at the start as well. When it ends, the rules stay: connections go
    on, and the next start continues. A second daemon in the same network namespace waits and takes over. The log goes to standard
    error. SIGHUP has it compare the kernel with what is wanted at once.

    Options have kube-proxy's names where it has them. Durations are written as 500ms, 30s or 1h30m.
    """
    from kproxy_core.kernel.namespaces import entered

    if end_with_parent:
        _end_with_parent()
    given = with_aliases(context, options)
    with _hangups_ignored(), entered(netns):
        status = _run(context, given)
    context.exit(status)


@contextlib.contextmanager
def _hangups_ignored() -> Iterator[None]:
    """Ignore SIGHUP until the daemon handles it and when it has ended: it asks for what a start does anyway, and would kill."""
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():  # only that one may, as in tests
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _end_with_parent() -> None:
    """Have the kernel stop this process, by SIGTERM, as soon as its parent is gone (man 2 prctl, PR_SET_PDEATHSIG)."""
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _run(context: click.Context, given: Mapping[str, Any]) -> int:
    from attrs import evolve

    from kproxy_core.cli.installed import choose_mode, probe
    from kproxy_core.plugin.registry import new_plugin_manager
    from kproxy_core.runtime.companions import assemble, unused_modes
    from kproxy_core.runtime.daemon import run_daemon
    from kproxy_core.runtime.options import DaemonOptions
    from kproxy_core.runtime.sources import extension_sources

    configuration, warnings = _configuration(context, given)
    _start_log(configuration, given)
    _warn((*warnings, *_ignored(context, given)))
    settings = _settings(context, given, configuration)
    settings = evolve(settings, mode=choose_mode(settings.mode))
    plugins = new_plugin_manager()
    modes = assemble(settings, plugins, lambda companion: probe(companion).usable)
    _check(settings.mode, modes.backend)
    _warn(modes.notes)
    _load_extensions(plugins)
    if given["config"]:
        _prepare_node(configuration)
    source = _source(given, configuration, settings, modes.backend)
    return run_daemon(
        DaemonOptions(
            settings=settings,
            backend=modes.backend,
            sources=(source, *extension_sources(plugins, settings)),
            plugins=plugins,
            surface=_surface(given, configuration, settings),
            unused=unused_modes(settings, modes.modes),
        )
    )


def _configuration(context: click.Context, given: Mapping[str, Any]) -> "tuple[KubeProxyConfiguration, tuple[str, ...]]":
    """Return the configuration file's content, or what the options say instead of it."""
    from kproxy_core.config.kubeproxy import ClientConnection, KubeProxyConfiguration

    if given["config"]:
        from kproxy_core.cli.configured import usable_configuration

        return usable_configuration(given["config"])
    _check_addresses(context, given)
    configuration = KubeProxyConfiguration(
        client_connection=ClientConnection(kubeconfig=given["kubeconfig"]),
        healthz_bind_address=given["healthz_bind_address"] or "",
        metrics_bind_address=given["metrics_bind_address"] or "",
        bind_address_hard_fail=given["bind_address_hard_fail"],
    )
    return configuration, ()


def _check_addresses(context: click.Context, given: Mapping[str, Any]) -> None:
    from kproxy_core.config.values import split_host_port

    for name, port in (("healthz_bind_address", 10256), ("metrics_bind_address", 10249)):
        if given[name]:
            try:
                split_host_port(given[name], port)
            except ValueError as error:
                raise click.UsageError(f"--{name.replace('_', '-')}: {error}", context) from error


def _start_log(configuration: "KubeProxyConfiguration", given: Mapping[str, Any]) -> None:
    import logging

    from kproxy_core.runtime.logs import configure_logging

    level = max(given["verbosity"], configuration.logging.verbosity)
    log_format = "json" if "json" in (given["log_format"], configuration.logging.format) else "text"
    configure_logging("json" if log_format == "json" else "text", logging.DEBUG if level >= DEBUGGING else logging.INFO)


BESIDE_CONFIG = frozenset({"config", "manifests", "node_name", "master", "netns", "verbosity", "log_format", "end_with_parent"})
"""The options that count beside a configuration file, much as for kube-proxy."""


def _ignored(context: click.Context, given: Mapping[str, Any]) -> list[str]:
    """Tell which options were given in vain, beside a configuration file."""
    if not given["config"]:
        return []
    names = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name
        and parameter.name not in BESIDE_CONFIG
        and context.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
    ]
    return [f"{name} is ignored: {given['config']} says it all" for name in names]


def _warn(warnings: Sequence[str]) -> None:
    import logging

    from kproxy_core.runtime.logs import LOGGER

    for warning in warnings:
        logging.getLogger(LOGGER).warning("%s", warning)


def _settings(context: click.Context, given: Mapping[str, Any], configuration: "KubeProxyConfiguration") -> "Settings":
    """Return the settings of the file, or of the options. The name of the node may be given beside a file, and beats it."""
    if not given["config"]:
        return settings_from(context, given)
    from kproxy_core.cli.options import host_name
    from kproxy_core.config.load import settings_from as settings_of

    name = given["node_name"].strip() or configuration.hostname_override.strip() or host_name()
    return settings_of(configuration, name.lower())


def _prepare_node(configuration: "KubeProxyConfiguration") -> None:
    from kproxy_core.runtime.node_settings import apply_conntrack, apply_oom_score

    apply_oom_score(configuration.oom_score_adj)
    apply_conntrack(configuration.conntrack)


def _source(
    given: Mapping[str, Any], configuration: "KubeProxyConfiguration", settings: "Settings", backend: "AnyBackend"
) -> "Source":
    if given["manifests"] is not None:
        from kproxy_core.cli.sources import FollowedManifests

        return FollowedManifests(given["manifests"], nothing_to_lose=lambda: _is_clean(backend))
    from kproxy_core.cli.configured import kubernetes_source

    return kubernetes_source(configuration.client_connection, given["master"], settings.node_name)


def _is_clean(backend: "AnyBackend") -> bool:
    """Whether the kernel has nothing of the mode's."""
    with backend.open() as dataplane:
        return not dataplane.leftovers()


def _surface(given: Mapping[str, Any], configuration: "KubeProxyConfiguration", settings: "Settings") -> "SurfaceOptions | None":
    """Return where to show health and metrics: always for a cluster's node, elsewhere as far as it is asked for."""
    from kproxy_core.cli.configured import surface_options

    from_api = given["manifests"] is None
    surface = surface_options(configuration, settings, needs_node=from_api)
    if given["config"]:
        return surface
    # As for kube-proxy, an empty address on the command line shows nothing.
    default = None if from_api else ""
    healthz, metrics = (
        default if given[name] is None else given[name] for name in ("healthz_bind_address", "metrics_bind_address")
    )
    return surface.without(healthz=healthz == "", metrics=metrics == "")


def _check(mode: str, backend: "AnyBackend") -> None:
    """Tell in the log what is amiss with the node. Raises ``UnsupportedError`` with the remedies when it cannot be run on."""
    import logging

    from kproxy_core.cli.installed import probe, require_support
    from kproxy_core.plugin.backend import Support
    from kproxy_core.runtime.logs import LOGGER
    from kproxy_core.runtime.node_checks import ANOTHER, check_node

    findings = (*check_node(), *probe(backend).findings)
    require_support(mode, Support(findings=findings))
    log = logging.getLogger(LOGGER)
    for finding in findings:
        # That another one holds the lock is told by the wait for it.
        if not finding.ok and finding.name != ANOTHER:
            remedy = f"; remedy: {finding.remedy}" if finding.remedy else ""
            log.warning("%s: %s%s", finding.name, finding.message, remedy, extra={"check": finding.name})


def _load_extensions(plugins: "PluginManager") -> None:
    import logging

    from kproxy_core.plugin.registry import load_extensions
    from kproxy_core.runtime.logs import LOGGER

    for name, error in load_extensions(plugins).items():
        logging.getLogger(LOGGER).error("the extension %s cannot be loaded, and is left out: %r", name, error)
