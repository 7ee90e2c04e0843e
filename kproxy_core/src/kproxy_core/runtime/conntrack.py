"""Deletes stale UDP flows in a thread of its own, so that no sync waits for a large conntrack table."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice

from kproxy_core.engine.events import CleanConntrack
from kproxy_core.kernel.conntrack import ConntrackSocket
from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.flows import UdpFlow
from kproxy_core.resolve.conntrack import ValidReplies, stale_flows, udp_places
from kproxy_core.runtime.logs import LOGGER
from kproxy_core.wire import nfnetlink
from kproxy_core.wire.ctnetlink import Flow

BUDGET = 5.0
"""Seconds after which a cleaning stops and is asked for again: it must not keep a processor busy for long at a stretch."""
SLICE = 500
"""Flows deleted between two looks at the clock."""

log = logging.getLogger(LOGGER)

Ended = Callable[[str], None]
Cleaned = Callable[[Family, float, int], None]
"""Told the family, how many seconds its cleaning took, and how many flows it deleted."""

_FAMILIES = {Family.IPV4: nfnetlink.Family.IPV4, Family.IPV6: nfnetlink.Family.IPV6}


class OverBudgetError(Exception):
    """The cleaning took too long and will go on later."""


class ConntrackCleaner:
    """A worker thread that cleans when told to.

    ``ended`` is called in that thread, with an error or an empty text, ``cleaned`` for each family that was cleaned.
    """

    def __init__(self, valid_replies: ValidReplies, ended: Ended, cleaned: Cleaned | None = None) -> None:
        self._valid_replies = valid_replies
        self._ended = ended
        self._cleaned = cleaned
        self._wishes: queue.SimpleQueue[CleanConntrack | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="conntrack", daemon=True)
        self._thread.start()

    def clean(self, wish: CleanConntrack) -> None:
        """Ask for a cleaning; returns at once."""
        self._wishes.put(wish)

    def close(self) -> None:
        """End the thread; a cleaning under way is given up with the process."""
        self._wishes.put(None)

    def _work(self) -> None:
        while (wish := self._wishes.get()) is not None:
            self._ended(self._clean(wish))

    def _clean(self, wish: CleanConntrack) -> str:
        deadline = time.monotonic() + BUDGET
        try:
            with ConntrackSocket() as conntrack:
                deleted = sum(self._clean_family(conntrack, family, wish, deadline) for family in Family)
        except OverBudgetError:
            return f"not done after {BUDGET:.0f} seconds"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again and must not end the thread
            return str(error) or repr(error)
        if deleted:
            log.info("deleted %d stale UDP flows from conntrack", deleted, extra={"flows": deleted})
        return ""

    def _clean_family(self, conntrack: ConntrackSocket, family: Family, wish: CleanConntrack, deadline: float) -> int:
        began = time.monotonic()
        deleted = clean_family(conntrack, family, wish, self._valid_replies, deadline)
        if self._cleaned is not None:
            self._cleaned(family, time.monotonic() - began, deleted)
        return deleted


def clean_family(
    conntrack: ConntrackSocket, family: Family, wish: CleanConntrack, valid_replies: ValidReplies, deadline: float
) -> int:
    """Delete the stale flows of one family; return how many. Raises :class:`OverBudgetError` at the deadline (monotonic)."""
    places = {_packed(*place) for place in udp_places(wish.state, wish.gone_frontends) if place[0].family is family}
    if not places:
        return 0
    found = {_udp_flow(flow): flow for flow in conntrack.flows(_FAMILIES[family], lambda dialled, _answering: dialled in places)}
    stale: Iterator[UdpFlow] = stale_flows(wish.state, valid_replies, wish.gone_frontends, found)
    deleted = 0
    while part := [found[flow] for flow in islice(stale, SLICE)]:
        deleted += conntrack.delete(part)
        if time.monotonic() > deadline:
            raise OverBudgetError
    return deleted


def _packed(address: Address, port: int) -> bytes:
    return address + port.to_bytes(2, "big")


def _udp_flow(flow: Flow) -> UdpFlow:
    return UdpFlow(
        source=Address(flow.original.source),
        source_port=flow.original.source_port,
        destination=Address(flow.original.destination),
        destination_port=flow.original.destination_port,
        reply_source=Address(flow.reply.source),
        reply_port=flow.reply.source_port,
        zone=flow.zone,
    )
