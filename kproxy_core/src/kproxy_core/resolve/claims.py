"""Settles rival claims: a frontend belongs to the oldest Service that wants it; the others keep the rest of theirs."""

from bisect import insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from attrs import evolve

from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.flows import FrontendKey
from kproxy_core.model.names import ServicePortKey
from kproxy_core.model.state import Frontend, FrontendKind, FrontendRule, NodeContext, ServicePort
from kproxy_core.resolve.frontends import FIELDS


class Claim(NamedTuple):
    """A Service port that wants a frontend. The least one wins: the oldest Service, then the first by name and port."""

    created: float
    owner: ServicePortKey


def frontend_key(port: ServicePort, frontend: Frontend) -> FrontendKey:
    """What ``frontend`` of ``port`` lays claim to."""
    return FrontendKey(port.family, frontend.address, frontend.port, port.name.protocol)


def claims_of(ports: Iterable[ServicePort], created: float) -> Iterator[tuple[FrontendKey, Claim]]:
    """The claims of a Service's ports, before any is lost."""
    for port in ports:
        claim = Claim(created, port.key)
        for rule in port.rules:
            yield frontend_key(port, rule.frontend), claim


class ClaimBook:
    """Who wants which frontend; mutable, but the winners depend on its content only, not on the order of entries.

    It also remembers which claimed addresses are the node's own NodePort addresses, for :func:`overlaps`.
    """

    def __init__(self, node: NodeContext) -> None:
        self._claims: dict[FrontendKey, list[Claim]] = {}
        self._node_addresses = frozenset(node.node_port_addresses)
        self._on_node: set[FrontendKey] = set()

    def move_to(self, node: NodeContext) -> None:
        """Take other NodePort addresses for the node's own."""
        self._node_addresses = frozenset(node.node_port_addresses)
        self._on_node = {key for key in self._claims if key.address in self._node_addresses}

    def enter(self, claims: Iterable[tuple[FrontendKey, Claim]]) -> frozenset[ServicePortKey]:
        """Add claims; return the Service ports whose frontends, or whose Diagnostics about them, may differ now."""
        affected: set[ServicePortKey] = set()
        for key, claim in claims:
            rivals = self._claims.setdefault(key, [])
            before = rivals[:1]
            insort(rivals, claim)
            affected.update(_affected(claim, before, rivals))
            if key.address in self._node_addresses:
                self._on_node.add(key)
        return frozenset(affected)

    def withdraw(self, claims: Iterable[tuple[FrontendKey, Claim]]) -> frozenset[ServicePortKey]:
        """Remove claims that were entered; return the Service ports concerned, as :meth:`enter` does."""
        affected: set[ServicePortKey] = set()
        for key, claim in claims:
            rivals = self._claims[key]
            before = rivals[:1]
            rivals.remove(claim)
            affected.update(_affected(claim, before, rivals))
            if not rivals:
                del self._claims[key]
                self._on_node.discard(key)
        return frozenset(affected)

    def winner(self, key: FrontendKey) -> ServicePortKey | None:
        """The Service port that has this frontend, if any."""
        rivals = self._claims.get(key)
        return rivals[0].owner if rivals else None

    def is_older(self, key: FrontendKey, owner: ServicePortKey) -> bool:
        """Whether the winner's Service is older than ``owner``'s, rather than the first by name of those of one age."""
        rivals = self._claims[key]
        return any(rival.owner == owner and rival.created > rivals[0].created for rival in rivals)

    def on_node_addresses(self) -> Iterator[FrontendKey]:
        """The claimed frontends whose address is one that answers on NodePorts."""
        return iter(self._on_node)


def _affected(claim: Claim, before: list[Claim], rivals: list[Claim]) -> Iterator[ServicePortKey]:
    """The owners concerned by one change: all rivals when the winner is another, else only the one that came or went."""
    yield claim.owner
    if before != rivals[:1]:
        yield from (rival.owner for rival in rivals)


def settle(port: ServicePort, book: ClaimBook) -> tuple[ServicePort, tuple[Diagnostic, ...]]:
    """Take the frontends that others won from a Service port; returns the port itself when it keeps them all."""
    kept: list[FrontendRule] = []
    lost: list[Diagnostic] = []
    for rule in port.rules:
        key = frontend_key(port, rule.frontend)
        winner = book.winner(key)
        if winner is None or winner == port.key:
            kept.append(rule)
        else:
            lost.append(_lost(port, rule.frontend, winner, older=book.is_older(key, port.key)))
    return (evolve(port, rules=tuple(kept)) if lost else port), tuple(lost)


def _lost(port: ServicePort, frontend: Frontend, winner: ServicePortKey, *, older: bool) -> Diagnostic:
    owner = f"the older {winner}" if older else f"{winner}, the first by name of two that are equally old"
    return Diagnostic(
        severity=Severity.ERROR,
        subject=f"Service {port.name.service}",
        field=FIELDS[frontend.kind],
        message=f"{frontend} over {port.name.protocol.name} belongs to {owner}",
        remedy="choose another address or port, or remove it there",
    )


def overlaps(book: ClaimBook) -> tuple[Diagnostic, ...]:
    """Tell of NodePorts that one node address does not answer on, because a Service claims that very address and port.

    Frontends with an address are looked up before NodePorts, so the address wins.
    """
    found = []
    for key in book.on_node_addresses():
        node_port = book.winner(key._replace(address=None))
        winner = book.winner(key)
        if node_port is not None and winner is not None:
            found.append(
                Diagnostic(
                    severity=Severity.WARNING,
                    subject=f"Service {node_port.name.service}",
                    field=FIELDS[FrontendKind.NODE_PORT],
                    message=f"node port {key.port} does not answer on {key.address}, where {winner} claims {key}",
                    remedy="choose another node port, or another address there",
                )
            )
    return tuple(sorted(found))
