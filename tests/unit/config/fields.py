"""Every field of a KubeProxyConfiguration: its default, a value that it takes, and values that it refuses with what is told.

The order is that of kube-proxy's reference. Texts are YAML.
"""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen


@frozen(kw_only=True)
class Leaf:
    """One field. ``wrong`` maps a text to a part of what is told about it."""

    path: str
    default: Any
    text: str
    value: Any
    wrong: Mapping[str, str] = field(factory=dict)


NO_TEXT = {"7": "text is expected, not '7' (put it in quotes)", "[a]": "text is expected, not a list"}
NO_BOOLEAN = {"'true'": "true or false is expected", "1": "true or false is expected", "y": "true or false is expected"}
NO_WHOLE = {"1.5": "a whole number is expected", "'1'": "a whole number is expected", "{}": "not a section"}
TOO_LARGE = {"2147483648": "at most 32 bits"}
NO_DURATION = {
    "30": "a duration such as 500ms, 30s or 1h30m is expected, not '30'",
    "'30'": "a duration with a unit",
    "soon": "'soon' is not a duration",
    "1 s": "'1 s' is not a duration",
    "true": "a duration such as",
    "[1s]": "not a list",
}
NO_LIST = {"a": "a list is expected, not 'a'", "{a: b}": "a list is expected, not a section", "[7]": "text is expected, not '7'"}
NEGATIVE = {"-1s": "0s or more is expected"}


def text(path: str, **more: Any) -> Leaf:
    """A field that holds text."""
    given = {"default": "", "text": "some", "value": "some", **more}
    return Leaf(path=path, **{**given, "wrong": {**NO_TEXT, **more.get("wrong", {})}})


def boolean(path: str, default: bool = False) -> Leaf:
    """A switch."""
    return Leaf(path=path, default=default, text=str(not default).lower(), value=not default, wrong=NO_BOOLEAN)


def whole(path: str, default: int, **more: Any) -> Leaf:
    """A whole number."""
    given = {"default": default, "text": "7", "value": 7, **more}
    return Leaf(path=path, **{**given, "wrong": {**NO_WHOLE, **TOO_LARGE, **more.get("wrong", {})}})


def duration(path: str, default: float, **more: Any) -> Leaf:
    """A duration."""
    given = {"default": default, "text": "1m1s", "value": 61.0, **more}
    return Leaf(path=path, **{**given, "wrong": {**NO_DURATION, **more.get("wrong", {})}})


def period(path: str, **more: Any) -> Leaf:
    """A period that cannot be zero."""
    return duration(path, wrong={"-1s": "a duration above 0 is expected"}, **more)


def texts(path: str, **more: Any) -> Leaf:
    """A list."""
    return Leaf(path=path, **{"default": (), **more, "wrong": {**NO_LIST, **more.get("wrong", {})}})


def timeout(path: str, default: float = 0.0) -> Leaf:
    """A duration of zero or more."""
    return duration(path, default, wrong=NEGATIVE)


def masquerade_bit(path: str) -> Leaf:
    """A bit of the packet mark."""
    return whole(path, 14, text="31", value=31, wrong={"32": "a bit from 0 to 31 is expected, not 32", "-1": "not -1"})


def least_period(path: str, default: float) -> Leaf:
    """A lower bound of the time between two syncs."""
    wrong = {"-1s": "0s or more is expected", "31s": "(30s) is expected"}
    return duration(path, default, text="250ms", value=0.25, wrong=wrong)


def local_interface(path: str) -> Leaf:
    """The name of an interface, or what it begins with."""
    wrong = {"a-name-of-16-byt": "at most 15 bytes", "a/b": "cannot be the name of an interface", "'a b'": "cannot be the name"}
    return text(path, text="cni0", value="cni0", wrong=wrong)


def listener(path: str, port: int) -> Leaf:
    """An address to listen at."""
    wrong = {
        "here": "'here' is not an IP address; address:port is expected, such as 0.0.0.0:",
        "0.0.0.0:65536": "'65536' is not a port from 1 to 65535",
        "0.0.0.0:0": "'0' is not a port",
        f"localhost:{port}": "'localhost' is not an IP address",
        "'[::1:80'": "address:port is expected",
    }
    return text(path, text="'[::1]:8000'", value="[::1]:8000", wrong=wrong)


