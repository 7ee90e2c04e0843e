"""Whose is the address? Which Service port, if any, a packet is meant for, rival claims and dangerous ones settled."""

from collections.abc import Iterable, Iterator

from attrs import frozen

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import Service, ServicePortSpec, ServiceType
from kproxy_core.model.packet import Packet
from kproxy_core.model.state import FrontendKind
from kproxy_core.testing.oracle.scene import Scene, can_be_reached

API_SERVER = ObjectName("default", "kubernetes")
"""The Service whose endpoints are the API servers."""

# Silent text: one Service that names an address twice. Its own cluster address is first of all that; what else it is, is alike.
_PRECEDENCE = (FrontendKind.CLUSTER_IP, FrontendKind.LOAD_BALANCER, FrontendKind.EXTERNAL_IP, FrontendKind.NODE_PORT)


@frozen
class Claim:
    """A Service port that says: connections to this address and port are mine."""

    service: Service
    port: ServicePortSpec
    kind: FrontendKind


def claimant(scene: Scene, packet: Packet) -> Claim | None:
    """The claim that a packet falls under, None when no Service wants it.

    A claim to the very address beats a NodePort, whoever is older: the NodePort has the node's other addresses.
    """
    claims = [
        claim
        for service in served_services(scene, packet.destination.family)
        for port in service.ports
        if port.protocol is packet.protocol  # case S54: the protocol is part of every key
        for claim in _claims_of(scene, service, port, packet)
    ]
    by_address = [claim for claim in claims if claim.kind is not FrontendKind.NODE_PORT]
    return _oldest(by_address) or _oldest(claims)


def served_services(scene: Scene, family: Family) -> Iterator[Service]:
    """The Services that this proxy acts for in ``family`` (case S56).

    A Service has one virtual address a family; in a family in which it has none it is skipped, external addresses and all.
    """
    for service in scene.snapshot.services.values():
        foreign = service.proxy_name is not None or service.headless or service.type is ServiceType.EXTERNAL_NAME
        if not foreign and cluster_address(service, family) is not None:
            yield service


def cluster_address(service: Service, family: Family) -> Address | None:
    """The Service's virtual address in ``family``."""
    return next((address for address in service.cluster_ips if address.family is family), None)


def _safe_cluster_address(scene: Scene, service: Service, family: Family) -> Address | None:
    """The Service's virtual address in ``family``, if it is safe to claim.

    Silent text: the guard and cluster addresses, which the API server allots from ranges of their own. One that is the node's or
    an API server's would cut off more than its ports, as the others are refused (case S4): it is left out as a whole, whoever
    names it.
    """
    address = cluster_address(service, family)
    hosts = {host for host, _ in api_server_endpoints(scene)}
    return None if address in scene.node_addresses() or address in hosts else address


def balancer_addresses(service: Service) -> frozenset[Address]:
    """The load balancer's addresses that are programmed: ``ipMode`` VIP or unset (case S34), and possible ones (the guard)."""
    return frozenset(ingress.address for ingress in service.ingress if not ingress.proxied and can_be_reached(ingress.address))


def _claims_of(scene: Scene, service: Service, port: ServicePortSpec, packet: Packet) -> Iterator[Claim]:
    address = packet.destination
    if packet.port == port.port:
        if address == _safe_cluster_address(scene, service, address.family):
            yield Claim(service, port, FrontendKind.CLUSTER_IP)
        external = {
            FrontendKind.LOAD_BALANCER: balancer_addresses(service),
            FrontendKind.EXTERNAL_IP: service.external_ips if scene.settings.external_ips_allowed else (),
        }
        for kind, addresses in external.items():
            if address in addresses and not _is_dangerous(scene, service, packet):
                yield Claim(service, port, kind)
    if (
        packet.port == port.node_port
        and scene.answers_node_ports(address)
        and not _is_dangerous_node_port(scene, service, packet)
    ):
        yield Claim(service, port, FrontendKind.NODE_PORT)


def _oldest(claims: Iterable[Claim]) -> Claim | None:
    """The oldest Service wins, then the first by namespace and name; heirs take over because only live claims are listed.

    Silent text: two ports of one Service with one number and protocol, which the API refuses. The first by name wins.
    """

    def seniority(claim: Claim) -> tuple[float, str, str, str, int]:
        service = claim.service
        return service.created, service.name.namespace, service.name.name, claim.port.name, _PRECEDENCE.index(claim.kind)

    return min(claims, key=seniority, default=None)


def _is_dangerous(scene: Scene, service: Service, packet: Packet) -> bool:
    """The guard for external and load balancer addresses: what would cut off the node or the API server. Both speak TCP."""
    address, port = packet.destination, packet.port
    if not can_be_reached(address):
        return True
    if packet.protocol is not Protocol.TCP:
        return False
    cuts_off_node = port in scene.settings.protected_ports and address in scene.node_addresses()
    return cuts_off_node or _takes_api_server(scene, service, address, port)


def _is_dangerous_node_port(scene: Scene, service: Service, packet: Packet) -> bool:
    """The guard for NodePorts, each of which is one frontend: refused on all addresses of the node or on none.

    An API server on this node listens on all its addresses as a rule, so the one that the Service ``default/kubernetes`` names
    need not be one that answers NodePorts. But families are independent (case S59).
    """
    if packet.protocol is not Protocol.TCP:
        return False
    own = [address for address in scene.node_addresses() if address.family is packet.destination.family]
    takes_api_server = any(_takes_api_server(scene, service, address, packet.port) for address in own)
    return packet.port in scene.settings.protected_ports or takes_api_server


def _takes_api_server(scene: Scene, service: Service, address: Address, port: int) -> bool:
    """Whether the frontend is where an API server listens, and not one of the Service ``default/kubernetes`` itself."""
    return service.name != API_SERVER and (address, port) in api_server_endpoints(scene)


def api_server_endpoints(scene: Scene) -> frozenset[tuple[Address, int]]:
    """Where the API servers listen, ready or not."""
    return frozenset(
        (endpoint.address, port.port)
        for piece in scene.snapshot.slices.get(API_SERVER, {}).values()
        for endpoint in piece.endpoints
        for port in piece.ports
        if endpoint.address.family is piece.family
    )
