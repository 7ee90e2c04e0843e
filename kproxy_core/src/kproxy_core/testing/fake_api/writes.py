"""Answers to create, update, patch and delete over HTTP, with the conflicts that the API server sees."""

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml
from attrs import evolve, frozen

from kproxy_core.testing.fake_api.admission import Admission, check_name
from kproxy_core.testing.fake_api.answers import ApiError, already_exists, bad_request, conflict, no_such_path, not_found
from kproxy_core.testing.fake_api.lists import Query, selection, whole
from kproxy_core.testing.fake_api.resources import BY_KIND, NAMESPACES, Object, Resource, Target
from kproxy_core.testing.fake_api.store import Store, Stored

MERGE_PATCH = "application/merge-patch+json"
MERGED_AS_SUCH = (MERGE_PATCH, "application/strategic-merge-patch+json")
"""A strategic merge patch is taken as a merge patch: lists are replaced whole, which is what proxies' objects need."""

APPLIED = ("application/apply-patch+yaml", "application/apply-patch+cbor")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


@frozen(kw_only=True)
class Write:
    """A request that writes: where to, what, and in which form."""

    method: str
    target: Target
    body: bytes = b""
    content_type: str = "application/json"
    query: Query


class Writes:
    """Performs writes on a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._admission = Admission(store)

    def apply(self, obj: Object) -> Stored:
        """Create or replace an object, whatever version is there; its status too. Raises ApiError when it is not valid."""
        resource = resource_of(obj)
        return self._store.put(resource, self._admission.admit(resource, obj))

    def apply_all(self, objects: list[Object]) -> None:
        """Create or replace many objects with one notification."""
        admitted = ((resource_of(obj), obj) for obj in objects)
        self._store.put_all([(resource, self._admission.admit(resource, obj)) for resource, obj in admitted])

    def perform(self, write: Write) -> tuple[int, bytes]:
        """Perform a request. Return HTTP status and body. Raises ApiError."""
        perform = {"POST": self._create, "PUT": self._update, "PATCH": self._patch, "DELETE": self._delete}[write.method]
        with self._store.locked():
            return perform(write)

    def _create(self, write: Write) -> tuple[int, bytes]:
        if write.target.name:
            raise no_such_path()
        return self._create_object(write.target, _decoded(write.body))

    def _create_object(self, target: Target, obj: dict[str, Any]) -> tuple[int, bytes]:
        resource = target.resource
        obj = _placed(obj, target)
        metadata = obj["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
        check_name(resource, obj)
        key = (metadata.get("namespace", ""), metadata["name"])
        if resource.namespaced and self._store.get(NAMESPACES, ("", key[0])) is None:
            raise not_found(NAMESPACES, key[0])
        if self._store.get(resource, key):
            raise already_exists(resource, key[1])
        if resource.has_status:
            obj.pop("status", None)
        return 201, whole(resource, self._store.put(resource, self._admission.admit(resource, obj)))

    def _update(self, write: Write) -> tuple[int, bytes]:
        old = self._present(write.target)
        return self._replace(write.target, old, _placed(_decoded(write.body), write.target))

    def _patch(self, write: Write) -> tuple[int, bytes]:
        content_type = write.content_type.partition(";")[0].strip()
        if content_type in APPLIED:
            return self._server_side_apply(write)
        if content_type not in MERGED_AS_SUCH:
            raise ApiError(415, f"the body of the request was in an unknown format: {content_type}")
        old = self._present(write.target)
        merged = merge_patch(old.object, _decoded(write.body))
        return self._replace(write.target, old, _placed(merged, write.target))

    def _server_side_apply(self, write: Write) -> tuple[int, bytes]:
        """One manager owns everything here, so applying merges over what is there."""
        applied = yaml.safe_load(write.body)
        if not isinstance(applied, dict):
            raise bad_request("the body is no object")
        target = write.target
        old = self._store.get(target.resource, (target.namespace, target.name))
        if old is None:
            return self._create_object(evolve(target, name=""), _placed(applied, target))
        return self._replace(target, old, _placed(merge_patch(old.object, applied), target))

    def _replace(self, target: Target, old: Stored, obj: dict[str, Any]) -> tuple[int, bytes]:
        resource = target.resource
        version = obj["metadata"].get("resourceVersion")
        if version and version != str(old.version):
            raise conflict(resource, target.name)
        if target.subresource == "status":
            obj = {**old.object, "status": obj.get("status") or {}}
        elif resource.has_status:
            obj = {**obj, "status": old.object.get("status") or {}}
        admitted = self._admission.admit(resource, obj)
        if _same(old.object, admitted):
            return 200, whole(resource, old)  # the API server writes nothing when nothing would change
        return 200, whole(resource, self._store.put(resource, admitted))

    def _delete(self, write: Write) -> tuple[int, bytes]:
        target = write.target
        if target.name:
            self._present(target)
            self._store.delete(target.resource, (target.namespace, target.name))
        else:
            wanted = selection(target, write.query)
            doomed = [stored.key for stored in self._store[target.resource].sorted() if wanted.selects(stored)]
            for key in doomed:
                self._store.delete(target.resource, key)
        return 200, msgspec.json.encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}) + b"\n"

    def _present(self, target: Target) -> Stored:
        found = self._store.get(target.resource, (target.namespace, target.name))
        if found is None:
            raise not_found(target.resource, target.name)
        return found


def resource_of(obj: Object) -> Resource:
    """Find the resource by apiVersion and kind. Raises ApiError when it is not served."""
    resource = BY_KIND.get((obj.get("apiVersion", ""), obj.get("kind", "")))
    if resource is None:
        raise bad_request(f'no matches for kind "{obj.get("kind")}" in version "{obj.get("apiVersion")}"')
    return resource


def merge_patch(old: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(old) if isinstance(old, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        obj = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error
    if not isinstance(obj, dict):
        raise bad_request("the object provided is unrecognized")
    return obj


def _placed(obj: dict[str, Any], target: Target) -> dict[str, Any]:
    """Put the names of the path into the object. Raises ApiError when it says otherwise."""
    metadata = dict(obj.get("metadata") or {})
    for field, name in (("namespace", target.namespace), ("name", target.name)):
        if name and metadata.setdefault(field, name) != name:
            raise bad_request(f"the {field} of the provided object does not match the {field} sent on the request")
    if target.resource.namespaced:
        metadata.setdefault("namespace", "default")
    return {**obj, "metadata": metadata}


def _same(old: Object, new: Object) -> bool:
    def content(obj: Object) -> dict[str, Any]:
        left_out = ("kind", "apiVersion")
        server = ("resourceVersion", "generation", "managedFields", "uid", "creationTimestamp")
        metadata = {name: value for name, value in obj["metadata"].items() if name not in server}
        return {**{name: value for name, value in obj.items() if name not in left_out}, "metadata": metadata}

    return content(old) == content(new)
