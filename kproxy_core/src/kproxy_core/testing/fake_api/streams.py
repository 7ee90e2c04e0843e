"""Answers to watch: initial events, changes, bookmarks, the end; and what a test makes a stream do."""

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec
from attrs import frozen

from kproxy_core.testing.fake_api.answers import ApiError, forbidden_list_option, too_old
from kproxy_core.testing.fake_api.faults import Faults
from kproxy_core.testing.fake_api.lists import Query, Selection, selection, version_of, whole
from kproxy_core.testing.fake_api.resources import Object, Resource, Target
from kproxy_core.testing.fake_api.store import Store, Stored, StoredChange, with_version

INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}
DEFAULT_TIMEOUT = (1800, 3600)
"""Seconds after which a watch without timeoutSeconds ends: at random between these, as --min-request-timeout has it."""

LINES_A_CHUNK = 200

CLIENT_CHECK = 0.2
"""Seconds between two looks whether the client of a quiet watch is still there."""


class Writer(Protocol):
    """Where a stream writes: one HTTP response in chunks."""

    def chunk(self, data: bytes) -> None:
        """Send data as one chunk, or as several when the faults say so."""

    def part_of_chunk(self, data: bytes) -> None:
        """Announce a chunk and send only the first half of it."""

    def end(self) -> None:
        """End the response as HTTP wants it."""

    def close(self, *, reset: bool = False) -> None:
        """Close the connection without ending the response; with a reset instead of a FIN when asked. Raises to say so."""

    def check(self) -> None:
        """Raise when the client has closed the connection."""


Command = Callable[[Writer], bool]
"""What a test wants a stream to do; returns whether the stream is over."""


@frozen(kw_only=True)
class WatchPlan:
    """A watch that is allowed: what it is about and from where.

    ``start`` None means from now, with what is there first; ``end_of_list`` has the bookmark sent that ends a streaming list.
    """

    resource: Resource
    selection: Selection
    start: int | None
    initial_events: bool
    end_of_list: bool
    bookmarks: bool
    timeout: float


