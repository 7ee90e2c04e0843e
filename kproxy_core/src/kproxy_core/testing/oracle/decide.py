"""The verdict on one packet, asked in the order in which a person would ask.

The rules' numbers are those of the package's docstring; the cases' are those of the scenarios in the tests.
"""

from attrs import evolve

from kproxy_core.config.settings import Settings
from kproxy_core.model.objects import TrafficPolicy
from kproxy_core.model.packet import Delivered, Dropped, Packet, Refused, Target, Untouched, Verdict
from kproxy_core.model.snapshot import ClusterSnapshot
from kproxy_core.model.state import FrontendKind, Origin
from kproxy_core.testing.oracle.candidates import candidates, usable_anywhere, usable_here, usable_in_cluster
from kproxy_core.testing.oracle.claims import Claim, balancer_addresses, claimant, served_services
from kproxy_core.testing.oracle.scene import Scene, Site, is_loopback


def verdict(snapshot: ClusterSnapshot, settings: Settings, site: Site, packet: Packet) -> Verdict:
    """What must become of the first packet of a connection that the node ``site`` meets.

    The snapshot is taken as complete (``synced`` is not asked) and source and destination as of one family. Weights, session
    affinity and schedulers do not show in it: they choose among the targets of :class:`Delivered`.
    """
    return decide(Scene(snapshot=snapshot, settings=settings, site=site), packet)


def decide(scene: Scene, packet: Packet) -> Verdict:
    """What :func:`verdict` gives, for a scene."""
    claim = claimant(scene, packet)
    if claim is None:
        return _unclaimed(scene, packet)
    if _is_to_balancer(claim, packet) and not _source_allowed(scene, claim, packet):
        return Dropped()  # rule 6: whatever the origin (pods included, case S32), and before asking for endpoints
    listed = candidates(scene, claim, packet.destination.family)
    local_only = _needs_local_endpoint(scene, claim, packet)
    usable = usable_here(listed) if local_only else usable_in_cluster(scene, listed)
    if not usable:
        # Rule 3, cases S1 and S2: nobody anywhere is told at once; somebody elsewhere means that a balancer is late to notice.
        return Dropped() if usable_anywhere(listed) else Refused()
    masqueraded = _always_masqueraded(scene, claim, packet)
    return Delivered(
        frozenset(
            # Rule 5 and case S53: a client that is its own endpoint would answer itself directly.
            Target(address=address, port=port, masqueraded=masqueraded or address == packet.source)
            for address, port in (candidate.where for candidate in usable)
        )
    )


def _unclaimed(scene: Scene, packet: Packet) -> Verdict:
    """Case S4: ports that a live cluster address does not serve are refused, unallocated cluster addresses dropped.

    Silent text: what "live" is. An address of which some port is served as a cluster address is; not that of a Service without
    ports, or which has lost them all to rivals, or which this proxy must not see (case S56).
    """
    address = packet.destination
    ports = {(port.protocol, port.port) for service in served_services(scene, address.family) for port in service.ports}
    others = (claimant(scene, evolve(packet, protocol=protocol, port=port)) for protocol, port in ports)
    if any(claim is not None and claim.kind is FrontendKind.CLUSTER_IP for claim in others):
        return Refused()
    ranges = (network for service_cidr in scene.snapshot.service_cidrs.values() for network in service_cidr.cidrs)
    return Dropped() if any(address in network for network in ranges) else Untouched()


def _is_to_balancer(claim: Claim, packet: Packet) -> bool:
    """Whether the packet is for an address of the Service's load balancer.

    It may be listed as an external address too, or be the cluster address: source ranges apply to it in whatever guise.
    """
    return claim.kind is not FrontendKind.NODE_PORT and packet.destination in balancer_addresses(claim.service)


def _source_allowed(scene: Scene, claim: Claim, packet: Packet) -> bool:
    """Rule 6: ``loadBalancerSourceRanges``. None is no filter, an empty tuple lets nobody in (model of Service)."""
    if claim.service.source_ranges is None:
        return True
    if not claim.service.source_ranges:
        return False
    ranges = [network for network in claim.service.source_ranges if network.family is packet.destination.family]
    if not ranges or any(network.length == 0 for network in ranges):
        return True  # ranges of the other family alone do not filter this one; a /0 lets everybody in
    if any(packet.source in network for network in ranges):
        return True
    # The balancer's address may be on the node too, which then talks to it from that very address (kube-proxy's allowFromNode).
    node_allowed = any(address in network for address in scene.node_addresses() for network in ranges)
    return node_allowed and packet.source in balancer_addresses(claim.service)


def _needs_local_endpoint(scene: Scene, claim: Claim, packet: Packet) -> bool:
    """Which of the two policies applies, and to whom (rule 4; cases S6, S7, S10, S12)."""
    if claim.kind is FrontendKind.CLUSTER_IP:
        return claim.service.internal_policy is TrafficPolicy.LOCAL
    return claim.service.external_policy is TrafficPolicy.LOCAL and scene.origin(packet) is Origin.OUTSIDE


def _always_masqueraded(scene: Scene, claim: Claim, packet: Packet) -> bool:
    """Rule 5, but for hairpins: whether every endpoint sees the node's address instead of the client's."""
    if claim.kind is FrontendKind.CLUSTER_IP:
        family = packet.destination.family
        strangers = scene.can_tell_local_pods(family) and not scene.is_from_local_pod(packet)
        return scene.settings.masquerade_all or strangers
    if claim.service.external_policy is TrafficPolicy.CLUSTER:
        return True
    # Case S15: a packet from a loopback address must not leave the node as such.
    return scene.origin(packet) is Origin.NODE or is_loopback(packet.destination)
