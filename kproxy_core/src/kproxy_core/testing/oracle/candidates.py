"""Who may answer? The endpoints of one Service port that are usable, in the whole cluster and on this node."""

from collections.abc import Callable, Iterable, Iterator

from attrs import frozen

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.objects import SliceEndpoint
from kproxy_core.testing.oracle.claims import Claim
from kproxy_core.testing.oracle.scene import Scene, can_be_reached


@frozen
class Candidate:
    """An endpoint at one port."""

    entry: SliceEndpoint
    port: int
    local: bool

    @property
    def where(self) -> tuple[Address, int]:
        """What tells it from others: two ports on one address are two endpoints (case S35)."""
        return self.entry.address, self.port


def candidates(scene: Scene, claim: Claim, family: Family) -> list[Candidate]:
    """The endpoints of the claim's Service port, each address and port once.

    The same address and port twice is an address used again while the old pod's entry lingers (case S37), or a slice being split:
    an entry that does not terminate wins, then a ready one, then a serving one, then a local one.
    Silent text: entries alike in all that but with other hints. Neither the slices' names nor the order may decide, so the hints
    do: the greater in alphabetical order wins, nodes before zones.
    """
    best: dict[tuple[Address, int], Candidate] = {}
    for candidate in _listed(scene, claim, family):
        rival = best.get(candidate.where)
        if rival is None or _trust(candidate) > _trust(rival):
            best[candidate.where] = candidate
    return list(best.values())


def _listed(scene: Scene, claim: Claim, family: Family) -> Iterator[Candidate]:
    """All entries of all slices of the Service that have the claim's port, by name and protocol, never by number (case S38)."""
    own_name = scene.site.name
    for piece in scene.snapshot.slices.get(claim.service.name, {}).values():
        if piece.family is not family:
            continue
        for entry in piece.endpoints:
            if entry.address.family is not family or not can_be_reached(entry.address):
                continue
            for port in piece.ports:
                if (port.name, port.protocol) == (claim.port.name, claim.port.protocol):
                    yield Candidate(entry, port.port, local=bool(own_name) and entry.node_name == own_name)


def _trust(candidate: Candidate) -> tuple[bool, bool, bool, bool, list[str], list[str]]:
    entry = candidate.entry
    hints = sorted(entry.node_hints), sorted(entry.zone_hints)
    return not entry.terminating, entry.ready, entry.serving, candidate.local, *hints


def usable_in_cluster(scene: Scene, listed: Iterable[Candidate]) -> list[Candidate]:
    """Rules 1 and 2: the ready ones that the topology hints leave, else those that terminate but still serve.

    ``ready`` is taken at its word, also on an entry that does not serve or terminates (case S39, publishNotReadyAddresses).
    """
    everyone = list(listed)
    ready = [candidate for candidate in everyone if candidate.entry.ready]
    if not ready:
        return [candidate for candidate in everyone if _lingers(candidate)]  # hints are not asked (case S41)
    name, zone = scene.site.name, scene.zone()
    return _hinted(ready, name, lambda entry: entry.node_hints) or _hinted(ready, zone, lambda entry: entry.zone_hints) or ready


def usable_here(listed: Iterable[Candidate]) -> list[Candidate]:
    """Rule 1 for the endpoints on this node; hints have no say."""
    here = [candidate for candidate in listed if candidate.local]
    return [candidate for candidate in here if candidate.entry.ready] or [candidate for candidate in here if _lingers(candidate)]


def usable_anywhere(listed: Iterable[Candidate]) -> bool:
    """Whether any endpoint of the cluster could answer, whatever the policy: refused if not (rule 3)."""
    return any(candidate.entry.ready or _lingers(candidate) for candidate in listed)


def _hinted(ready: list[Candidate], place: str, hints: Callable[[SliceEndpoint], frozenset[str]]) -> list[Candidate]:
    """Case S42, all or nothing: those meant for this place, if it is known and every ready endpoint is meant for some place."""
    if not place or not all(hints(candidate.entry) for candidate in ready):
        return []
    return [candidate for candidate in ready if place in hints(candidate.entry)]


def _lingers(candidate: Candidate) -> bool:
    return candidate.entry.serving and candidate.entry.terminating
