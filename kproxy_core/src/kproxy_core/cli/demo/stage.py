"""Everything that a part of the demo works with, and how it tells what it has found out."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from attrs import define, field

from kproxy_core.cli.demo.cluster import Cluster, frontends
from kproxy_core.cli.demo.daemon import DaemonProcess
from kproxy_core.cli.demo.interruption import Interruption
from kproxy_core.cli.demo.report import Expectation
from kproxy_core.cli.demo.services import NODE, SERVICES, DemoService
from kproxy_core.cli.demo.traffic import Counts, Traffic
from kproxy_core.cli.demo.view import BoardEndpoint, BoardService, View

PATIENCE = 10.0
"""Seconds within which a change must have taken effect; a machine under load may need more than the usual fraction of one."""

WINDOW = 1.5
STEP = 0.1
"""Seconds over which shares are counted while one watches, and between two looks at the counts."""


@define(kw_only=True)
class Stage:
    """The cluster, the daemon in it, the traffic, the one who watches. ``seconds`` is how long the load is to go on in all."""

    cluster: Cluster
    daemon: DaemonProcess
    traffic: Traffic
    view: View
    interruption: Interruption
    seconds: float
    expectations: list[Expectation] = field(factory=list)
    measured: dict[str, float] = field(factory=dict)
    paused: dict[str, str] = field(factory=dict)
    _past: deque[tuple[float, dict[str, Counts]]] = field(factory=deque, init=False)
    _shown: float = field(default=0.0, init=False)

    def expect(self, name: str, ok: bool, detail: str) -> None:
        """Note whether something held, and show it."""
        self.expectations.append(Expectation(name=name, ok=ok, detail=detail))
        self.view.tell(f"{name}: {detail}", ok)

    def keep_going(self, share: float) -> None:
        """Let the load go on for a share (0 to 1) of the time that there is."""
        self.watch_for(lambda: False, self.seconds * share)

    def watch_for(self, condition: Callable[[], bool], patience: float = PATIENCE) -> float | None:
        """Wait until something holds, while the counts are shown; see :meth:`Interruption.wait_until`."""

        def looked() -> bool:
            self.daemon.check()
            if time.monotonic() - self._shown >= STEP:
                self._shown = time.monotonic()
                self.view.show(self.board())
            return condition()

        return self.interruption.wait_until(looked, patience)

    def counts(self) -> dict[str, Counts]:
        """The counts of every Service."""
        return {service.name: self.traffic.counts(service.name) for service in SERVICES}

    def board(self) -> list[BoardService]:
        """The counts as a board; the shares are those of the last moments, so that a change can be seen."""
        now, counts = time.monotonic(), self.counts()
        self._past.append((now, counts))
        while len(self._past) > 1 and now - self._past[1][0] >= WINDOW:
            self._past.popleft()
        recent = {name: one.since(self._past[0][1][name]) for name, one in counts.items()}
        return [self._board_service(service, counts[service.name], recent[service.name]) for service in SERVICES]

    def final_board(self, counts: Mapping[str, Counts]) -> list[BoardService]:
        """Counts as a board, the shares over all the time."""
        return [self._board_service(service, counts[service.name], counts[service.name]) for service in SERVICES]

    def _board_service(self, service: DemoService, counts: Counts, shared: Counts) -> BoardService:
        return BoardService(
            name=service.name,
            kind=f"{service.type} {service.protocol.name}",
            frontends=frontends(service, self.cluster.lab.plan.node_addresses(NODE)),
            asked=counts.asked,
            failed=counts.failed,
            endpoints=tuple(self._board_endpoints(service, counts, shared)),
            paused=self.paused.get(service.name, ""),
        )

    def _board_endpoints(self, service: DemoService, counts: Counts, shared: Counts) -> Iterable[BoardEndpoint]:
        present = self.cluster.endpoints[service.name]
        total = sum(shared.by_pod[endpoint.pod] for endpoint in present)
        for endpoint in present:
            note = "leaving" if endpoint.terminating else ""
            if service.local and endpoint.node != NODE:
                note = "policy Local"
            share = shared.by_pod[endpoint.pod] / total if total else 0.0
            connections = counts.by_pod[endpoint.pod]
            yield BoardEndpoint(pod=endpoint.pod, node=endpoint.node, connections=connections, share=share, note=note)
