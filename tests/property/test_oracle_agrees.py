"""Two independent answers agree: the oracle's, and what the resolved state means, for generated clusters and packets."""

from hypothesis import given

from kproxy_core.model.packet import Packet, Verdict
from kproxy_core.model.state import NodeState
from kproxy_core.resolve.node import node_context
from kproxy_core.resolve.resolve import resolve
from kproxy_core.testing.interpret import interpret
from kproxy_core.testing.oracle import Scene, decide
from kproxy_core.testing.strategies import packets_at, scenes


def resolved(scene: Scene) -> NodeState:
    """What the core decides for a scene."""
    node = node_context(
        scene.snapshot, scene.site.addresses, scene.settings, node_ports_everywhere=scene.site.node_ports_everywhere
    )
    return resolve(scene.snapshot, node, scene.settings)


def by_state(state: NodeState, scene: Scene, packet: Packet) -> Verdict:
    return interpret(state, packet, local_addresses=scene.site.addresses)


@given(scenes())
def test_the_resolved_state_means_what_the_oracle_says(scene: Scene) -> None:
    state = resolved(scene)
    for packet in packets_at(scene):
        assert by_state(state, scene, packet) == decide(scene, packet), packet
