"""The demo's cluster: the lab with named pods and their servers, and the manifests that tell kproxy about them."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network

from kproxy_core.cli.demo.manifests import (
    DemoEndpoint,
    ManifestFolder,
    node_manifest,
    service_cidr_manifest,
    service_manifest,
    slice_manifests,
)
from kproxy_core.cli.demo.services import CLIENT, NODE, SERVICES, DemoPod, DemoService
from kproxy_core.testing.lab import AddressPair, Host, Lab, LabPlan, Question, ServerPlan

TIMEOUT = 3.0
"""Seconds after which a connection has failed; one lost packet, which TCP sends again after a second, is a delay only."""

PLAN = LabPlan(node_routed=0, node_bridged=0, node2_routed=0)
"""No pods but those with names of the demo's own."""


class Cluster:
    """Pods by name, and which of them each Service has as endpoints now."""

    def __init__(self, lab: Lab, folder: ManifestFolder) -> None:
        self.lab = lab
        self.folder = folder
        self.endpoints: dict[str, tuple[DemoEndpoint, ...]] = {service.name: () for service in SERVICES}

    def build(self) -> None:
        """Add the client and every pod, and write all manifests."""
        self.add_pod(CLIENT)
        for service in SERVICES:
            for pod in service.pods:
                self.start_pod(service, pod)
        self.lab.route_services(self.lab.node)
        plan = self.lab.plan
        node = node_manifest(NODE, plan.node_addresses(NODE), plan.pod_ranges(NODE))
        self.folder.write("node", [node, service_cidr_manifest((plan.cluster_ipv4, plan.cluster_ipv6))])
        for service in SERVICES:
            self.publish(service, (self.endpoint(pod) for pod in service.pods))

    def add_pod(self, pod: DemoPod) -> Host:
        """Add a pod without a server."""
        return self.lab.add_pod(pod.name, on=pod.node, bridged=pod.bridged)

    def start_pod(self, service: DemoService, pod: DemoPod) -> None:
        """Add a pod of a Service; its server answers when this returns."""
        self.lab.serve(self.add_pod(pod), ServerPlan(ports=(service.target_port,), protocols=(service.protocol,)))

    def endpoint(self, pod: DemoPod, terminating: bool = False) -> DemoEndpoint:
        """A pod as an endpoint."""
        host = self.lab.pods[pod.name]
        addresses = AddressPair(ipv4=host.ipv4, ipv6=host.ipv6)
        return DemoEndpoint(pod=pod.name, node=pod.node, addresses=addresses, terminating=terminating)

    def publish(self, service: DemoService, endpoints: Iterable[DemoEndpoint]) -> None:
        """Write the manifests of a Service with these endpoints."""
        self.endpoints[service.name] = tuple(endpoints)
        self.folder.write(service.name, (service_manifest(service), *slice_manifests(service, self.endpoints[service.name])))

    @property
    def pod_ranges(self) -> tuple[IPv4Network, IPv6Network]:
        """The ranges that hold every pod of every node, as ``--cluster-cidr`` wants them."""
        return self.lab.plan.pods_ipv4, self.lab.plan.pods_ipv6

    def questions(self, service: DemoService) -> list[Question]:
        """How clients ask a Service, in turn, in both families."""
        return [
            Question(host=host, address=address, port=port, protocol=service.protocol, timeout=TIMEOUT, source_address=source)
            for host, address, port, source in self._dialled(service)
            if self.speaks(address)
        ]

    def speaks(self, address: str) -> bool:
        """Whether this machine has the family of an address."""
        return ":" not in address or len(self.lab.families) > 1

    def _dialled(self, service: DemoService) -> Iterable[tuple[Host, str, int, str | None]]:
        outside, plan = self.lab.outside, self.lab.plan
        if service.load_balancer:
            for number in range(plan.outside_addresses):
                source = plan.client_addresses(number)
                yield outside, service.load_balancer.ipv4, service.port, source.ipv4
                yield outside, service.load_balancer.ipv6, service.port, source.ipv6
        elif service.node_port:
            yield outside, self.lab.node.ipv4, service.node_port, None
            yield outside, self.lab.node.ipv6, service.node_port, None
        else:
            asking = [self.lab.pods[CLIENT.name], *([self.lab.node] if service.name == "web" else [])]
            for host in asking:
                yield host, service.cluster.ipv4, service.port, None
                yield host, service.cluster.ipv6, service.port, None


def frontends(service: DemoService, node: AddressPair) -> tuple[str, str]:
    """What clients of the demo dial, in both families."""
    if service.load_balancer:
        pair, port = service.load_balancer, service.port
    elif service.node_port:
        pair, port = node, service.node_port
    else:
        pair, port = service.cluster, service.port
    return f"{pair.ipv4}:{port}", f"[{pair.ipv6}]:{port}"
