"""Faults to inject into a fake API server: refusals, silence, slowness, broken streams, forgotten history."""

import threading
import time
from collections.abc import Callable

from attrs import define, frozen

from kproxy_core.testing.fake_api.answers import ApiError, refused

ANY = "*"


@frozen(kw_only=True)
class Request:
    """A request as the log keeps it. ``verb`` is Kubernetes's: get, list, watch, create, update, patch, delete.

    ``status`` is the HTTP status of the answer; ``at`` is in seconds of the monotonic clock; ``user`` is empty for a request that
    was refused before its user was known.
    """

    verb: str
    resource: str
    path: str
    query: dict[str, str]
    user: str = ""
    status: int = 0
    at: float = 0.0
    agent: str = ""


@define(kw_only=True)
class _Refusal:
    error: ApiError
    times: float
    matches: Callable[[Request], bool]


class Faults:
    """What is wrong with the server at present. Thread-safe; a new one is faultless.

    ``chunk_size`` splits all that watches send into pieces of at most that many bytes, each its own HTTP chunk and packet.
    ``delay`` is waited before each answer and each piece, in seconds. ``streaming_lists`` false refuses sendInitialEvents as
    servers without the WatchList feature do; ``ignores_streaming_lists`` takes no notice of it, as servers before it was thought
    of. ``expired_as_http`` answers a watch from a forgotten version with HTTP 410, not with an ERROR event. ``bookmarks`` false
    leaves all bookmarks out. ``watch_seconds`` ends watches after that time, whatever they ask for.
    """

    def __init__(self) -> None:
        self.chunk_size = 0
        self.delay = 0.0
        self.streaming_lists = True
        self.ignores_streaming_lists = False
        self.expired_as_http = False
        self.bookmarks = True
        self.watch_seconds: float | None = None
        self._lock = threading.Lock()
        self._refusals: list[_Refusal] = []
        self._speaking = threading.Event()
        self._speaking.set()

    def refuse(
        self, code: int, *, times: float = 1, retry_after: int | None = None, verb: str = ANY, resource: str = ANY
    ) -> None:
        """Answer the next ``times`` matching requests with an HTTP status, and Retry-After where given (seconds).

        ``times`` may be infinite; ``restore`` ends that.
        """

        def matches(request: Request) -> bool:
            return verb in (ANY, request.verb) and resource in (ANY, request.resource)

        with self._lock:
            self._refusals.append(_Refusal(error=refused(code, retry_after), times=times, matches=matches))

    def refuse_with(self, error: ApiError, matches: Callable[[Request], bool], *, times: float = 1) -> None:
        """Answer the next ``times`` requests for which ``matches`` holds with ``error``."""
        with self._lock:
            self._refusals.append(_Refusal(error=error, times=times, matches=matches))

    def refusal(self, request: Request) -> ApiError | None:
        """Take the refusal that is meant for this request, if there is one."""
        with self._lock:
            for refusal in self._refusals:
                if refusal.matches(request):
                    refusal.times -= 1
                    if refusal.times <= 0:
                        self._refusals.remove(refusal)
                    return refusal.error
        return None

    def silence(self) -> None:
        """Stop answering without closing anything, as a machine that lost its power does: half-open connections."""
        self._speaking.clear()

    def restore(self) -> None:
        """End silence, slowness and refusals that are outstanding."""
        with self._lock:
            self._refusals.clear()
        self.delay = 0.0
        self.chunk_size = 0
        self._speaking.set()

    def wait(self) -> None:
        """Wait as the present faults have it; called before anything is sent."""
        self._speaking.wait()
        if self.delay:
            time.sleep(self.delay)
