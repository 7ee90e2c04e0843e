"""The objects of the fake API server, their versions, and the history that watches are served from."""

import bisect
import datetime
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from attrs import frozen

from kproxy_core.testing.fake_api.resources import RESOURCES, Object, Resource

Key = tuple[str, str]
"""Namespace and name. Lists are in this order."""

_METADATA_ORDER = ("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp")
LONGEST_HISTORY = 400_000
"""Changes kept per resource; beyond, the older half is forgotten, as compaction would."""


@frozen(kw_only=True)
class Stored:
    """One object at one version. ``encoded`` is its JSON without kind and apiVersion, as the items of a list are."""

    key: Key
    version: int
    object: Object
    encoded: bytes
    fields: Mapping[str, str]

    @property
    def labels(self) -> Mapping[str, str]:
        """The object's labels."""
        labels: Mapping[str, str] = self.object["metadata"].get("labels") or {}
        return labels


@frozen(kw_only=True)
class StoredChange:
    """One write: ``old`` is None when the object was created, ``new`` is None when it was deleted."""

    version: int
    old: Stored | None
    new: Stored | None


class Collection:
    """All objects of one resource, and what happened to them since ``oldest``."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.objects: dict[Key, Stored] = {}
        self.oldest = 0
        self.last_forgotten = 0
        self._versions: list[int] = []
        self._changes: list[StoredChange] = []

    def record(self, change: StoredChange) -> None:
        """Take one more change into the history."""
        self._versions.append(change.version)
        self._changes.append(change)
        if len(self._versions) > LONGEST_HISTORY:
            self.forget(self._versions[LONGEST_HISTORY // 2])

    def since(self, version: int) -> list[StoredChange]:
        """Return the changes after ``version``."""
        return self._changes[bisect.bisect_right(self._versions, version) :]

    def last(self, count: int) -> list[StoredChange]:
        """Return the last ``count`` changes."""
        return self._changes[len(self._changes) - count :]

    def forget(self, version: int) -> None:
        """Forget the changes up to ``version``: no watch can start before it any more."""
        cut = bisect.bisect_right(self._versions, version)
        if cut:
            self.last_forgotten = self._versions[cut - 1]
        del self._versions[:cut], self._changes[:cut]
        self.oldest = max(self.oldest, version)

    def restart(self, version: int) -> None:
        """Begin a new history at ``version``, which may be lower than any before."""
        self._versions.clear()
        self._changes.clear()
        self.oldest = self.last_forgotten = version

    def sorted(self) -> list[Stored]:
        """Return all objects in the order of lists."""
        return [self.objects[key] for key in sorted(self.objects)]


class Store:
    """Every collection under one lock and one counter of versions, as in etcd; ``changed`` is notified of each write."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.version = 1
        self._collections = {(resource.group, resource.plural): Collection(resource) for resource in RESOURCES}

    def __getitem__(self, resource: Resource) -> Collection:
        return self._collections[resource.group, resource.plural]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock over a read and the write that follows from it."""
        with self.changed:
            yield

    def get(self, resource: Resource, key: Key) -> Stored | None:
        """Return an object, None when there is none."""
        with self.changed:
            return self[resource].objects.get(key)

    def put(self, resource: Resource, obj: Object) -> Stored:
        """Create or replace an object: fills in uid, creationTimestamp, generation and the next resourceVersion."""
        with self.changed:
            stored = self._put(resource, obj)
            self.changed.notify_all()
            return stored

    def put_all(self, objects: Iterable[tuple[Resource, Object]]) -> None:
        """Create or replace many objects, and wake the watches once."""
        with self.changed:
            for resource, obj in objects:
                self._put(resource, obj)
            self.changed.notify_all()

    def delete(self, resource: Resource, key: Key) -> Stored | None:
        """Delete an object and return its last state, or None when there was none."""
        with self.changed:
            old = self[resource].objects.pop(key, None)
            if old is not None:
                self.version += 1
                self[resource].record(StoredChange(version=self.version, old=old, new=None))
                self.changed.notify_all()
            return old

    def compact(self, resource: Resource | None = None) -> None:
        """Forget all history: a watch from an older version is refused with 410. The version grows, as others write too."""
        with self.changed:
            self.version += 1
            for collection in self._collections.values():
                if resource in (None, collection.resource):
                    collection.forget(self.version)
            self.changed.notify_all()

    def advance(self, by: int = 1) -> int:
        """Let time pass for the cluster: other resources were written. Return the new version."""
        with self.changed:
            self.version += by
            return self.version

    def rewind(self, version: int, keep: Callable[[Stored], bool]) -> None:
        """Go back to an older ``version``, as after restoring etcd from a backup; objects that ``keep`` refuses are gone."""
        with self.changed:
            self.version = version
            for collection in self._collections.values():
                collection.objects = {key: stored for key, stored in collection.objects.items() if keep(stored)}
                collection.restart(version)
            self.changed.notify_all()

    def _put(self, resource: Resource, obj: Object) -> Stored:
        metadata = dict(obj["metadata"])
        if not resource.namespaced:
            metadata.pop("namespace", None)
        key = (metadata.get("namespace", ""), metadata["name"])
        collection = self[resource]
        old = collection.objects.get(key)
        self.version += 1
        metadata = _filled_in(metadata, old, self.version, generation=resource.generation)
        body = {name: value for name, value in obj.items() if name not in ("metadata", "kind", "apiVersion")}
        stored = store_form(resource, key, {"metadata": metadata, **body})
        collection.objects[key] = stored
        collection.record(StoredChange(version=self.version, old=old, new=stored))
        return stored


def store_form(resource: Resource, key: Key, obj: Object) -> Stored:
    """Encode an object whose metadata are complete."""
    version = int(obj["metadata"]["resourceVersion"])
    return Stored(key=key, version=version, object=obj, encoded=msgspec.json.encode(obj), fields=resource.field_values(obj))


def with_version(resource: Resource, stored: Stored, version: int) -> Stored:
    """Give the same object at another version: how a watch tells that an object is gone."""
    metadata = {**stored.object["metadata"], "resourceVersion": str(version)}
    return store_form(resource, stored.key, {**stored.object, "metadata": metadata})


def now() -> str:
    """The time as the API writes it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _filled_in(metadata: dict[str, Any], old: Stored | None, version: int, *, generation: bool) -> dict[str, Any]:
    kept = old.object["metadata"] if old else {}
    filled = {
        **metadata,
        "uid": kept.get("uid") or metadata.get("uid") or str(uuid.uuid4()),
        "resourceVersion": str(version),
        "creationTimestamp": kept.get("creationTimestamp") or metadata.get("creationTimestamp") or now(),
    }
    if generation:
        filled["generation"] = kept.get("generation", 0) + 1
    ordered = {name: filled.pop(name) for name in _METADATA_ORDER if name in filled}
    return {**ordered, **filled}
