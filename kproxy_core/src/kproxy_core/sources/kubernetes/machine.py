"""WatchMachine: what to ask the API server next for one kind, and which changes its answers mean. Does no I/O.

List, then watch from the list's version; where the server can, both are one streaming list (KEP-3157). Whatever happens to a
request, the objects seen so far stay until a newer version or a complete list replaces them.
"""

import enum
from collections.abc import Callable, Iterable

import msgspec
from attrs import frozen

from kproxy_core.model.changes import Change, Deleted, Replaced, Upserted, WatchedObject
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.names import ObjectName
from kproxy_core.sources.decode import Decoded, ObjectMeta, decode_object
from kproxy_core.sources.kubernetes.events import EVENT, IDENTITY, INITIAL_EVENTS_END, LIST, Refusal, refusal
from kproxy_core.sources.kubernetes.lines import LineBuffer, LineTooLongError
from kproxy_core.sources.kubernetes.pace import Pace
from kproxy_core.sources.kubernetes.resources import Query, WatchedResource

NOT_SUPPORTED = frozenset({400, 405, 406, 415, 422})
"""HTTP statuses by which a server refuses a parameter it does not know; 422 for sendInitialEvents before 1.32 or so."""

ABSENT = frozenset({403, 404})
MOST_FRUITLESS = 2
"""Watches in a row from one version that told nothing; then the version itself is doubted, and the kind listed anew."""

MOST_STALE_LISTS = 5
"""Lists in a row that are older than what was seen; then the cluster itself has gone back, as after restoring a backup."""


class Mode(enum.Enum):
    """The kinds of request."""

    LIST = "list"
    STREAMING_LIST = "streaming list"
    WATCH = "watch"


@frozen(kw_only=True)
class NextRequest:
    """What to ask. ``delay`` is waited before; ``silence`` is the longest time without a byte of the answer. In seconds."""

    mode: Mode
    query: Query
    delay: float
    silence: float


