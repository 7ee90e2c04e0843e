"""The envelopes of the API: events of a watch, bookmarks, lists, and the Status objects of refusals."""

import msgspec
from attrs import frozen

from kproxy_core.model.names import ObjectName
from kproxy_core.sources.api_types import Wire

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends a streaming list (KEP-3157)."""

EXPIRED_REASONS = frozenset({"Expired", "Gone"})
GONE = 410
TOO_LARGE = "ResourceVersionTooLarge"


class WatchEvent(Wire, frozen=True):
    """One line of a watch; what ``object`` is depends on ``type``."""

    type: str
    object: msgspec.Raw


class _ListMeta(Wire, frozen=True):
    resource_version: str = ""
    continue_: str | None = msgspec.field(name="continue", default=None)


class ListBody(Wire, frozen=True):
    """The body of a list: its items unread."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _IdentityMeta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Identity(Wire, frozen=True):
    """Who an object is and at which version, and nothing else of it; enough for a bookmark and for a deletion."""

    metadata: _IdentityMeta = _IdentityMeta()

    def object_name(self, *, namespaced: bool) -> ObjectName:
        """Return its name."""
        return ObjectName(self.metadata.namespace if namespaced else "", self.metadata.name)


class _Cause(Wire, frozen=True):
    reason: str = ""


class _Details(Wire, frozen=True):
    retry_after_seconds: float = 0.0
    causes: list[_Cause] | None = None


class _Status(Wire, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


@frozen(kw_only=True)
class Refusal:
    """Why the server does not do what it was asked: an HTTP status, or an ERROR event within a stream.

    ``retry_after`` is in seconds, 0 when the server named no time.
    """

    code: int
    reason: str = ""
    message: str = ""
    retry_after: float = 0.0
    too_large: bool = False

    @property
    def expired(self) -> bool:
        """Whether the version asked for is forgotten."""
        return self.code == GONE or self.reason in EXPIRED_REASONS

    def __str__(self) -> str:
        return f"{self.code} {self.reason}: {self.message}" if self.message else f"{self.code} {self.reason}".rstrip()


EVENT = msgspec.json.Decoder(WatchEvent)
LIST = msgspec.json.Decoder(ListBody)
IDENTITY = msgspec.json.Decoder(Identity)
_STATUS = msgspec.json.Decoder(_Status)

LONGEST_MESSAGE = 500


def refusal(body: bytes | msgspec.Raw, code: int = 0, retry_after: float = 0.0) -> Refusal:
    """Read a Status object; what is no Status is quoted. ``code`` and ``retry_after`` are HTTP's and win where they are given."""
    try:
        status = _STATUS.decode(body)
    except msgspec.DecodeError:
        text = bytes(body)[:LONGEST_MESSAGE].decode("utf-8", "replace").strip()
        return Refusal(code=code, message=" ".join(text.split()), retry_after=retry_after)
    details = status.details or _Details()
    return Refusal(
        code=code or status.code,
        reason=status.reason,
        message=status.message[:LONGEST_MESSAGE],
        retry_after=retry_after or details.retry_after_seconds,
        too_large=any(cause.reason == TOO_LARGE for cause in details.causes or ()),
    )
