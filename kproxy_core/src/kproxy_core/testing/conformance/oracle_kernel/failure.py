"""What is left of a run that failed: the smallest cluster that shows it."""

from typing import Any

from attrs import evolve, frozen

from kproxy_core.model.packet import Packet
from kproxy_core.testing.conformance.oracle_kernel.atlas import Atlas, Sent
from kproxy_core.testing.conformance.oracle_kernel.run import DisagreementError, compare, program
from kproxy_core.testing.conformance.oracle_kernel.shrink import Story, shrunk
from kproxy_core.testing.conformance.oracle_kernel.telling import Told, Way
from kproxy_core.testing.conformance.world import World
from kproxy_core.testing.lab import DROP_TIMEOUT, ask_all

_PATIENCE = 90.0
"""Seconds that making it smaller may take."""
_TIMES = 8
"""How often a packet is sent: it may be one endpoint of several that is wrong."""


@frozen(kw_only=True)
class Failure:
    """A story that goes wrong, told ``way``, and the packet that shows it, None where it is not about a packet.

    ``again`` is whether it went wrong again when it was told alone; then it has been made smaller.
    """

    story: Story
    way: Way
    sent: Sent | None
    complaint: str
    again: bool


class Investigation:
    """Tells stories to a mode to see which of them go wrong as one did."""

    def __init__(self, world: World[Any], atlas: Atlas, error: DisagreementError) -> None:
        self._world = world
        self._atlas = atlas
        self._packet: Packet | None = error.sent.packet if error.sent is not None else None
        self._error = error

    def failure(self) -> Failure:
        """What went wrong, made as small as can be."""
        told = self._error.told
        for before in (None, told.before):
            story = Story(scene=told.scene, before=before, seed=told.seed)
            if self.complaint(story):
                story = shrunk(story, lambda smaller: bool(self.complaint(smaller)), _PATIENCE)
                complaint = self.complaint(story) or str(self._error)
                return Failure(story=story, way=self._way(story), sent=self._sent(story), complaint=complaint, again=True)
        whole = Story(scene=told.scene, before=told.before, seed=told.seed)
        return Failure(story=whole, way=told.way, sent=self._error.sent, complaint=str(self._error), again=False)

    def complaint(self, story: Story) -> str:
        """What goes wrong in a story; empty if nothing does."""
        told = Told(scene=story.scene, way=self._way(story), before=story.before, seed=story.seed)
        node = self._world.node
        node.set()
        try:
            if story.before is not None:
                program(self._world, evolve(told, scene=evolve(story.scene, snapshot=story.before), way=Way.RESTARTED))
            program(self._world, told)
            compare(self._world, told)
        except DisagreementError as error:
            return str(error) if self._packet is None else ""
        return self._of_packet(story)

    def _of_packet(self, story: Story) -> str:
        sent = self._sent(story)
        if sent is None:
            return ""
        self._world.forget_connections()
        outcomes = ask_all([evolve(self._atlas.question(sent), timeout=2 * DROP_TIMEOUT)] * _TIMES)
        wrong = ((self._atlas.complaint(sent, outcome), outcome) for outcome in outcomes)
        found = next(((complaint, outcome) for complaint, outcome in wrong if complaint), None)
        return "" if found is None else f"{found[0]}: {sent}\n    the oracle says {sent.verdict}\n    this was seen {found[1]}"

    def _sent(self, story: Story) -> Sent | None:
        return self._atlas.send(story.scene, self._packet) if self._packet is not None else None

    def _way(self, story: Story) -> Way:
        way = self._error.told.way
        if story.before is None:
            return Way.RESTARTED
        return Way.LISTED if way is Way.RESTARTED else way
