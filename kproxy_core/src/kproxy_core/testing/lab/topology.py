"""The hosts of a lab and how they are connected: builds them, adds and removes pods, lets go of all.

How the addresses are laid out is the plan's business (plan.py), why the routes are as they are is told in lab.py.
"""

import contextlib
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kproxy_core.testing.lab import kernel_parameters, links
from kproxy_core.testing.lab.faults import LabCapability, LabError, Missing
from kproxy_core.testing.lab.host import Host
from kproxy_core.testing.lab.namespaces import Namespace
from kproxy_core.testing.lab.plan import (
    BRIDGE,
    BRIDGE_PORT_PREFIX,
    NODES,
    OUTSIDE,
    POD_INTERFACE_PREFIX,
    UPLINK,
    AddressPair,
    LabPlan,
    Network,
    PodPlan,
    check_pod,
)

if TYPE_CHECKING:
    from pyroute2 import IPRoute

WAN = "wan0"
"""The bridge in the outside host that is the outside network; its ports are called like the nodes."""

_OUTSIDE_MAC = "02:6b:00:00:00:01"


class Topology:
    """Hosts by name, and the links between them. Everything registered in ``cleanup`` is undone by closing that."""

    def __init__(self, plan: LabPlan, names: str, cleanup: contextlib.ExitStack) -> None:
        self.plan = plan
        self.hosts: dict[str, Host] = {}
        self.missing: dict[LabCapability, Missing] = {}
        self.families: tuple[socket.AddressFamily, ...] = (socket.AF_INET, socket.AF_INET6)
        self._names = names
        self._cleanup = cleanup
        self._offsets: dict[str, dict[str, int]] = {node: {} for node in NODES}
        self._bridges: dict[str, int] = {}

    def build(self) -> None:
        """Make every host of the plan. Raises :class:`LabError`."""
        self._try_ipv6()
        outside = self._new_host(OUTSIDE, self.plan.client_addresses(0), kernel_parameters.ON_OUTSIDE)
        nodes = [self._new_host(node, self.plan.node_addresses(node), kernel_parameters.ON_NODES) for node in NODES]
        with outside.iproute() as ipr:
            self._build_outside(ipr, nodes)
        for node in nodes:
            with node.iproute() as ipr:
                self._build_node(ipr, node)
                for pod in self.plan.pods:
                    if pod.on == node.name:
                        self._add_pod(ipr, pod)

    def add_pod(self, pod: PodPlan) -> Host:
        """One more pod. Raises ``ValueError`` when it does not fit."""
        check_pod(pod)
        if pod.name in self.hosts:
            raise ValueError(f"there is a host called {pod.name!r} already")
        with self.hosts[pod.on].iproute() as ipr:
            return self._add_pod(ipr, pod)

    def unplug_pod(self, host: Host) -> None:
        """Take a pod's link away, and with it its addresses and routes."""
        assert host.pod is not None
        with self.hosts[host.pod.on].iproute() as ipr:
            ipr.link("del", index=links.index(ipr, host_interface(host.pod)))
        del self._offsets[host.pod.on][host.name]

    def remove_pod(self, host: Host) -> None:
        """Forget a pod that has been unplugged."""
        del self.hosts[host.name]
        host.namespace.close()

    def speaks(self, address: object) -> bool:
        """Whether the lab has the family of an address or network."""
        return ":" not in str(address) or socket.AF_INET6 in self.families

    def _try_ipv6(self) -> None:
        try:
            socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()
        except OSError as error:
            self.families = (socket.AF_INET,)
            self.missing[LabCapability.IPV6] = Missing(
                capability=LabCapability.IPV6,
                reason=f"no IPv6 sockets: {error.strerror}",
                remedy="boot without ipv6.disable=1",
            )

    def _new_host(
        self, name: str, addresses: AddressPair, parameters: Iterable[tuple[str, str]], pod: PodPlan | None = None
    ) -> Host:
        namespace = Namespace.create()
        self._cleanup.callback(namespace.close)
        host = Host(name, namespace, addresses, pod)
        if self._names:
            self._publish(host)
        with host.enter():
            for parameter, value in (*kernel_parameters.EVERYWHERE, *parameters):
                self._set(host, parameter, value)
        self.hosts[name] = host
        return host

    def _set(self, host: Host, parameter: str, value: str) -> None:
        try:
            host.sysctl(parameter, value)
        except OSError as error:
            missing = kernel_parameters.unset(parameter, error)
            if missing is not None and not _has(host, parameter, value):
                self.missing.setdefault(missing.capability, missing)

    def _publish(self, host: Host) -> None:
        name = f"{self._names}-{host.name}"
        try:
            host.namespace.publish(name)
        except FileExistsError as error:
            raise LabError(f"/run/netns/{name} exists: choose another name, or remove it: ip netns del {name}") from error
        except OSError as error:
            self.missing[LabCapability.NAMES] = Missing(
                capability=LabCapability.NAMES,
                reason=f"/run/netns/{name}: {error.strerror}",
                remedy="run as root, or use the paths of the namespaces",
            )

    def _give(self, ipr: "IPRoute", interface: int, addresses: AddressPair, lengths: tuple[int, int]) -> None:
        for address, length in zip((addresses.ipv4, addresses.ipv6), lengths, strict=True):
            if self.speaks(address):
                links.change_address(ipr, "add", interface, f"{address}/{length}")

    def _build_outside(self, ipr: "IPRoute", nodes: list[Host]) -> None:
        links.raise_loopback(ipr)
        wan = links.add_bridge(ipr, WAN, _OUTSIDE_MAC)
        for number, node in enumerate(nodes):
            cable = links.Cable(
                near=node.name,
                near_mac=f"02:6b:00:00:01:{number:02x}",
                far=UPLINK,
                far_mac=f"02:6b:00:00:02:{number:02x}",
                far_in=node.namespace.descriptor,
            )
            links.connect(ipr, cable, master=wan)
        outside = self.hosts[OUTSIDE]
        clients = [self.plan.client_addresses(number) for number in range(self.plan.outside_addresses)]
        self._give_clients(ipr, wan, clients)
        for addresses in clients[1:]:
            outside.note_addresses(addresses)
        for node in nodes:
            for pods in self.plan.pod_ranges(node.name):
                self._route(ipr, pods, node)
        for network in self.plan.service_ranges:
            self._route(ipr, network, nodes[0])

    def _give_clients(self, ipr: "IPRoute", wan: int, clients: list[AddressPair]) -> None:
        ipv4_length, ipv6_length = self._outside_lengths()
        # Of several addresses that would do as source, Linux takes the first IPv4 and the last IPv6 one that was added.
        texts = [f"{pair.ipv4}/{ipv4_length}" for pair in clients] + [f"{pair.ipv6}/{ipv6_length}" for pair in clients[::-1]]
        for text in texts:
            if self.speaks(text):
                links.change_address(ipr, "add", wan, text)

    def _outside_lengths(self) -> tuple[int, int]:
        return self.plan.outside_ipv4.prefixlen, self.plan.outside_ipv6.prefixlen

    def _route(self, ipr: "IPRoute", network: Network, via: Host) -> None:
        if self.speaks(network):
            links.add_route(ipr, network, via.address(network.version == 6))

    def _build_node(self, ipr: "IPRoute", node: Host) -> None:
        links.raise_loopback(ipr)
        uplink = links.index(ipr, UPLINK)
        ipr.link("set", index=uplink, state="up")
        addresses = AddressPair(ipv4=node.ipv4, ipv6=node.ipv6)
        self._give(ipr, uplink, addresses, self._outside_lengths())
        outside = self.hosts[OUTSIDE]
        for gateway in (outside.ipv4, outside.ipv6):
            if self.speaks(gateway):
                links.add_default(ipr, uplink, gateway)
        for other in NODES:
            if other != node.name:
                for pods in self.plan.pod_ranges(other):
                    self._route(ipr, pods, self.hosts[other])

    def _bridge(self, ipr: "IPRoute", node: Host) -> int:
        if node.name not in self._bridges:
            number = NODES.index(node.name)
            bridge = links.add_bridge(ipr, BRIDGE, f"02:6b:00:00:03:{number:02x}")
            addresses, lengths = self.plan.bridge_gateway(node.name)
            self._give(ipr, bridge, addresses, lengths)
            node.note_addresses(addresses)
            self._bridges[node.name] = bridge
        return self._bridges[node.name]

    def _add_pod(self, ipr: "IPRoute", pod: PodPlan) -> Host:
        taken = self._offsets[pod.on]
        offset = self.plan.free_offset(pod, frozenset(taken.values()))
        host = self._new_host(pod.name, self.plan.pod_addresses(pod.on, offset), (), pod)
        taken[pod.name] = offset
        number = NODES.index(pod.on)
        cable = links.Cable(
            near=host_interface(pod),
            near_mac=f"02:6b:01:{number:02x}:{offset >> 8:02x}:{offset & 255:02x}",
            far=UPLINK,
            far_mac=f"02:6b:02:{number:02x}:{offset >> 8:02x}:{offset & 255:02x}",
            far_in=host.namespace.descriptor,
        )
        if pod.bridged:
            self._plug_into_bridge(ipr, host, cable)
        else:
            self._plug_in_routed(ipr, host, cable)
        return host

    def _plug_into_bridge(self, ipr: "IPRoute", host: Host, cable: links.Cable) -> None:
        assert host.pod is not None
        node = self.hosts[host.pod.on]
        port = links.connect(ipr, cable, master=self._bridge(ipr, node))
        links.set_hairpin(ipr, port)
        gateways, lengths = self.plan.bridge_gateway(node.name)
        with host.iproute() as inside:
            uplink = self._raise_pod(inside, host, lengths)
            for gateway in (gateways.ipv4, gateways.ipv6):
                if self.speaks(gateway):
                    links.add_default(inside, uplink, gateway)

    def _plug_in_routed(self, ipr: "IPRoute", host: Host, cable: links.Cable) -> None:
        assert host.pod is not None
        node = self.hosts[host.pod.on]
        near = links.connect(ipr, cable)
        for pod, source in ((host.ipv4, node.ipv4), (host.ipv6, node.ipv6)):
            if self.speaks(pod):
                links.add_pod_route(ipr, near, pod, source)
                links.add_neighbour(ipr, near, pod, cable.far_mac)
        with host.iproute() as inside:
            uplink = self._raise_pod(inside, host, (32, 128))
            for gateway in links.POD_GATEWAYS:
                if self.speaks(gateway):
                    links.add_neighbour(inside, uplink, gateway, cable.near_mac)
                    links.add_default(inside, uplink, gateway)

    def _raise_pod(self, inside: "IPRoute", host: Host, lengths: tuple[int, int]) -> int:
        links.raise_loopback(inside)
        uplink = links.index(inside, UPLINK)
        inside.link("set", index=uplink, state="up")
        self._give(inside, uplink, AddressPair(ipv4=host.ipv4, ipv6=host.ipv6), lengths)
        return uplink


def _has(host: Host, parameter: str, value: str) -> bool:
    try:
        return host.sysctl(parameter) == value
    except OSError:
        return False


def host_interface(pod: PodPlan) -> str:
    """The name of a pod's link on its node."""
    return f"{BRIDGE_PORT_PREFIX if pod.bridged else POD_INTERFACE_PREFIX}{pod.name}"
