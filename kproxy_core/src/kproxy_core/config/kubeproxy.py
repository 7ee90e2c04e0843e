"""KubeProxyConfiguration, ``kubeproxy.config.k8s.io/v1alpha1``: kube-proxy's own configuration file, every field of it.

Names, defaults and meanings are those of kube-proxy 1.36. Fields that concern Windows alone are read and ignored, as are those
that kube-proxy itself no longer uses. Zeros stand for the default where kube-proxy takes them so, as in the files that kubeadm
writes. ``config.rules`` checks what a single field cannot tell.
"""

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from kproxy_core.config.kinds import (
    BOOLEAN,
    DURATION,
    GATES,
    INTEGER,
    MAPS,
    NUMBER,
    QUANTITY,
    TEXT,
    TEXTS,
    TIME,
    choice,
)
from kproxy_core.config.positions import key, section

API_VERSION: Final = "kubeproxy.config.k8s.io/v1alpha1"
KIND: Final = "KubeProxyConfiguration"

REMOVED: Final = {
    "udpIdleTimeout": "it went with the userspace mode; conntrack.udpTimeout is for the kernel's flows",
    "resourceContainer": "run the daemon in the cgroup it should be in",
    "conntrack.max": "use conntrack.maxPerCore and conntrack.min",
    "enableContentionProfiling": "it was for Go's runtime",
}


@frozen(kw_only=True)
class ClientConnection:
    """How the API server is reached. An empty ``kubeconfig`` means in-cluster credentials."""

    kubeconfig: str = key("kubeconfig", TEXT, "")
    accept_content_types: str = key("acceptContentTypes", TEXT, "")
    content_type: str = key("contentType", TEXT, "application/vnd.kubernetes.protobuf", unless_zero=True)
    qps: float = key("qps", NUMBER, 5.0, unless_zero=True)
    burst: int = key("burst", INTEGER, 10, unless_zero=True)


@frozen(kw_only=True)
class LogStreams:
    """Options of one log format."""

    split_stream: bool = key("splitStream", BOOLEAN, False)
    info_buffer_size: str = key("infoBufferSize", QUANTITY, "0")


@frozen(kw_only=True)
class LoggingOptions:
    """Options of the log formats."""

    text: LogStreams = section("text", LogStreams)
    json: LogStreams = section("json", LogStreams)


@frozen(kw_only=True)
class Logging:
    """The log."""

    format: str = key("format", choice("text", "json"), "text")
    flush_frequency: float = key("flushFrequency", TIME, 5.0, unless_zero=True)
    verbosity: int = key("verbosity", INTEGER, 0)
    vmodule: tuple[Mapping[str, str], ...] = key("vmodule", MAPS, ())
    options: LoggingOptions = section("options", LoggingOptions)


@frozen(kw_only=True)
class Iptables:
    """The iptables mode. Periods in seconds."""

    masquerade_bit: int = key("masqueradeBit", INTEGER, 14)
    masquerade_all: bool = key("masqueradeAll", BOOLEAN, False)
    localhost_node_ports: bool = key("localhostNodePorts", BOOLEAN, True)
    sync_period: float = key("syncPeriod", DURATION, 30.0, unless_zero=True)
    min_sync_period: float = key("minSyncPeriod", DURATION, 1.0)


@frozen(kw_only=True)
class Ipvs:
    """The ipvs mode. Periods and timeouts in seconds."""

    sync_period: float = key("syncPeriod", DURATION, 30.0, unless_zero=True)
    min_sync_period: float = key("minSyncPeriod", DURATION, 0.0)
    scheduler: str = key("scheduler", TEXT, "")
    exclude_cidrs: tuple[str, ...] = key("excludeCIDRs", TEXTS, ())
    strict_arp: bool = key("strictARP", BOOLEAN, False)
    tcp_timeout: float = key("tcpTimeout", DURATION, 0.0)
    tcp_fin_timeout: float = key("tcpFinTimeout", DURATION, 0.0)
    udp_timeout: float = key("udpTimeout", DURATION, 0.0)


