"""Programs a deck of clusters one after another, in different ways, and compares what real packets meet with the oracle."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from typing import Any

from attrs import Factory, define

from kproxy_core.model.changes import Replaced
from kproxy_core.model.packet import Delivered
from kproxy_core.plugin.backend import AnyBackend, Capability
from kproxy_core.runtime.assembly import program_for
from kproxy_core.testing.conformance.oracle_kernel.abilities import needed
from kproxy_core.testing.conformance.oracle_kernel.atlas import Atlas, Sent
from kproxy_core.testing.conformance.oracle_kernel.deck import Card
from kproxy_core.testing.conformance.oracle_kernel.inquiry import Inquiry
from kproxy_core.testing.conformance.oracle_kernel.telling import Told, Way, steps_between
from kproxy_core.testing.conformance.world import World
from kproxy_core.testing.lab import Outcome
from kproxy_core.testing.manifests import objects_in
from kproxy_core.testing.oracle import Scene
from kproxy_core.testing.strategies import objects_of


class DisagreementError(AssertionError):
    """The kernel does not do what the oracle says. ``sent`` is None where it is not about a packet."""

    def __init__(self, told: Told, complaint: str, sent: Sent | None = None, outcome: Outcome | None = None) -> None:
        seen = "" if sent is None else f": {sent}\n    the oracle says {sent.verdict}\n    this was seen {outcome}"
        super().__init__(f"{complaint}{seen}")
        self.told = told
        self.sent = sent


@define
class Tally:
    """What was tried: clusters by the way they were told, packets by family, protocol, origin and verdict; and what was not."""

    clusters: Counter[Way] = Factory(Counter)
    packets: Counter[tuple[str, str, str, str]] = Factory(Counter)
    needing: Counter[Capability] = Factory(Counter)
    left_out: Counter[Capability] = Factory(Counter)


class OracleRun:
    """Holds a mode at work in a world against the oracle."""

    def __init__(self, world: World[Any], atlas: Atlas, packets: int) -> None:
        self._world = world
        self._atlas = atlas
        self._packets = packets
        self._scene: Scene | None = None
        self.tally = Tally()

    def run(self, cards: Iterable[Card]) -> None:
        """Try them all. Raises :class:`DisagreementError` for the first thing that is wrong."""
        with Inquiry(self._atlas, self._judge) as inquiry:
            for number, card in enumerate(cards):
                told = self._tell(card.scene, number)
                self.tally.clusters[told.way] += 1
                inquiry.put(told, self._sendable(card))
                compare(self._world, told)
            inquiry.drain()

    # -- telling

    def _tell(self, scene: Scene, number: int) -> Told:
        before, self._scene = self._scene, scene
        is_new = before is None or before.settings != scene.settings
        way = Way.RESTARTED if is_new else (Way.LISTED, Way.PIECEMEAL)[number % 2]
        told = Told(scene=scene, way=way, before=None if before is None else before.snapshot, seed=number)
        program(self._world, told)
        self._world.forget_connections()
        return told

    # -- packets

    def _sendable(self, card: Card) -> Sequence[Sent]:
        """As many packets as are wanted; where there are fewer, those that may go to several endpoints are sent again."""
        sendable = (sent for packet in card.packets if (sent := self._atlas.send(card.scene, packet)) is not None)
        chosen = list(islice((sent for sent in sendable if self._is_promised(card.scene, sent)), self._packets))
        again = [sent for sent in chosen if isinstance(sent.verdict, Delivered) and len(sent.verdict.targets) > 1]
        return [*chosen, *islice(cycle(again), self._packets - len(chosen))]

    def _is_promised(self, scene: Scene, sent: Sent) -> bool:
        needs = needed(scene, sent.packet, sent.verdict)
        lacking = needs - self._world.node.backend.capabilities
        self.tally.left_out.update(lacking)
        if not lacking:
            self.tally.needing.update(needs)
        return not lacking

    def _judge(self, told: Told, sent: Sent, outcome: Outcome) -> None:
        origin = "pod" if sent.origin.pod is not None else sent.origin.name
        packet = sent.packet
        self.tally.packets[packet.source.family.label, packet.protocol.name, origin, type(sent.verdict).__name__] += 1
        wrong = self._atlas.complaint(sent, outcome)
        if wrong:
            raise DisagreementError(told, wrong, sent, outcome)


def program(world: World[Any], told: Told) -> None:
    """Have the mode program a cluster. Raises :class:`DisagreementError` where it fails."""
    node, scene = world.node, told.scene
    wanted = objects_in(scene.snapshot)
    match told.way:
        case Way.RESTARTED:
            node.restart(scene.settings, wanted)
        case Way.LISTED:
            node.set(*wanted)
        case Way.PIECEMEAL:
            for step in steps_between(told.before, scene.snapshot, told.seed):
                (node.put if step.puts else node.remove)(*step.objects)
    report = node.play.engine.last_report
    if report is None or not report.ok:
        raise DisagreementError(told, f"the mode failed: {report}")


def compare(world: World[Any], told: Told) -> None:
    """Whether the kernel holds what the mode thinks, and that is what it would have made of the cluster from scratch."""
    node, scene = world.node, told.scene
    if node.difference():
        raise DisagreementError(told, "the kernel does not hold what it was given")
    backend: AnyBackend = node.backend
    listing = [Replaced(kind=kind, objects=tuple(things.values())) for kind, things in objects_of(scene.snapshot).items()]
    _, fresh = program_for(backend, listing, scene.settings, scene.site.addresses)
    if backend.canonical(node.play.engine.program) != backend.canonical(fresh):
        raise DisagreementError(told, f"told {told.way.value}, the mode makes something else of the cluster than from scratch")
