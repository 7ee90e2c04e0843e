"""What a mode cannot do, by its own word: the packets that depend on it are not sent, and counted by the capability's name."""

from collections.abc import Iterable

from attrs import evolve

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.names import Protocol
from kproxy_core.model.packet import Packet, Refused, Verdict
from kproxy_core.plugin.backend import AnyBackend, Capability
from kproxy_core.testing.oracle import Scene, decide
from kproxy_core.testing.oracle.claims import claimant
from kproxy_core.testing.oracle.scene import is_loopback

VISIBLE = (
    Capability.SCTP,
    Capability.SOURCE_RANGES,
    Capability.UNUSED_PORTS_REJECTED,
    Capability.LOCALHOST_NODE_PORTS,
)
"""The capabilities without which some packets meet another verdict. (Whose address an endpoint sees is judged by itself.)"""


def fitted(scene: Scene, backend: AnyBackend, addresses: Iterable[Address]) -> Scene:
    """The scene with a node as the mode sees it: its default for ``nodePortAddresses``, its loopback NodePorts."""
    loopback = frozenset({Family.IPV4}) if Capability.LOCALHOST_NODE_PORTS in backend.capabilities else frozenset[Family]()
    site = evolve(
        scene.site,
        addresses=tuple(addresses),
        node_ports_everywhere=backend.node_ports_everywhere,
        localhost_node_ports=loopback,
    )
    return evolve(scene, site=site)


def needed(scene: Scene, packet: Packet, verdict: Verdict) -> frozenset[Capability]:
    """The capabilities without which a packet may meet something else than the verdict."""
    found = set()
    if packet.protocol is Protocol.SCTP:
        found.add(Capability.SCTP)
    if isinstance(verdict, Refused) and claimant(scene, packet) is None:
        found.add(Capability.UNUSED_PORTS_REJECTED)
    if _is_to_ranges(scene, packet) and decide(_without_ranges(scene), packet) != verdict:
        found.add(Capability.SOURCE_RANGES)
    if is_loopback(packet.destination) and decide(_without_loopback(scene), packet) != verdict:
        found.add(Capability.LOCALHOST_NODE_PORTS)
    return frozenset(found)


def _is_to_ranges(scene: Scene, packet: Packet) -> bool:
    restricted = (service for service in scene.snapshot.services.values() if service.source_ranges is not None)
    return any(packet.destination == entry.address for service in restricted for entry in service.ingress)


def _without_ranges(scene: Scene) -> Scene:
    services = {name: evolve(each, source_ranges=None) for name, each in scene.snapshot.services.items()}
    return evolve(scene, snapshot=evolve(scene.snapshot, services=services))


def _without_loopback(scene: Scene) -> Scene:
    return evolve(scene, site=evolve(scene.site, localhost_node_ports=frozenset()))