@frozen(kw_only=True)
class Nftables:
    """The nftables mode. Periods in seconds."""

    masquerade_bit: int = key("masqueradeBit", INTEGER, 14)
    masquerade_all: bool = key("masqueradeAll", BOOLEAN, False)
    sync_period: float = key("syncPeriod", DURATION, 30.0, unless_zero=True)
    min_sync_period: float = key("minSyncPeriod", DURATION, 1.0)


@frozen(kw_only=True)
class Winkernel:
    """Windows only; read and ignored."""

    network_name: str = key("networkName", TEXT, "")
    source_vip: str = key("sourceVip", TEXT, "")
    enable_dsr: bool = key("enableDSR", BOOLEAN, False)
    root_hns_endpoint_name: str = key("rootHnsEndpointName", TEXT, "")
    forward_health_check_vip: bool = key("forwardHealthCheckVip", BOOLEAN, False)


@frozen(kw_only=True)
class DetectLocal:
    """How local pods are told by interface."""

    bridge_interface: str = key("bridgeInterface", TEXT, "")
    interface_name_prefix: str = key("interfaceNamePrefix", TEXT, "")


@frozen(kw_only=True)
class Conntrack:
    """Kernel settings of connection tracking. 0 leaves a setting alone; timeouts in seconds."""

    max_per_core: int = key("maxPerCore", INTEGER, 32768)
    min: int = key("min", INTEGER, 131072)
    tcp_established_timeout: float = key("tcpEstablishedTimeout", DURATION, 86400.0)
    tcp_close_wait_timeout: float = key("tcpCloseWaitTimeout", DURATION, 3600.0)
    tcp_be_liberal: bool = key("tcpBeLiberal", BOOLEAN, False)
    udp_timeout: float = key("udpTimeout", DURATION, 0.0)
    udp_stream_timeout: float = key("udpStreamTimeout", DURATION, 0.0)


@frozen(kw_only=True)
class KubeProxyConfiguration:
    """The whole file. ``mode`` is empty when the file does not name one, which means iptables."""

    api_version: str = key("apiVersion", TEXT, "")
    kind: str = key("kind", TEXT, "")
    feature_gates: Mapping[str, bool] = key("featureGates", GATES, {})
    client_connection: ClientConnection = section("clientConnection", ClientConnection)
    logging: Logging = section("logging", Logging)
    hostname_override: str = key("hostnameOverride", TEXT, "")
    bind_address: str = key("bindAddress", TEXT, "")
    healthz_bind_address: str = key("healthzBindAddress", TEXT, "")
    metrics_bind_address: str = key("metricsBindAddress", TEXT, "")
    bind_address_hard_fail: bool = key("bindAddressHardFail", BOOLEAN, False)
    enable_profiling: bool = key("enableProfiling", BOOLEAN, False)
    show_hidden_metrics_for_version: str = key("showHiddenMetricsForVersion", TEXT, "")
    mode: str = key("mode", TEXT, "")
    iptables: Iptables = section("iptables", Iptables)
    ipvs: Ipvs = section("ipvs", Ipvs)
    nftables: Nftables = section("nftables", Nftables)
    winkernel: Winkernel = section("winkernel", Winkernel)
    detect_local_mode: str = key(
        "detectLocalMode", choice("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"), ""
    )
    detect_local: DetectLocal = section("detectLocal", DetectLocal)
    cluster_cidr: str = key("clusterCIDR", TEXT, "")
    node_port_addresses: tuple[str, ...] = key("nodePortAddresses", TEXTS, ())
    oom_score_adj: int = key("oomScoreAdj", INTEGER, -999)
    conntrack: Conntrack = section("conntrack", Conntrack)
    config_sync_period: float = key("configSyncPeriod", DURATION, 900.0, unless_zero=True)
    port_range: str = key("portRange", TEXT, "")
    windows_run_as_service: bool = key("windowsRunAsService", BOOLEAN, False)
