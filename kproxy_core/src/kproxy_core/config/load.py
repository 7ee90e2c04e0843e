"""From the text of a KubeProxyConfiguration to what the daemon is run with, or to everything that is wrong with it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from attrs import evolve, field, frozen

from kproxy_core.config.kubeproxy import REMOVED, Iptables, Ipvs, KubeProxyConfiguration, Nftables
from kproxy_core.config.positions import Problem, read
from kproxy_core.config.rules import violations
from kproxy_core.config.settings import DetectLocalMode, Settings
from kproxy_core.config.values import parse_node_port_addresses
from kproxy_core.model.addresses import parse_address, parse_network

DEFAULT_MODE: Final = "iptables"
"""What kube-proxy runs on Linux when the file names no mode."""

LARGEST: Final = 1 << 20
"""Bytes; what the API server takes in a ConfigMap, where these files come from."""

_KNOWN_GATES: Final = frozenset(
    {
        "AllAlpha",
        "AllBeta",
        "AllowServiceExternalIPs",
        "ComponentFlagz",
        "ComponentStatusz",
        "ContextualLogging",
        "KubeProxyNFTablesLocalhostNodePorts",
        "LoggingAlphaOptions",
        "LoggingBetaOptions",
        "MultiCIDRServiceAllocator",
        "NFTablesNetlink",
        "NFTablesProxyMode",
        "PreferSameTrafficDistribution",
        "WinDSR",
        "WinOverlay",
    }
)


@frozen(kw_only=True)
class Loaded:
    """A configuration as read, all problems by line, and the line of each field given; usable when no problem is fatal."""

    configuration: KubeProxyConfiguration
    problems: tuple[Problem, ...]
    lines: Mapping[str, int] = field(factory=dict)

    def line(self, name: str) -> int:
        """Return the line of a field, or of the section that lacks it, or the first."""
        while name not in self.lines and ("." in name or "[" in name):
            name = name[: max(name.rfind("."), name.rfind("["))]
        return self.lines.get(name, 1)

    def with_problems(self, more: Iterable[Problem]) -> "Loaded":
        """Return the same with more problems, in the order of the lines."""
        return evolve(self, problems=tuple(sorted([*self.problems, *more])))

    @property
    def usable(self) -> bool:
        """Whether the daemon may run with it."""
        return not any(problem.fatal for problem in self.problems)


def load_bytes(data: bytes) -> Loaded:
    """Read and check a file's content; what is too large or no UTF-8 is a problem, too."""
    if len(data) > LARGEST:
        return _unusable(1, f"this is no configuration: it has more than {LARGEST >> 10} KiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return _unusable(line, f"UTF-8 is expected, not the byte {data[error.start]:#04x}")
    return load(text)


def _unusable(line: int, message: str) -> Loaded:
    return Loaded(configuration=KubeProxyConfiguration(), problems=(Problem(line=line, field="", message=message),))


def load(text: str) -> Loaded:
    """Read and check a configuration; see :class:`Loaded`."""
    reading = read(text, KubeProxyConfiguration, REMOVED)
    loaded = Loaded(configuration=reading.value, problems=reading.problems, lines=reading.lines)
    if reading.unreadable:
        return loaded
    # A value that could not be read has been told already.
    told = {problem.field for problem in reading.problems}
    found = [
        Problem(line=loaded.line(each.field), field=each.field, message=each.message, fatal=each.fatal)
        for each in violations(loaded.configuration)
        if told.isdisjoint({each.field, each.beside} - {""})
    ]
    return loaded.with_problems([*found, *_unknown_gates(loaded)])


def _unknown_gates(loaded: Loaded) -> Iterator[Problem]:
    for gate in loaded.configuration.feature_gates:
        if gate not in _KNOWN_GATES:
            name = f"featureGates.{gate}"
            message = "no feature gate that a service proxy knows; it has no effect"
            yield Problem(line=loaded.line(name), field=name, message=message, fatal=False)


def settings_from(configuration: KubeProxyConfiguration, node_name: str) -> Settings:
    """Return the settings of a usable configuration; periods and mark are those of the section of its mode, as in kube-proxy."""
    mode = configuration.mode or DEFAULT_MODE
    c = configuration
    # As in kube-proxy, modes without a section of their own share that of iptables.
    sections: dict[str, Iptables | Ipvs | Nftables] = {"ipvs": c.ipvs, "nftables": c.nftables}
    part = sections.get(mode, c.iptables)
    marks = c.nftables if mode == "nftables" else c.iptables
    return Settings(
        mode=mode,
        node_name=node_name,
        bind_address=parse_address(c.bind_address) if c.bind_address and not _is_any(c.bind_address) else None,
        cluster_cidrs=tuple(parse_network(text) for text in c.cluster_cidr.split(",") if text),
        detect_local_mode=DetectLocalMode(c.detect_local_mode or "ClusterCIDR"),
        bridge_interface=c.detect_local.bridge_interface,
        interface_name_prefix=c.detect_local.interface_name_prefix,
        node_port_addresses=parse_node_port_addresses(c.node_port_addresses),
        masquerade_bit=marks.masquerade_bit,
        masquerade_all=marks.masquerade_all,
        external_ips_allowed=c.feature_gates.get("AllowServiceExternalIPs", True),
        min_sync_period=part.min_sync_period,
        sync_period=part.sync_period,
        mode_options=_mode_options(c),
    )


def _is_any(text: str) -> bool:
    return not any(parse_address(text))


def _mode_options(c: KubeProxyConfiguration) -> Mapping[str, str]:
    """Return what only some modes want to know, by kube-proxy's field names."""
    return {
        "iptables.localhostNodePorts": str(c.iptables.localhost_node_ports).lower(),
        "ipvs.scheduler": c.ipvs.scheduler,
        "ipvs.excludeCIDRs": ",".join(c.ipvs.exclude_cidrs),
        "ipvs.strictARP": str(c.ipvs.strict_arp).lower(),
        "ipvs.tcpTimeout": f"{c.ipvs.tcp_timeout:g}",
        "ipvs.tcpFinTimeout": f"{c.ipvs.tcp_fin_timeout:g}",
        "ipvs.udpTimeout": f"{c.ipvs.udp_timeout:g}",
        "conntrack.tcpBeLiberal": str(c.conntrack.tcp_be_liberal).lower(),
    }
