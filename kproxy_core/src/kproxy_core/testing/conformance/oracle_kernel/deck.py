"""A deck of generated clusters with packets: the same for the same seed, and as many as are asked for."""

import os
import random
from collections.abc import Iterator

from attrs import evolve, frozen
from hypothesis import HealthCheck, Phase, given, seed, settings

from kproxy_core.config.settings import Settings
from kproxy_core.model.packet import Packet
from kproxy_core.testing.conformance.oracle_kernel.transposition import transposed
from kproxy_core.testing.oracle import Scene
from kproxy_core.testing.strategies import packets_at, scenes

_HAND = 10
"""Scenes drawn at a time: after its first ten examples hypothesis goes on with variations of each."""
_MOST_HANDS = 10_000
_SAME_SETTINGS = 4
"""Clusters one after another under the same settings: from one to the next the mode changes what differs."""
_DRAWING = settings(
    max_examples=_HAND + 1,
    derandomize=False,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[*HealthCheck],
)


@frozen(kw_only=True)
class Extent:
    """How much is tried: ``clusters`` of them with up to ``packets`` each, drawn from ``seed``.

    Some clusters are too small for so many packets: ten thousand are sent by default.
    """

    seed: int
    clusters: int = 224
    packets: int = 50

    @classmethod
    def from_environment(cls) -> "Extent":
        """By ``KPROXY_SEED`` (another one each time, by default), ``KPROXY_CLUSTERS`` and ``KPROXY_PACKETS``."""
        return cls(
            seed=int(os.environ.get("KPROXY_SEED", random.SystemRandom().randrange(1 << 32))),
            clusters=int(os.environ.get("KPROXY_CLUSTERS", "224")),
            packets=int(os.environ.get("KPROXY_PACKETS", "50")),
        )

    def __str__(self) -> str:
        return f"KPROXY_SEED={self.seed} KPROXY_CLUSTERS={self.clusters} KPROXY_PACKETS={self.packets}"


@frozen(kw_only=True)
class Card:
    """A cluster in the lab's addresses, and packets that make sense for it, in random order; not all can be sent in a lab.

    ``settings`` stay the same for a few cards, and are in the scene as well.
    """

    scene: Scene
    packets: tuple[Packet, ...]


def deal(extent: Extent) -> Iterator[Card]:
    """Draw as many different clusters as ``extent`` says."""
    chance = random.Random(extent.seed)
    same: Settings | None = None
    for number, drawn in enumerate(_different(extent)):
        same = drawn.settings if same is None or number % _SAME_SETTINGS == 0 else same
        scene = evolve(drawn, settings=same)
        sent = list(packets_at(scene))
        chance.shuffle(sent)
        yield Card(scene=transposed(scene), packets=tuple(map(transposed, sent)))


def _different(extent: Extent) -> Iterator[Scene]:
    """Scenes of which no two are alike."""
    seen: set[str] = set()
    hand = 0
    while len(seen) < extent.clusters:
        for scene in _drawn(extent.seed * _MOST_HANDS + hand):
            text = str(scene)
            if text not in seen and len(seen) < extent.clusters:
                seen.add(text)
                yield scene
        hand += 1


def _drawn(number: int) -> list[Scene]:
    drawn: list[Scene] = []

    def collect(scene: Scene) -> None:
        drawn.append(scene)

    seed(number)(_DRAWING(given(scenes())(collect)))()
    return drawn[1:]  # the first one is the simplest there is, each time
