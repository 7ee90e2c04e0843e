"""``kproxy run``: the daemon."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from kproxy_core.cli.examples import Command
from kproxy_core.cli.options import (
    alias,
    mode_option,
    netns_option,
    period_options,
    settings_from,
    settings_options,
    source_option,
    with_aliases,
)

if TYPE_CHECKING:
    from pluggy import PluginManager

    from kproxy_core.config.settings import Settings
    from kproxy_core.plugin.backend import AnyBackend

DEBUGGING = 4
"""From this verbosity on, as in kube-proxy, the log holds what only somebody who looks for a fault wants to read."""

PR_SET_PDEATHSIG = 1

EXAMPLES = (
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
@source_option
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
@click.option("--end-with-parent", is_flag=True, hidden=True, help="Stop when the process that started this one ends.")
@click.pass_context
def command(context: click.Context, /, manifests: str, netns: str | None, end_with_parent: bool, **options: Any) -> None:
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
    settings = settings_from(context, given)
    with entered(netns):
        status = _run(settings, manifests, given)
    context.exit(status)


def _end_with_parent() -> None:
    """Have the kernel stop this process, by SIGTERM, as soon as its parent is gone (man 2 prctl, PR_SET_PDEATHSIG)."""
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _run(settings: "Settings", manifests: str, given: Mapping[str, Any]) -> int:
    import logging

    from attrs import evolve

    from kproxy_core.cli.installed import choose_mode
    from kproxy_core.cli.sources import FollowedManifests
    from kproxy_core.plugin.registry import load_backend, new_plugin_manager
    from kproxy_core.runtime.daemon import run_daemon
    from kproxy_core.runtime.logs import configure_logging
    from kproxy_core.runtime.options import DaemonOptions

    configure_logging(given["log_format"], logging.DEBUG if given["verbosity"] >= DEBUGGING else logging.INFO)
    settings = evolve(settings, mode=choose_mode(settings.mode))
    plugins = new_plugin_manager()
    backend = load_backend(settings.mode, settings, plugins)
    _check(settings.mode, backend)
    _load_extensions(plugins)
    source = FollowedManifests(manifests)
    return run_daemon(
        DaemonOptions(settings=settings, backend=backend, sources=(source,), wait_for=source.delivers, plugins=plugins)
    )


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
