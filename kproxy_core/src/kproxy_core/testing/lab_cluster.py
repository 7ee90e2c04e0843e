"""Services, EndpointSlices and Nodes that fit a lab, in few words: dual-stack, with the lab's hosts as endpoints.

::

    cluster = LabCluster(lab)
    node.set(*cluster.service("web", 10, "http=80"), *cluster.endpoints("web", "a1 b1", "http=8080"))
"""

from collections.abc import Iterable
from typing import Any

from attrs import evolve

from kproxy_core.model.addresses import Address, Family, parse_address, parse_network
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import (
    EndpointSlice,
    LoadBalancerIngress,
    Node,
    Service,
    ServiceCIDR,
    ServicePortSpec,
    ServiceType,
    SliceEndpoint,
    SlicePort,
)
from kproxy_core.testing.lab import AddressPair, Host, Lab

SERVED = "t=80 u=80/udp s=80/sctp"
"""Port 80 in every protocol."""
BEHIND = "t=8080 u=8080/udp s=8080/sctp"
"""Port 8080 in every protocol, by the names of :data:`SERVED`."""

_CONDITIONS: dict[str, dict[str, Any]] = {
    "": {},
    "unready": {"ready": False, "serving": False},
    "terminating": {"ready": False, "terminating": True},
    "gone": {"ready": False, "serving": False, "terminating": True},
}


class LabCluster:
    """Writes objects for one lab. Service addresses are numbered, and the same number is used in both families."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def cluster(self, number: int) -> AddressPair:
        """Cluster addresses."""
        return _pair(self._lab.plan.cluster_ipv4[number], self._lab.plan.cluster_ipv6[number])

    def external(self, number: int) -> AddressPair:
        """External addresses that the outside client sends to the node."""
        return _pair(self._lab.plan.external_ipv4[number], self._lab.plan.external_ipv6[number])

    def balancer(self, number: int) -> AddressPair:
        """Addresses of a load balancer that the outside client sends to the node."""
        return _pair(self._lab.plan.load_balancer_ipv4[number], self._lab.plan.load_balancer_ipv6[number])

    def service(self, name: str, number: int, served: str = SERVED, **fields: Any) -> Service:
        """A Service, of type LoadBalancer so that all policies apply.

        ``served`` lists ports, each ``[name=]port[/protocol][@nodePort]``. ``external`` and ``balancer`` are numbers as well,
        ``ranges`` networks in one text; all other fields are those of the model.
        """
        external, balancer, ranges = (fields.pop(key, None) for key in ("external", "balancer", "ranges"))
        made = Service(
            name=name_of(name),
            uid=name,
            created=0.0,
            type=ServiceType.LOAD_BALANCER,
            cluster_ips=_both(self.cluster(number)),
            external_ips=() if external is None else _both(self.external(external)),
            ingress=()
            if balancer is None
            else tuple(LoadBalancerIngress(address=each) for each in _both(self.balancer(balancer))),
            ports=ports(served),
            source_ranges=None if ranges is None else tuple(map(parse_network, str(ranges).split())),
        )
        return evolve(made, **fields)

    def endpoints(self, name: str, hosts: str, served: str = BEHIND, suffix: str = "") -> tuple[EndpointSlice, ...]:
        """The slices of a Service, one a family: hosts of the lab by name, each with a condition behind it if it is not ready.

        ``"a1 b1/terminating b2/unready a2/gone"``; ``served`` as for a Service. ``suffix`` tells several slices apart.
        """
        named = [entry.partition("/") for entry in hosts.split()]
        owner = name_of(name)
        return tuple(
            EndpointSlice(
                name=ObjectName(owner.namespace, f"{owner.name}-{family.label.lower()}{suffix}"),
                service=owner,
                family=family,
                endpoints=tuple(self._endpoint(self._lab.hosts[host], family, condition) for host, _, condition in named),
                ports=tuple(SlicePort(name=port.name, protocol=port.protocol, port=port.port) for port in ports(served)),
            )
            for family in Family
        )

    def _endpoint(self, host: Host, family: Family, condition: str) -> SliceEndpoint:
        address = parse_address(host.address(family is Family.IPV6))
        return SliceEndpoint(address=address, node_name=host.pod.on if host.pod else host.name, **_CONDITIONS[condition])

    def node(self, **fields: Any) -> Node:
        """The Node object of the node under test."""
        host = self._lab.node
        made = Node(
            name=host.name,
            internal_addresses=(parse_address(host.ipv4), parse_address(host.ipv6)),
            pod_cidrs=tuple(parse_network(str(network)) for network in self._lab.plan.pod_ranges(host.name)),
        )
        return evolve(made, **fields)

    def service_cidr(self, *networks: str) -> ServiceCIDR:
        """The ranges of cluster addresses: those of the plan, or these."""
        plan = self._lab.plan
        ranges = networks or (str(plan.cluster_ipv4), str(plan.cluster_ipv6))
        return ServiceCIDR(name="kubernetes", cidrs=tuple(map(parse_network, ranges)))


def name_of(text: str) -> ObjectName:
    """Parse ``namespace/name``; without a namespace it is ``default``."""
    namespace, slash, name = text.rpartition("/")
    return ObjectName(namespace if slash else "default", name)


def ports(text: str) -> tuple[ServicePortSpec, ...]:
    """Parse ports with blanks between, each ``[name=]port[/protocol][@nodePort]``."""
    return tuple(map(_port, text.split()))


def _port(text: str) -> ServicePortSpec:
    name, _, rest = text.rpartition("=")
    rest, _, node_port = rest.partition("@")
    number, _, protocol = rest.partition("/")
    return ServicePortSpec(
        name=name, port=int(number), protocol=Protocol[(protocol or "tcp").upper()], node_port=int(node_port or 0)
    )


def _pair(ipv4: object, ipv6: object) -> AddressPair:
    return AddressPair(ipv4=str(ipv4), ipv6=str(ipv6))


def _both(pair: AddressPair) -> tuple[Address, ...]:
    return parse_address(pair.ipv4), parse_address(pair.ipv6)


def _ingress(pair: AddressPair) -> tuple[LoadBalancerIngress, ...]:
    return tuple(LoadBalancerIngress(address=address) for address in _both(pair))


def addresses(pairs: Iterable[AddressPair]) -> tuple[str, ...]:
    """All addresses of some pairs."""
    return tuple(address for pair in pairs for address in (pair.ipv4, pair.ipv6))
