"""What a configuration must keep besides the type of each field: kube-proxy's own validation, each with its remedy."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from attrs import evolve, frozen

from kproxy_core.config.kubeproxy import API_VERSION, KIND, Iptables, Ipvs, KubeProxyConfiguration, Nftables
from kproxy_core.config.settings import NodePortScope
from kproxy_core.config.values import parse_node_port_addresses, split_host_port, split_list
from kproxy_core.model.addresses import Network, parse_address, parse_network

MAX_INTERFACE_NAME: Final = 15
_VERSION = re.compile(r"\d+\.\d+", re.ASCII)
_SCHEDULERS: Final = ("rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "mh", "dh", "sed", "nq", "fo", "ovf", "twos")


@frozen
class Violation:
    """A field, by dotted path, and what is wrong with it. ``beside`` is another field without which nothing can be said of it."""

    field: str
    message: str
    beside: str = ""
    fatal: bool = True


def violations(configuration: KubeProxyConfiguration) -> tuple[Violation, ...]:
    """Return everything that is wrong, in the order of the file's fields as kube-proxy documents them.

    As in kube-proxy, what is wrong with the section of another mode keeps nothing from running; that of iptables always counts.
    """
    found = (violation for check in _CHECKS for violation in check(configuration))
    idle = {f"{section}." for section in ("ipvs", "nftables") if section != configuration.mode}
    return tuple(evolve(each, fatal=False) if each.field.startswith(tuple(idle)) else each for each in found)


def _identity(c: KubeProxyConfiguration) -> Iterator[Violation]:
    if c.api_version != API_VERSION:
        yield Violation("apiVersion", f"{API_VERSION} is expected, not {c.api_version!r}")
    if c.kind != KIND:
        yield Violation("kind", f"{KIND} is expected, not {c.kind!r}")


def _client(c: KubeProxyConfiguration) -> Iterator[Violation]:
    if c.client_connection.burst < 0:
        yield Violation("clientConnection.burst", "0 or more is expected")


def _logging(c: KubeProxyConfiguration) -> Iterator[Violation]:
    if c.logging.verbosity < 0:
        yield Violation("logging.verbosity", "0 or more is expected")
    if c.logging.flush_frequency < 0:
        yield Violation("logging.flushFrequency", "0s or more is expected")
    if c.logging.vmodule and c.logging.format == "json":
        yield Violation("logging.vmodule", "works with logging.format text only")
    for index, entry in enumerate(c.logging.vmodule):
        if set(entry) != {"filePattern", "verbosity"} or not entry["verbosity"].isdigit():
            yield Violation(f"logging.vmodule[{index}]", "a filePattern and a verbosity of 0 or more are expected")


def _addresses(c: KubeProxyConfiguration) -> Iterator[Violation]:
    if c.bind_address:
        yield from _tried("bindAddress", parse_address, c.bind_address)
    for name, text, port in (
        ("healthzBindAddress", c.healthz_bind_address, 10256),
        ("metricsBindAddress", c.metrics_bind_address, 10249),
    ):
        if text:
            yield from _tried(name, partial(split_host_port, default_port=port), text)


def _tried(field: str, parse: Callable[[str], object], text: str) -> Iterator[Violation]:
    try:
        parse(text)
    except ValueError as error:
        yield Violation(field, str(error))


def _periods(c: KubeProxyConfiguration) -> Iterator[Violation]:
    for name, part in (("iptables", c.iptables), ("ipvs", c.ipvs), ("nftables", c.nftables)):
        yield from _periods_of(name, part)
    if c.config_sync_period <= 0:
        yield Violation("configSyncPeriod", "a duration above 0 is expected")


def _periods_of(name: str, part: Iptables | Ipvs | Nftables) -> Iterator[Violation]:
    if part.sync_period <= 0:
        yield Violation(f"{name}.syncPeriod", "a duration above 0 is expected")
    if part.min_sync_period < 0:
        yield Violation(f"{name}.minSyncPeriod", "0s or more is expected")
    if part.min_sync_period > part.sync_period > 0:
        message = f"no more than {name}.syncPeriod ({part.sync_period:g}s) is expected"
        yield Violation(f"{name}.minSyncPeriod", message, beside=f"{name}.syncPeriod")


def _modes(c: KubeProxyConfiguration) -> Iterator[Violation]:
    for name, bit in (("iptables", c.iptables.masquerade_bit), ("nftables", c.nftables.masquerade_bit)):
        if not 0 <= bit <= 31:
            yield Violation(f"{name}.masqueradeBit", f"a bit from 0 to 31 is expected, not {bit}")
    if c.ipvs.scheduler and c.ipvs.scheduler not in _SCHEDULERS:
        message = f"Linux has {', '.join(_SCHEDULERS)}; whether this kernel has {c.ipvs.scheduler!r} is known when it is asked"
        yield Violation("ipvs.scheduler", message, fatal=False)
    for index, text in enumerate(c.ipvs.exclude_cidrs):
        yield from _tried(f"ipvs.excludeCIDRs[{index}]", parse_network, text)
    for name, seconds in (
        ("tcpTimeout", c.ipvs.tcp_timeout),
        ("tcpFinTimeout", c.ipvs.tcp_fin_timeout),
        ("udpTimeout", c.ipvs.udp_timeout),
    ):
        if seconds < 0:
            yield Violation(f"ipvs.{name}", "0s or more is expected")


def _local_traffic(c: KubeProxyConfiguration) -> Iterator[Violation]:
    bridge, prefix = c.detect_local.bridge_interface, c.detect_local.interface_name_prefix
    if c.detect_local_mode == "BridgeInterface" and not bridge:
        yield Violation("detectLocal.bridgeInterface", "detectLocalMode BridgeInterface needs the name of the bridge here")
    if c.detect_local_mode == "InterfaceNamePrefix" and not prefix:
        yield Violation(
            "detectLocal.interfaceNamePrefix", "detectLocalMode InterfaceNamePrefix needs the prefix of the pods' interfaces here"
        )
    for name, text in (("bridgeInterface", bridge), ("interfaceNamePrefix", prefix)):
        if len(text.encode()) > MAX_INTERFACE_NAME or "/" in text or any(character.isspace() for character in text):
            yield Violation(
                f"detectLocal.{name}", f"{text!r} cannot be the name of an interface (at most 15 bytes, no / or blanks)"
            )
    yield from _cluster_cidr(c)


def _cluster_cidr(c: KubeProxyConfiguration) -> Iterator[Violation]:
    if not c.cluster_cidr:
        return
    networks: list[Network] = []
    for text in c.cluster_cidr.split(","):
        try:
            networks.append(parse_network(text))
        except ValueError as error:
            yield Violation("clusterCIDR", str(error))
    families = [network.family for network in networks]
    if len(families) > len(set(families)):
        yield Violation("clusterCIDR", "one range, or one of IPv4 and one of IPv6 with a comma between, is expected")


def _node_ports(c: KubeProxyConfiguration) -> Iterator[Violation]:
    words = {scope.value for scope in NodePortScope}
    wrong = False
    for index, text in enumerate(c.node_port_addresses):
        if text not in words and (len(split_list([text])) != 1 or not _is_network(text)):
            wrong = True
            message = f"a range such as 10.0.0.0/8, or the word primary or all, is expected, not {text!r}"
            yield Violation(f"nodePortAddresses[{index}]", message)
    if not wrong:
        yield from _tried("nodePortAddresses", lambda _: parse_node_port_addresses(c.node_port_addresses), "")


def _is_network(text: str) -> bool:
    try:
        parse_network(text)
    except ValueError:
        return False
    return True


def _node_settings(c: KubeProxyConfiguration) -> Iterator[Violation]:
    if not -1000 <= c.oom_score_adj <= 1000:
        yield Violation("oomScoreAdj", f"-1000 to 1000 is expected, not {c.oom_score_adj}")
    for name, number in (("maxPerCore", c.conntrack.max_per_core), ("min", c.conntrack.min)):
        if number < 0:
            yield Violation(f"conntrack.{name}", "0 or more is expected")
    for name, seconds in (
        ("tcpEstablishedTimeout", c.conntrack.tcp_established_timeout),
        ("tcpCloseWaitTimeout", c.conntrack.tcp_close_wait_timeout),
        ("udpTimeout", c.conntrack.udp_timeout),
        ("udpStreamTimeout", c.conntrack.udp_stream_timeout),
    ):
        if seconds < 0:
            yield Violation(f"conntrack.{name}", "0s or more is expected")
    if c.hostname_override and not c.hostname_override.strip():
        yield Violation("hostnameOverride", "a node name is expected, or nothing")
    version = c.show_hidden_metrics_for_version
    if version and not _VERSION.fullmatch(version):
        yield Violation("showHiddenMetricsForVersion", f"a version such as 1.35 is expected, not {version!r}")


_CHECKS: Final = (_identity, _client, _logging, _addresses, _periods, _modes, _local_traffic, _node_ports, _node_settings)