class WatchMachine:
    """The state of one watched kind.

    Ask for ``next_request``, perform it, tell what came of it: ``receive`` for each piece of a 200 stream until ``over``,
    ``receive_list`` for the body of a list, ``refused`` for another status, and last of all ``ended``. ``problem`` is what is
    wrong at present, in a sentence, and empty while all is well. ``chance`` returns random numbers from 0 to 1.
    ``streaming`` false never asks for a streaming list.
    """

    def __init__(self, resource: WatchedResource, pace: Pace, chance: Callable[[], float], *, streaming: bool = True) -> None:
        self.resource = resource
        self.over = False
        self.listed = False
        self.failures = 0
        self.problem = ""
        self.position = ""
        self.relists = 0
        self._pace = pace
        self._chance = chance
        self._codec = resource.codec
        self._good: dict[ObjectName, WatchedObject] = {}
        self._collected: dict[ObjectName, Decoded] | None = None
        self._unnamed: list[Diagnostic] = []
        self._lines = LineBuffer()
        self._number = -1
        self._newest = -1
        self._continue = ""
        self._delay = 0.0
        self._can_stream = streaming
        self._plain_next = False
        self._with_fields = True
        self._fruitless = 0
        self._stale = 0
        self._heard = False
        self._mode = Mode.LIST
        self._handlers: dict[str, Callable[[msgspec.Raw, list[Change]], None]] = {
            "ADDED": self._upsert,
            "MODIFIED": self._upsert,
            "DELETED": self._delete,
            "BOOKMARK": self._bookmark,
            "ERROR": self._error,
        }

    # --------------------------------------------------------------- requests

    def next_request(self) -> NextRequest:
        """Return what to ask now, and how long to wait before."""
        delay, self._delay = self._delay, 0.0
        self.over = self._heard = False
        self._lines.clear()
        self._mode = self._next_mode()
        if self._mode is not Mode.LIST or not self._continue:
            self._collected = None if self._mode is Mode.WATCH else {}
            self._unnamed.clear()
        return NextRequest(mode=self._mode, query=self._query(), delay=delay, silence=self._silence())

    @property
    def silence(self) -> float:
        """How long the stream that is being read may be without a byte, in seconds: longer once its list is complete."""
        return self._silence()

    @property
    def header_silence(self) -> float:
        """How long the server may take until it accepts a stream, in seconds: it does so before it has anything to say."""
        return min(self._pace.stream_silence, self._pace.silence)

    def _next_mode(self) -> Mode:
        if self.position:
            return Mode.WATCH
        if self._continue:
            return Mode.LIST
        return Mode.STREAMING_LIST if self._can_stream and not self._plain_next else Mode.LIST

    def _query(self) -> Query:
        selectors = self.resource.selectors(with_fields=self._with_fields)
        if self._mode is Mode.LIST:
            if self._continue:
                return (("continue", self._continue), *selectors)
            # From the server's cache: a whole fleet that lists at once must not reach etcd.
            return (("resourceVersion", "0"), *selectors)
        watch: Query = (("watch", "1"), ("allowWatchBookmarks", "true"))
        if self._mode is Mode.STREAMING_LIST:
            watch = (*watch, ("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan"))
        timeout = str(self._pace.watch_seconds(self._chance()))
        return (*watch, ("resourceVersion", self.position or "0"), ("timeoutSeconds", timeout), *selectors)

    def _silence(self) -> float:
        if self._mode is Mode.LIST:
            return self._pace.list_silence
        return self._pace.silence if self._collected is None else self._pace.stream_silence

    # ---------------------------------------------------------------- answers

    def accepted(self) -> None:
        """Take the status 200 of a stream."""
        if self._mode is Mode.WATCH:
            self.problem = ""

    def receive(self, data: bytes) -> list[Change]:
        """Take a piece of a stream and return what it means. When ``over`` is set, the rest is of no use."""
        changes: list[Change] = []
        self._heard = True
        try:
            lines = self._lines.feed(data)
        except LineTooLongError as error:
            self._give_up(str(error))
            return changes
        for line in lines:
            if self.over:
                break
            if line and not line.isspace():
                self._event(line, changes)
        return changes

    def receive_list(self, body: bytes) -> list[Change]:
        """Take the body of a list, or of one page of it, and return the change when it is complete."""
        changes: list[Change] = []
        try:
            decoded = LIST.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            self._fail(f"the list is torn or no list: {error}")
            return changes
        assert self._collected is not None
        for raw in decoded.items or ():
            self._collect(decode_object(raw, self._codec))
        self._continue = decoded.metadata.continue_ or ""
        if not self._continue:
            self._complete(decoded.metadata.resource_version, changes)
        return changes

    def refused(self, answer: Refusal) -> list[Change]:
        """Take a refusal: a status other than 200, or an ERROR event."""
        self._heard = self.over = True
        self._continue = ""
        if answer.expired:
            self._expire()
            return []
        if self._mode is Mode.STREAMING_LIST:
            # Whatever the reason, a plain list may work: watching is forbidden, the parameter unknown, etcd too old for it.
            self._plain_next = True
            self._can_stream = self._can_stream and answer.code not in NOT_SUPPORTED
            if answer.code in NOT_SUPPORTED or answer.code in ABSENT:
                return []
        if answer.code in NOT_SUPPORTED and self.resource.can_do_without_fields:
            self._with_fields = False
        if answer.too_large:
            self._doubt_version()
        elif self._mode is Mode.WATCH and (answer.code in NOT_SUPPORTED or answer.code in ABSENT):
            # Where listing is allowed and watching is not, lists at intervals are better than nothing.
            self._position_lost()
            self._plain_next = True
        if answer.code in ABSENT and self.resource.optional and self._mode is Mode.LIST:
            return self._absent(answer)
        self._fail(str(answer), answer.retry_after)
        return []

    def ended(self, lived: float, failure: str = "", *, silent: bool = False) -> None:
        """Take the end of a request. ``lived`` is in seconds; ``failure`` says why unless it ended in the regular way.

        ``silent`` tells that the server had answered with 200 and then said nothing for too long.
        """
        if lived >= self._pace.steady:
            self.failures = 0
        listing, self._collected = self._collected is not None, None if not self._continue else self._collected
        if self._mode is Mode.STREAMING_LIST and listing and not self.over and (self._heard or silent):
            self._plain_next = True
        if silent and not self._heard and self._mode is Mode.WATCH:
            self._doubt_version()
        if failure:
            self._fail(failure)
        elif self._mode is not Mode.LIST and not self.over and lived < self._pace.steady:
            self.failures += 1
            self._wait(self._pace.backoff(self.failures, self._chance()))

    # ----------------------------------------------------------------- events

    def _event(self, line: bytes, changes: list[Change]) -> None:
        try:
            event = EVENT.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            self._give_up(f"a line of the watch is no event: {error}")
            return
        handler = self._handlers.get(event.type)
        if handler is None:
            self._position_lost()
            self._give_up(f"an event of unknown type {event.type[:40]!r}")
            return
        handler(event.object, changes)

    def _upsert(self, raw: msgspec.Raw, changes: list[Change]) -> None:
        decoded = decode_object(raw, self._codec)
        meta = decoded.meta
        if meta is None or not meta.resource_version:
            self._give_up("an object without a name or version")
        elif self._collected is not None:
            self._collected[meta.name] = decoded
        elif self._advance(meta.resource_version):
            changes.append(self._change(decoded, meta))

    def _delete(self, raw: msgspec.Raw, changes: list[Change]) -> None:
        try:
            found = IDENTITY.decode(raw)
        except msgspec.DecodeError as error:
            self._give_up(f"the deletion of an object without a name: {error}")
            return
        name = found.object_name(namespaced=self._codec.namespaced)
        if not name.name or not found.metadata.resource_version:
            self._give_up("the deletion of an object without a name or version")
        elif self._collected is not None:
            self._collected.pop(name, None)
        elif self._advance(found.metadata.resource_version):
            self._good.pop(name, None)
            changes.append(Deleted(kind=self.resource.kind, name=name))

    def _bookmark(self, raw: msgspec.Raw, changes: list[Change]) -> None:
        try:
            found = IDENTITY.decode(raw).metadata
        except msgspec.DecodeError as error:
            self._give_up(f"a bookmark without a version: {error}")
            return
        if self._collected is None:
            self._advance(found.resource_version)
        elif (found.annotations or {}).get(INITIAL_EVENTS_END) == "true":
            self._complete(found.resource_version, changes)
        else:
            # Bookmarks come once a minute: this server took no notice of sendInitialEvents.
            self._can_stream = False
            self.over = True

    def _error(self, raw: msgspec.Raw, changes: list[Change]) -> None:
        changes.extend(self.refused(refusal(raw)))
        self.over = True

    def _change(self, decoded: Decoded, meta: ObjectMeta) -> Change:
        good = self._good.get(meta.name) if decoded.repaired else None
        if good is not None:
            return Upserted(object=good, diagnostics=(*decoded.diagnostics, _kept(meta)))
        if decoded.objects:
            self._good[meta.name] = decoded.objects[0]
            return Upserted(object=decoded.objects[0], diagnostics=decoded.diagnostics)
        self._good.pop(meta.name, None)
        return Deleted(kind=self.resource.kind, name=meta.name, diagnostics=decoded.diagnostics)

    def _advance(self, version: str) -> bool:
        """Move to a version; false for a replay, of something that is known already or is older than what is known."""
        number = _as_number(version)
        if 0 <= number <= self._number:
            return False
        self.position, self._number = version, number
        self._newest = max(self._newest, number)
        self._fruitless = 0
        return True

    # ------------------------------------------------------------------ lists

    def _collect(self, decoded: Decoded) -> None:
        assert self._collected is not None
        if decoded.meta is None:
            self._unnamed.extend(decoded.diagnostics)
        else:
            self._collected[decoded.meta.name] = decoded

    def _complete(self, version: str, changes: list[Change]) -> None:
        """Deliver a complete list, unless a server that is behind the others gave an old one."""
        collected, self._collected = self._collected or {}, None
        number = _as_number(version)
        if not version:
            self._fail("the list has no version")
            self.over = True
            return
        if 0 <= number < self._newest and self._stale < MOST_STALE_LISTS:
            self._stale += 1
            self._fail(f"the list is of version {version}, older than {self._newest}, which was seen before")
            self.over = True
            return
        self._stale = self._fruitless = 0
        self._plain_next = False
        self.position, self._number, self._newest = version, number, number
        self.listed, self.problem = True, ""
        if self._mode is Mode.STREAMING_LIST:
            self._mode = Mode.WATCH
        changes.append(self._replaced(collected.values()))

    def _replaced(self, decoded: Iterable[Decoded]) -> Replaced:
        told = list(self._unnamed)
        good: dict[ObjectName, WatchedObject] = {}
        for item in decoded:
            assert item.meta is not None
            told.extend(item.diagnostics)
            kept = self._good.get(item.meta.name) if item.repaired else None
            if kept is not None:
                told.append(_kept(item.meta))
                good[item.meta.name] = kept
            elif item.objects:
                good[item.meta.name] = item.objects[0]
        self._good = good
        return Replaced(kind=self.resource.kind, objects=tuple(good.values()), diagnostics=tuple(told))

    def _absent(self, answer: Refusal) -> list[Change]:
        """Do without an optional kind, and look for it again much later."""
        self._wait(self._pace.absent * (0.5 + self._chance() / 2))
        if self.listed:
            self.problem = str(answer)
            return []
        self.listed = True
        note = Diagnostic(
            severity=Severity.NOTE,
            subject=f"{self.resource.kind.value}s",
            message=f"the API server does not let them be listed ({answer}); the proxy does without",
            remedy="grant list and watch on them" if answer.code == 403 else "",
        )
        return [Replaced(kind=self.resource.kind, objects=(), diagnostics=(note,))]

    # --------------------------------------------------------------- failures

    def _give_up(self, problem: str) -> None:
        """Leave a stream that cannot be understood, and ask again from the last version."""
        self.over = True
        self._doubt_version()
        self._fail(problem)

    def _fail(self, problem: str, retry_after: float = 0.0) -> None:
        self.failures += 1
        self.problem = problem
        self._wait(self._pace.backoff(self.failures, self._chance()))
        if retry_after > 0:
            self._wait(self._pace.after(retry_after, self._chance()))

    def _wait(self, seconds: float) -> None:
        self._delay = max(self._delay, seconds)

    def _expire(self) -> None:
        """The version is forgotten: it is never asked for again, and all nodes of the cluster are in the same situation."""
        self._position_lost()
        self.failures += 1
        self._wait(max(self._chance() * self._pace.relist_spread, self._pace.backoff(self.failures, self._chance())))

    def _doubt_version(self) -> None:
        self._fruitless += 1
        if self._fruitless >= MOST_FRUITLESS:
            self._position_lost()

    def _position_lost(self) -> None:
        self.relists += bool(self.position)
        self.position, self._number = "", -1
        self._fruitless = 0


def _as_number(version: str) -> int:
    """Return a resource version as a number; they can be compared since they come from one counter (KEP-5504). Else -1."""
    return int(version) if version.isdecimal() else -1


def _kept(meta: ObjectMeta) -> Diagnostic:
    return Diagnostic(
        severity=Severity.WARNING,
        subject=meta.subject,
        message=f"version {meta.resource_version} is malformed; the last good one stays in force",
    )
