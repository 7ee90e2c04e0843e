"""The options that several commands share, under kube-proxy's names where it has them, and the Settings that they make."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from kproxy_core.config.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
_ALIASES = "kproxy.aliases"
MANIFESTS = "manifests:"
KUBERNETES = "kubernetes"

DETECT_LOCAL_MODES = ("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")
"""The values of :class:`~kproxy_core.config.settings.DetectLocalMode`, the default first, here so that help is quick."""


class Duration(click.ParamType[float]):
    """Seconds, read from Go's spelling."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or fail with what to write."""
        if isinstance(value, float | int):
            return float(value)
        from kproxy_core.config.values import parse_duration

        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def read_with(function: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Make a callback that reads an option's value by a function of ``config.values``, so that a mistake names the option.

    By its name, since that module is imported only when there is something to read.
    """

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        from kproxy_core.config import values

        try:
            return getattr(values, function)(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx=context, param=parameter) from error

    return callback


def alias(name: str, stands_for: str, **attributes: Any) -> Callable[[F], F]:
    """Accept kube-proxy's name of an option of ours as well, without showing it."""

    def remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        del parameter
        if value is not None:
            context.meta.setdefault(_ALIASES, {})[stands_for] = value

    return click.option(name, expose_value=False, hidden=True, callback=remember, **attributes)


def mode_option(command: F) -> F:
    """``--mode``: the proxy mode."""
    shown = click.option(
        "--mode",
        metavar="MODE",
        default="",
        help="The proxy mode; `kproxy modes` lists them.  [default: the best one here]",
    )
    return shown(alias("--proxy-mode", "mode")(command))


def netns_option(command: F) -> F:
    """``--netns``: another network namespace to work in."""
    return click.option(
        "--netns",
        metavar="PATH",
        type=click.Path(exists=True, dir_okay=False),
        help="Work in another network namespace, such as /run/netns/NAME or /proc/PID/ns/net.",
    )(command)


def source_option(command: F) -> F:
    """``--source``: where the objects come from. Arrives as the path of manifests, or ``-``."""
    return click.option(
        "--source",
        "manifests",
        metavar="manifests:PATH|-",
        required=True,
        callback=_read_source,
        help="Where Services and EndpointSlices come from: a file or folder of YAML or JSON, or - for standard input.",
    )(command)


def daemon_source_option(command: F) -> F:
    """``--source`` of the daemon, which may watch an API server too. Arrives as the path of manifests; None for Kubernetes."""
    return click.option(
        "--source",
        "manifests",
        metavar="kubernetes|manifests:PATH|-",
        default=KUBERNETES,
        show_default=True,
        callback=_read_daemon_source,
        help="Where Services and EndpointSlices come from: the API server, a file or folder of YAML or JSON, or standard input.",
    )(command)


def _read_daemon_source(context: click.Context, parameter: click.Parameter, value: str) -> str | None:
    return None if value == KUBERNETES else _read_source(context, parameter, value)


def _read_source(context: click.Context, parameter: click.Parameter, value: str) -> str:
    path = value.removeprefix(MANIFESTS)
    if value == "-" or (value.startswith(MANIFESTS) and path):
        return path
    hint = f"; did you mean manifests:{value}?" if os.path.exists(value) else ""  # noqa: PTH110 - any text may come here
    message = f"{value!r} is no source: write manifests:PATH, or manifests:- for standard input{hint}"
    raise click.BadParameter(message, ctx=context, param=parameter)


_SETTINGS: tuple[Callable[[Any], Any], ...] = (
    click.option("--node-name", metavar="NAME", default="", help="The Node object to act for.  [default: the host's name]"),
    alias("--hostname-override", "node_name"),
    click.option(
        "--bind-address",
        metavar="ADDRESS",
        default="",
        callback=read_with("parse_bind_address"),
        help="The node's primary address of its IP family, if not the Node object's. Nothing listens on it.",
    ),
    click.option(
        "--cluster-cidr",
        "cluster_cidrs",
        metavar="CIDR[,CIDR]",
        multiple=True,
        callback=read_with("parse_networks"),
        help="The pods' ranges, by which local traffic is told.",
    ),
    click.option(
        "--detect-local-mode",
        type=click.Choice(DETECT_LOCAL_MODES, case_sensitive=False),
        metavar="|".join(DETECT_LOCAL_MODES),
        default=DETECT_LOCAL_MODES[0],
        show_default=True,
        help="How traffic of local pods is told from other traffic.",
    ),
    click.option(
        "--pod-bridge-interface",
        metavar="NAME",
        default="",
        help="The bridge of local pods, for mode BridgeInterface.",
    ),
    click.option(
        "--pod-interface-name-prefix",
        metavar="PREFIX",
        default="",
        help="What the interfaces of local pods begin with, for mode InterfaceNamePrefix.",
    ),
    click.option(
        "--nodeport-addresses",
        "node_port_addresses",
        metavar="primary|all|CIDR[,CIDR...]",
        multiple=True,
        callback=read_with("parse_node_port_addresses"),
        help="The node's addresses that answer on NodePorts.  [default: the mode's]",
    ),
    click.option("--masquerade-all", is_flag=True, help="Masquerade everything sent to cluster addresses."),
    click.option(
        "--masquerade-bit",
        type=click.IntRange(0, 31),
        default=14,
        show_default=True,
        help="The bit of the packet mark for packets that wait to be masqueraded.",
    ),
    alias("--iptables-masquerade-bit", "masquerade_bit", type=click.IntRange(0, 31)),
    click.option(
        "--iptables-localhost-nodeports",
        type=bool,
        metavar="true|false",
        default=True,
        show_default="true",
        help="Whether NodePorts answer on 127.0.0.1, in mode iptables.",
    ),
    click.option(
        "--external-ips/--no-external-ips",
        "external_ips_allowed",
        default=True,
        help="Serve spec.externalIPs.  [default: yes]",
    ),
    click.option(
        "--protected-ports",
        metavar="PORT[,PORT...]",
        multiple=True,
        default=["22,10250"],
        show_default=True,
        callback=read_with("parse_ports"),
        help="TCP ports of the node itself that no Service may take over.",
    ),
)

_PERIODS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--min-sync-period",
        type=Duration(),
        default="0s",
        show_default=True,
        help="The least time between two syncs.",
    ),
    alias("--iptables-min-sync-period", "min_sync_period", type=Duration()),
    click.option(
        "--sync-period",
        type=Duration(),
        default="30s",
        show_default=True,
        help="The longest time without a look whether the kernel is as wanted.",
    ),
    alias("--iptables-sync-period", "sync_period", type=Duration()),
)


