"""Questions on their way to the kernel. Where silence is what must be, it is waited for while others are put.

A dropped packet costs a time-out of nearly half a second. It was dropped, or not, in the moment in which it was sent; so the next
cluster is programmed meanwhile, and a hundred time-outs pass at once.
"""

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Generic, Self, TypeVar

from attrs import frozen

from kproxy_core.testing.conformance.oracle_kernel.atlas import Atlas, Sent
from kproxy_core.testing.lab import Dropped, Outcome
from kproxy_core.testing.lab.ask import Volley

_RETRANSMISSION = 0.9
"""Seconds after which an answer may be that to a second SYN, which met the rules of another cluster."""
_GRACE = 0.03
"""Seconds that wrong answers get before the next cluster, where nothing else is waited for."""

C = TypeVar("C")
Judge = Callable[[C, Sent, Outcome], None]
"""Takes the outcome of a packet that was sent in a context."""


@frozen
class _Pending(Generic[C]):
    context: C
    sent: Sent
    started: float
    is_silent: bool


class Inquiry(Generic[C]):
    """Puts packets and hands each outcome to a judge, sooner or later; what the judge raises ends it."""

    def __init__(self, atlas: Atlas, judge: Judge[C]) -> None:
        self._atlas = atlas
        self._judge = judge
        self._volley = Volley()
        self._pending: dict[int, _Pending[C]] = {}

    def put(self, context: C, packets: Iterable[Sent]) -> None:
        """Send packets and wait until every outcome is known that is not to be silence."""
        # Silent ones first: when the others have been answered, wrong answers to these have arrived, too.
        marked = sorted(((self._atlas.is_silent(sent), sent) for sent in packets), key=lambda pair: not pair[0])
        for is_silent, sent in marked:
            number = self._volley.add(self._atlas.question(sent))
            self._pending[number] = _Pending(context, sent, time.monotonic(), is_silent)
        self._take(_GRACE)
        while any(not pending.is_silent for pending in self._pending.values()):
            self._take(1.0)

    def drain(self) -> None:
        """Wait for what is still open."""
        while self._pending:
            self._take(1.0)

    def _take(self, patience: float) -> None:
        for number, outcome in self._volley.poll(patience):
            pending = self._pending.pop(number)
            is_late = pending.is_silent and time.monotonic() > pending.started + _RETRANSMISSION
            self._judge(pending.context, pending.sent, Dropped() if is_late else outcome)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._volley.close()
