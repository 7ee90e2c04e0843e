"""The oracle against the kernel: generated clusters, real packets, and what must become of each, told by a second opinion.

``KPROXY_SEED`` repeats a run, ``KPROXY_CLUSTERS`` says how many clusters there are, ``KPROXY_PACKETS`` how many packets for each.
"""

import os
import random
from collections.abc import Iterator

import pytest
from attrs import evolve
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from kproxy_core.model.packet import Packet, Verdict
from kproxy_core.testing.lab import DROP_TIMEOUT, Host, Outcome, Question, ServerPlan, ask_all
from kproxy_core.testing.manifests import manifests, objects_in
from kproxy_core.testing.oracle import Scene, Site, decide
from kproxy_core.testing.strategies import packets_at, scenes

from .transposed import BY_WAY_OF_THE_NODE, SECOND, SERVED_PORTS, Atlas, transposed
from .world import ALL, SURE, World

pytestmark = pytest.mark.kernel

SEED = int(os.environ.get("KPROXY_SEED", random.SystemRandom().randrange(1 << 32)))
CLUSTERS = int(os.environ.get("KPROXY_CLUSTERS", "40"))
PACKETS = int(os.environ.get("KPROXY_PACKETS", "40"))


@pytest.fixture(scope="module")
def atlas(shared_world: World) -> Iterator[Atlas]:
    """The world with a second address on the node, servers on more ports, and routes by way of the node."""
    lab = shared_world.lab
    shared_world.reset()
    for host in lab.hosts.values():
        lab.serve(host, ServerPlan(ports=SERVED_PORTS[2:], protocols=ALL))
    for address in SECOND:
        lab.node.add_address(address)
    lab.route_services(lab.node, *BY_WAY_OF_THE_NODE[:1], *BY_WAY_OF_THE_NODE[2:3])
    for network in BY_WAY_OF_THE_NODE:
        version, via = ("-6", lab.node.ipv6) if ":" in network else ("-4", lab.node.ipv4)
        lab.node2.run(["ip", version, "route", "add", network, "via", via])
    yield Atlas(lab)
    for address in SECOND:
        lab.node.remove_address(address)


@seed(SEED)
@settings(
    max_examples=CLUSTERS,
    derandomize=False,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)
@given(drawn=scenes(), chance=st.integers(0, 1 << 32))
def test_the_kernel_does_what_the_oracle_says(shared_world: World, atlas: Atlas, drawn: Scene, chance: int) -> None:
    scene: Scene = transposed(drawn)
    scene = evolve(scene, site=Site(name=drawn.site.name, addresses=shared_world.node.addresses()))
    atlas.see(scene.snapshot, scene.site.name)
    report = shared_world.node.restart(scene.settings, objects_in(scene.snapshot))
    shared_world.forget_connections()
    shared_world.forget_clients()
    assert report is not None
    assert report.ok, _reproduction(scene, [str(report)])
    sent = _packets(drawn, atlas, chance)
    verdicts = [decide(scene, packet) for packet, _ in sent]
    outcomes = ask_all(
        _question(packet, origin, silent=atlas.is_silent(packet, origin, verdict))
        for (packet, origin), verdict in zip(sent, verdicts, strict=True)
    )
    complaints = [
        f"{wrong}: {_text(packet, origin, verdict, outcome)}"
        for (packet, origin), verdict, outcome in zip(sent, verdicts, outcomes, strict=True)
        if (wrong := atlas.complaint(packet, origin, verdict, outcome))
    ]
    assert not complaints, _reproduction(scene, complaints)
    assert not shared_world.node.difference(), _reproduction(scene, ["the kernel holds something else"])


def _packets(drawn: Scene, atlas: Atlas, chance: int) -> list[tuple[Packet, Host]]:
    """Some of the packets that make sense for a cluster, and who can send them in the lab."""
    possible = [(packet, origin) for packet in map(transposed, packets_at(drawn)) if (origin := atlas.origin(packet)) is not None]
    return random.Random(chance).sample(possible, min(PACKETS, len(possible)))


def _question(packet: Packet, origin: Host, silent: bool) -> Question:
    return Question(
        host=origin,
        address=packet.destination,
        port=packet.port,
        protocol=packet.protocol,
        source_address=str(packet.source),
        timeout=DROP_TIMEOUT if silent else SURE,
    )


def _text(packet: Packet, origin: Host, verdict: Verdict, outcome: Outcome) -> str:
    way = f"{origin.name} ({packet.source}) to {packet.destination} {packet.protocol.name} {packet.port}"
    return f"{way}\n    the oracle says {verdict}\n    this was seen {outcome}"


def _reproduction(scene: Scene, complaints: list[str]) -> str:
    """All that is needed to see it again."""
    parts = (
        f"KPROXY_SEED={SEED} KPROXY_CLUSTERS={CLUSTERS}",
        *complaints,
        str(scene.settings),
        manifests(objects_in(scene.snapshot)),
    )
    return "\n".join(parts)