def plan_watch(target: Target, query: Query, faults: Faults) -> WatchPlan:
    """Read the parameters of a watch. Raises ApiError where the API server refuses them."""
    if faults.ignores_streaming_lists:
        query = {name: value for name, value in query.items() if name not in ("sendInitialEvents", "resourceVersionMatch")}
    wants_initial = query.get("sendInitialEvents") in ("true", "1")
    match = query.get("resourceVersionMatch", "")
    if "sendInitialEvents" in query and not faults.streaming_lists:
        message = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        raise forbidden_list_option("sendInitialEvents", message)
    if "sendInitialEvents" in query and match != "NotOlderThan":
        raise forbidden_list_option(
            "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        )
    if match and "sendInitialEvents" not in query:
        raise forbidden_list_option(
            "resourceVersionMatch", "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        )
    seconds = float(query.get("timeoutSeconds") or 0)
    start = version_of(query)
    return WatchPlan(
        resource=target.resource,
        selection=selection(target, query),
        start=None if wants_initial or not start else start,
        initial_events=wants_initial or not start,
        end_of_list=wants_initial,
        bookmarks=query.get("allowWatchBookmarks") in ("true", "1") and faults.bookmarks,
        timeout=faults.watch_seconds if faults.watch_seconds is not None else seconds or random.uniform(*DEFAULT_TIMEOUT),
    )


class Stream:
    """One watch that is being answered. Other threads may put ``commands``; the stream's own thread performs them."""

    def __init__(self, store: Store, plan: WatchPlan, bookmark_interval: float) -> None:
        self.plan = plan
        self._store = store
        self._commands: deque[Command] = deque()
        self._bookmark_interval = bookmark_interval
        self._position = 0
        self.over = False

    def command(self, command: Command) -> None:
        """Have the stream do something, in its turn."""
        with self._store.changed:
            self._commands.append(command)
            self._store.changed.notify_all()

    def check_start(self) -> ApiError | None:
        """Return the refusal when the watch wants to start before what is remembered."""
        with self._store.locked():
            start, collection = self.plan.start, self._store[self.plan.resource]
            if start is not None and start < collection.oldest:
                return too_old(start, collection.oldest)
            self._position = self._store.version if start is None else start
            return None

    def run(self, writer: Writer) -> None:
        """Answer the watch until it ends."""
        deadline = time.monotonic() + self.plan.timeout
        if self.plan.initial_events:
            self._send_initial(writer)
        next_bookmark = time.monotonic() + self._bookmark_interval
        while True:
            lines, commands = self._next(min(deadline, next_bookmark), writer)
            if lines is None:
                _expire(writer, self._position)
                self.over = True
                return
            for start in range(0, len(lines), LINES_A_CHUNK):
                writer.chunk(b"".join(lines[start : start + LINES_A_CHUNK]))
            for command in commands:
                if command(writer):
                    self.over = True
                    return
            moment = time.monotonic()
            if self.plan.bookmarks and moment >= min(deadline, next_bookmark):
                writer.chunk(self._bookmark())
                next_bookmark = moment + self._bookmark_interval
            elif moment >= next_bookmark:
                next_bookmark = moment + self._bookmark_interval
            if moment >= deadline:
                writer.end()
                self.over = True
                return

    def replay(self, count: int) -> list[bytes]:
        """Return the last ``count`` events once more, as they were."""
        return list(self._lines(self._store[self.plan.resource].last(count)))

    def _send_initial(self, writer: Writer) -> None:
        with self._store.locked():
            found = [stored for stored in self._store[self.plan.resource].sorted() if self.plan.selection.selects(stored)]
            self._position = self._store.version
        for start in range(0, len(found), LINES_A_CHUNK):
            part = found[start : start + LINES_A_CHUNK]
            writer.chunk(b"".join(event_line("ADDED", self.plan.resource, stored) for stored in part))
        if self.plan.end_of_list and self.plan.bookmarks:
            writer.chunk(self._bookmark(INITIAL_EVENTS_END))

    def _next(self, until: float, writer: Writer) -> tuple[list[bytes] | None, list[Command]]:
        """Wait for changes, commands or a moment. No lines but None tell that changes were forgotten before they were sent."""
        collection = self._store[self.plan.resource]
        with self._store.changed:
            while True:
                if self._position < collection.last_forgotten:
                    return None, []
                changes = collection.since(self._position)
                commands = list(self._commands)
                self._commands.clear()
                # Bookmarks tell the version of the whole store, which other resources move too.
                self._position = max(self._position, self._store.version)
                lines = list(self._lines(changes))
                left = until - time.monotonic()
                if lines or commands or left <= 0:
                    return lines, commands
                self._store.changed.wait(min(left, CLIENT_CHECK))
                writer.check()

    def _lines(self, changes: list[StoredChange]) -> Iterator[bytes]:
        """Tell the changes as this watch sees them: an object that leaves the selection is deleted for it."""
        selects, resource = self.plan.selection.selects, self.plan.resource
        for change in changes:
            before, after = selects(change.old), selects(change.new)
            if after:
                assert change.new is not None
                yield event_line("MODIFIED" if before else "ADDED", resource, change.new)
            elif before:
                assert change.old is not None
                yield event_line("DELETED", resource, with_version(resource, change.old, change.version))

    def _bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        return bookmark_line(self.plan.resource, self._position, annotations)


def _expire(writer: Writer, version: int) -> None:
    writer.chunk(error_line(too_old(version, version + 1)))
    writer.end()


def event_line(event: str, resource: Resource, stored: Stored) -> bytes:
    """Write one event of a watch."""
    return b'{"type":"%b","object":%b}\n' % (event.encode(), whole(resource, stored))


def bookmark_line(resource: Resource, version: int, annotations: dict[str, str] | None = None) -> bytes:
    """Write a bookmark: an empty object with a version."""
    metadata = {"resourceVersion": str(version), **({"annotations": annotations} if annotations else {})}
    obj: Object = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata, **resource.empty}
    return msgspec.json.encode({"type": "BOOKMARK", "object": obj}) + b"\n"


def error_line(error: ApiError) -> bytes:
    """Write a refusal as it arrives within a stream."""
    return msgspec.json.encode({"type": "ERROR", "object": error.status}) + b"\n"