def settings_options(command: F) -> F:
    """Everything that decides what a state looks like."""
    for option in reversed(_SETTINGS):
        command = option(command)
    return command


def period_options(command: F) -> F:
    """When to sync."""
    for option in reversed(_PERIODS):
        command = option(command)
    return command


def with_aliases(context: click.Context, options: Mapping[str, Any]) -> dict[str, Any]:
    """A command's options, those under kube-proxy's names included."""
    return {**options, **context.meta.get(_ALIASES, {})}


def settings_from(context: click.Context, given: Mapping[str, Any]) -> Settings:
    """Make the Settings of a command's options. Raises ``click.UsageError`` when two options contradict each other."""
    from kproxy_core.config.settings import DetectLocalMode, Settings

    detection = DetectLocalMode(given["detect_local_mode"])
    wanted = {
        DetectLocalMode.BRIDGE_INTERFACE: "pod_bridge_interface",
        DetectLocalMode.INTERFACE_NAME_PREFIX: "pod_interface_name_prefix",
    }.get(detection)
    if wanted and not given[wanted]:
        raise click.UsageError(f"--detect-local-mode {detection.value} needs --{wanted.replace('_', '-')} as well", context)
    least, longest = _periods(context, given)
    return Settings(
        mode=given["mode"],
        node_name=(given["node_name"].strip() or host_name()).lower(),
        bind_address=given["bind_address"],
        cluster_cidrs=given["cluster_cidrs"],
        detect_local_mode=detection,
        bridge_interface=given["pod_bridge_interface"],
        interface_name_prefix=given["pod_interface_name_prefix"],
        node_port_addresses=given["node_port_addresses"],
        masquerade_bit=given["masquerade_bit"],
        masquerade_all=given["masquerade_all"],
        external_ips_allowed=given["external_ips_allowed"],
        protected_ports=given["protected_ports"],
        min_sync_period=least,
        sync_period=longest,
        mode_options={"iptables.localhostNodePorts": str(given["iptables_localhost_nodeports"]).lower()},
    )


def _periods(context: click.Context, given: Mapping[str, Any]) -> tuple[float, float]:
    """The periods, or their defaults for a command that does not sync."""
    from kproxy_core.config.settings import Settings

    defaults = Settings()
    least = given.get("min_sync_period", defaults.min_sync_period)
    longest = given.get("sync_period", defaults.sync_period)
    if longest <= 0:
        raise click.UsageError("--sync-period must be more than 0", context)
    if least > longest:
        raise click.UsageError(f"--min-sync-period ({least:g} s) must not be longer than --sync-period ({longest:g} s)", context)
    return least, longest


def host_name() -> str:
    """Return the name of this host, which is what a Node is usually called."""
    import platform

    return platform.node()
