"""Answers to GET and list: selection, chunks with limit and continue, and the rules about resourceVersion."""

import base64
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from attrs import frozen

from kproxy_core.testing.fake_api.answers import (
    bad_request,
    continue_too_old,
    forbidden_list_option,
    not_found,
    too_large,
)
from kproxy_core.testing.fake_api.resources import Resource, Target
from kproxy_core.testing.fake_api.selectors import Predicate, SelectorError, everything, field_selector, label_selector
from kproxy_core.testing.fake_api.store import Store, Stored

Query = Mapping[str, str]
KEPT_CHUNKED_LISTS = 16


@frozen(kw_only=True)
class Selection:
    """Which objects a list or watch is about."""

    namespace: str = ""
    name: str = ""
    labels: Predicate = everything
    fields: Predicate = everything
    by_selector: bool = False

    def selects(self, stored: Stored | None) -> bool:
        """Whether it is about this object; not about none."""
        if stored is None or (self.namespace and stored.key[0] != self.namespace):
            return False
        if self.name and stored.key[1] != self.name:
            return False
        return self.labels(stored.labels) and self.fields(stored.fields)


def selection(target: Target, query: Query) -> Selection:
    """Read the selectors of a request. Raises ApiError when one cannot be read."""
    try:
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        return Selection(
            namespace=target.namespace,
            name=target.name,
            labels=label_selector(labels) if labels else everything,
            fields=field_selector(fields, target.resource.fields) if fields else everything,
            by_selector=bool(labels or fields),
        )
    except SelectorError as error:
        raise bad_request(str(error)) from error


def version_of(query: Query) -> int | None:
    """Read the request's resourceVersion, None when it has none. Raises ApiError when it is no number."""
    text = query.get("resourceVersion", "")
    if not text:
        return None
    if not text.isdecimal():
        raise forbidden_list_option("resourceVersion", f'Invalid value: "{text}": invalid resource version')
    return int(text)


class Lists:
    """Lists of a store; remembers the lists that are being read in chunks, so that each is consistent."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._chunked: dict[int, Sequence[Stored]] = {}
        self._lock = threading.Lock()

    def get(self, target: Target) -> bytes:
        """Return one object. Raises ApiError when there is none."""
        stored = self._store.get(target.resource, (target.namespace, target.name))
        if stored is None:
            raise not_found(target.resource, target.name)
        return whole(target.resource, stored)

    def list(self, target: Target, query: Query) -> bytes:
        """Return a list, or one chunk of it. Raises ApiError."""
        wanted = selection(target, query)
        limit = int(query.get("limit") or 0)
        if token := query.get("continue"):
            return self._rest(target.resource, wanted, limit, token)
        with self._store.locked():
            version, asked = self._store.version, version_of(query)
            if asked is not None and asked > version:
                raise too_large(asked, version)
            found = [stored for stored in self._store[target.resource].sorted() if wanted.selects(stored)]
        if not limit or asked == 0 or len(found) <= limit:  # the watch cache answers version 0 and ignores the limit
            return _body(target.resource, version, found)
        self._remember(version, found)
        return _chunk(target.resource, version, found, (0, limit), counted=not wanted.by_selector)

    def forget_chunks(self) -> None:
        """Forget the lists that are being read in chunks: their continue tokens are too old now."""
        with self._lock:
            self._chunked.clear()

    def _remember(self, version: int, found: Sequence[Stored]) -> None:
        with self._lock:
            self._chunked[version] = found
            while len(self._chunked) > KEPT_CHUNKED_LISTS:
                del self._chunked[next(iter(self._chunked))]

    def _rest(self, resource: Resource, wanted: Selection, limit: int, token: str) -> bytes:
        version, key = _read_token(token)
        with self._lock:
            found = self._chunked.get(version)
        if found is None:
            raise continue_too_old()
        start = next((i for i, stored in enumerate(found) if _path(stored) + "\0" > key), len(found))
        return _chunk(resource, version, found, (start, limit or len(found)), counted=not wanted.by_selector)


def whole(resource: Resource, stored: Stored) -> bytes:
    """Give an object as it is sent alone or in a watch: with kind and apiVersion."""
    return b'{"kind":"%b","apiVersion":"%b",%b' % (resource.kind.encode(), resource.api_version.encode(), stored.encoded[1:])


def _path(stored: Stored) -> str:
    return "/".join(("", *filter(None, stored.key)))


def _read_token(token: str) -> tuple[int, str]:
    try:
        read = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(read["rv"]), str(read["start"])
    except (ValueError, LookupError, TypeError, msgspec.DecodeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error


def _chunk(resource: Resource, version: int, found: Sequence[Stored], part: tuple[int, int], *, counted: bool) -> bytes:
    start, limit = part
    end = start + limit
    if end >= len(found):
        return _body(resource, version, found[start:])
    token = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": version, "start": _path(found[end - 1]) + "\0"})
    metadata: dict[str, Any] = {"continue": base64.urlsafe_b64encode(token).decode().rstrip("=")}
    if counted:
        metadata["remainingItemCount"] = len(found) - end
    return _body(resource, version, found[start:end], metadata)


def _body(resource: Resource, version: int, found: Sequence[Stored], more: Mapping[str, Any] | None = None) -> bytes:
    head = {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": str(version), **(more or {})},
    }
    return msgspec.json.encode(head)[:-1] + b',"items":[' + b",".join(stored.encoded for stored in found) + b"]}\n"