LEAVES = (
    Leaf(
        path="featureGates",
        default={},
        text="{NFTablesProxyMode: true}",
        value={"NFTablesProxyMode": True},
        wrong={"[a]": "a map is expected", "{A: 1}": "A: true or false is expected", "{A: on, A: off}": "'A' is given twice"},
    ),
    text("clientConnection.kubeconfig"),
    text("clientConnection.acceptContentTypes"),
    text("clientConnection.contentType", default="application/vnd.kubernetes.protobuf"),
    Leaf(
        path="clientConnection.qps",
        default=5.0,
        text="2.5",
        value=2.5,
        wrong={"fast": "a number is expected, not 'fast'", ".nan": "a number is expected", "'5'": "a number is expected"},
    ),
    whole("clientConnection.burst", 10, wrong={"-1": "0 or more is expected"}),
    text("logging.format", default="text", text="json", value="json", wrong={"xml": "one of text, json is expected, not 'xml'"}),
    duration("logging.flushFrequency", 5.0, wrong=NEGATIVE | {"30": ""}),
    whole("logging.verbosity", 0, wrong={"-1": "0 or more is expected"}),
    Leaf(
        path="logging.vmodule",
        default=(),
        text="[{filePattern: 'proxy*', verbosity: 4}]",
        value=({"filePattern": "proxy*", "verbosity": "4"},),
        wrong={
            "proxy=4": "a list is expected",
            "[proxy]": "a map is expected",
            "[{filePattern: a}]": "a filePattern and a verbosity of 0 or more are expected",
            "[{filePattern: a, verbosity: -1}]": "a filePattern and a verbosity of 0 or more are expected",
            "[{filePattern: a, filePattern: b}]": "'filePattern' is given twice",
            "[{[a]: b}]": "a map from names is expected",
            "[{filePattern: [a]}]": "a single value is expected",
        },
    ),
    boolean("logging.options.text.splitStream"),
    Leaf(
        path="logging.options.text.infoBufferSize", default="0", text="64Ki", value="64Ki", wrong={"big": "a quantity of bytes"}
    ),
    boolean("logging.options.json.splitStream"),
    Leaf(path="logging.options.json.infoBufferSize", default="0", text="4096", value="4096", wrong={"[]": "a quantity of bytes"}),
    text("hostnameOverride", wrong={"'  '": "a node name is expected, or nothing"}),
    text("bindAddress", text="10.0.0.1", value="10.0.0.1", wrong={"node": "'node' is not an IP address"}),
    listener("healthzBindAddress", 10256),
    listener("metricsBindAddress", 10249),
    boolean("bindAddressHardFail"),
    boolean("enableProfiling"),
    text("showHiddenMetricsForVersion", text="'1.35'", value="1.35", wrong={"v1.35": "a version such as 1.35", "1.35": "quotes"}),
    text("mode", text="nftables", value="nftables"),
    masquerade_bit("iptables.masqueradeBit"),
    boolean("iptables.masqueradeAll"),
    boolean("iptables.localhostNodePorts", default=True),
    period("iptables.syncPeriod", default=30.0),
    least_period("iptables.minSyncPeriod", 1.0),
    period("ipvs.syncPeriod", default=30.0),
    least_period("ipvs.minSyncPeriod", 0.0),
    text("ipvs.scheduler", text="lblcr", value="lblcr"),
    texts(
        "ipvs.excludeCIDRs",
        text="[10.0.0.0/8]",
        value=("10.0.0.0/8",),
        wrong={"[10.0.0.0]": "'10.0.0.0' is not an address range"},
    ),
    boolean("ipvs.strictARP"),
    timeout("ipvs.tcpTimeout"),
    timeout("ipvs.tcpFinTimeout"),
    timeout("ipvs.udpTimeout"),
    masquerade_bit("nftables.masqueradeBit"),
    boolean("nftables.masqueradeAll"),
    period("nftables.syncPeriod", default=30.0),
    least_period("nftables.minSyncPeriod", 1.0),
    text("winkernel.networkName"),
    text("winkernel.sourceVip"),
    boolean("winkernel.enableDSR"),
    text("winkernel.rootHnsEndpointName"),
    boolean("winkernel.forwardHealthCheckVip"),
    text(
        "detectLocalMode",
        text="NodeCIDR",
        value="NodeCIDR",
        wrong={"nodecidr": "one of ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix is expected, not 'nodecidr'"},
    ),
    local_interface("detectLocal.bridgeInterface"),
    local_interface("detectLocal.interfaceNamePrefix"),
    text(
        "clusterCIDR",
        text="10.244.0.0/16,fd00::/56",
        value="10.244.0.0/16,fd00::/56",
        wrong={
            "10.0.0.0": "'10.0.0.0' is not an address range",
            "'10.0.0.0/8,'": "'' is not an address range",
            "'10.0.0.0/8,11.0.0.0/8'": "one of IPv4 and one of IPv6",
            "'10.0.0.0/8,fd00::/56,fd01::/56'": "one of IPv4 and one of IPv6",
        },
    ),
    texts(
        "nodePortAddresses",
        text="[10.0.0.0/8, '::1/128']",
        value=("10.0.0.0/8", "::1/128"),
        wrong={
            "[10.0.0.1]": "a range such as 10.0.0.0/8, or the word primary or all, is expected, not '10.0.0.1'",
            "['']": "is expected, not ''",
            "['10.0.0.0/8,11.0.0.0/8']": "is expected, not '10.0.0.0/8,11.0.0.0/8'",
            "[primary, 10.0.0.0/8]": "'primary' has to stand alone, without 10.0.0.0/8",
        },
    ),
    whole(
        "oomScoreAdj", -999, text="-1000", value=-1000, wrong={"1001": "-1000 to 1000 is expected, not 1001", "-1001": "-1001"}
    ),
    whole("conntrack.maxPerCore", 32768, wrong={"-1": "0 or more is expected"}),
    whole("conntrack.min", 131072, wrong={"-1": "0 or more is expected"}),
    timeout("conntrack.tcpEstablishedTimeout", 86400.0),
    timeout("conntrack.tcpCloseWaitTimeout", 3600.0),
    boolean("conntrack.tcpBeLiberal"),
    timeout("conntrack.udpTimeout"),
    timeout("conntrack.udpStreamTimeout"),
    period("configSyncPeriod", default=900.0),
    text("portRange"),
    boolean("windowsRunAsService"),
)

HARMLESS = {"logging.flushFrequency": {"30"}}
"""Texts that are wrong for others of the kind: this one takes whole numbers, of nanoseconds."""
