"""Decodes API objects, as JSON bytes or plain data, into model values; what is odd becomes Diagnostics, never an exception.

Well-formed bytes go straight into msgspec structs and from there into the model. Where that fails, the one object concerned is
decoded again part by part (see :mod:`~kproxy_core.sources.repair`).
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from attrs import field, frozen

from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.names import ObjectName
from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.api_types import (
    Wire,
    WireEndpoints,
    WireEndpointSlice,
    WireMeta,
    WireNode,
    WireObject,
    WireService,
    WireServiceCIDR,
)
from kproxy_core.sources.complaints import Complaints
from kproxy_core.sources.decode_node import node_of, service_cidr_of
from kproxy_core.sources.decode_service import service_of
from kproxy_core.sources.decode_slice import slice_of, slices_of_endpoints
from kproxy_core.sources.repair import Complaint, Repaired, as_unicode, convert
from kproxy_core.sources.spelling import nearest

W = TypeVar("W", bound=WireObject)

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class UnreadableError(ValueError):
    """Bytes that are no JSON document, or no list where one was asked for: the request has failed, not the data."""


class ObjectMeta(NamedTuple):
    """What a watch needs to know of an object, whether or not the proxy has a use for it."""

    kind: str
    name: ObjectName
    uid: str = ""
    resource_version: str = ""

    @property
    def subject(self) -> str:
        """How Diagnostics call it."""
        return f"{self.kind} {self.name}"


@frozen(kw_only=True)
class Decoded:
    """One decoded object.

    ``objects`` is empty when the proxy has no use for it, and may hold several EndpointSlices for Endpoints. ``meta`` is None
    when not even the name could be read. ``repaired`` tells that parts were malformed and left out, so that an earlier value may
    be the better one. ``place`` is where it is written, if that is a file.
    """

    meta: ObjectMeta | None = None
    objects: tuple[WatchedObject, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    repaired: bool = False
    place: str = ""


@frozen(kw_only=True)
class DecodedList:
    """The items of a list body; ``continue_token`` is empty on the last page."""

    objects: tuple[WatchedObject, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    resource_version: str = ""
    continue_token: str = ""


class _ListMeta(Wire, frozen=True):
    resource_version: str = ""
    continue_: str | None = msgspec.field(name="continue", default=None)


class _List(Wire, frozen=True):
    items: list[msgspec.Raw] | None
    metadata: _ListMeta = _ListMeta()


class _OddList(Wire, frozen=True):
    items: list[Any] | None
    metadata: _ListMeta = _ListMeta()


_LIST: Final = msgspec.json.Decoder(_List)


class _TypeMeta(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""


@frozen
class Codec(Generic[W]):
    """How one API kind is decoded: its wire type, and what makes model values of it."""

    kind: str
    wire_type: type[W]
    build: Callable[[W, ObjectName, Complaints, Repaired[W] | None], tuple[WatchedObject, ...]]
    namespaced: bool = True
    decoder: msgspec.json.Decoder[W] = field(init=False)

    @decoder.default
    def _make_decoder(self) -> msgspec.json.Decoder[W]:
        return msgspec.json.Decoder(self.wire_type)


def _build_service(
    wire: WireService, name: ObjectName, complaints: Complaints, repaired: Repaired[WireService] | None
) -> tuple[WatchedObject, ...]:
    ranges_lost = repaired is not None and repaired.lost("spec", "loadBalancerSourceRanges")
    return (service_of(wire, name, complaints, ranges_lost=ranges_lost),)


def _build_slice(
    wire: WireEndpointSlice, name: ObjectName, complaints: Complaints, _: Repaired[WireEndpointSlice] | None
) -> tuple[WatchedObject, ...]:
    made = slice_of(wire, name, complaints)
    return () if made is None else (made,)


SERVICES: Final = Codec("Service", WireService, _build_service)
ENDPOINT_SLICES: Final = Codec("EndpointSlice", WireEndpointSlice, _build_slice)
ENDPOINTS: Final = Codec("Endpoints", WireEndpoints, lambda wire, name, told, _: slices_of_endpoints(wire, name, told))
NODES: Final = Codec("Node", WireNode, lambda wire, name, told, _: (node_of(wire, name.name, told),), namespaced=False)
SERVICE_CIDRS: Final = Codec(
    "ServiceCIDR", WireServiceCIDR, lambda wire, name, told, _: (service_cidr_of(wire, name.name, told),), namespaced=False
)

AnyCodec = Codec[Any]

CODECS: Final[Mapping[tuple[str, str], AnyCodec]] = {
    ("v1", "Service"): SERVICES,
    ("v1", "Endpoints"): ENDPOINTS,
    ("v1", "Node"): NODES,
    ("discovery.k8s.io/v1", "EndpointSlice"): ENDPOINT_SLICES,
    ("networking.k8s.io/v1", "ServiceCIDR"): SERVICE_CIDRS,
    ("networking.k8s.io/v1beta1", "ServiceCIDR"): SERVICE_CIDRS,
}
"""By apiVersion and kind."""

WATCHED: Final[Mapping[Kind, AnyCodec]] = {
    Kind.SERVICE: SERVICES,
    Kind.ENDPOINT_SLICE: ENDPOINT_SLICES,
    Kind.NODE: NODES,
    Kind.SERVICE_CIDR: SERVICE_CIDRS,
}
"""The codec of each kind that is watched at an API server."""


def decode_object(body: bytes | msgspec.Raw, codec: AnyCodec | None = None) -> Decoded:
    """Decode one object from JSON; ``codec`` is what a watch knows already, otherwise apiVersion and kind tell.

    Raises :class:`UnreadableError` when ``body`` is not JSON at all.
    """
    if codec is None:
        return decode_data(load_json(bytes(body)))
    try:
        wire = codec.decoder.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return _decode_repaired(load_json(bytes(body)), codec)
    return _built(codec, wire, None)


def decode_data(data: object) -> Decoded:
    """Decode one object from plain data, as a YAML loader gives it."""
    try:
        meta = msgspec.convert(data, _TypeMeta)
    except msgspec.ValidationError:
        meta = _TypeMeta()
    except UnicodeEncodeError:
        return decode_data(as_unicode(data))
    codec = CODECS.get((meta.api_version, meta.kind))
    return _unknown(data, meta) if codec is None else _decode_repaired(data, codec)


def decode_list(body: bytes, codec: AnyCodec) -> DecodedList:
    """Decode the body of a list request, item by item, so that only one item at a time is there in two forms.

    Raises :class:`UnreadableError` when it is not a complete JSON list object: a torn body must not look like a short list.
    """
    try:
        decoded = _LIST.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return _decode_odd_list(body, codec)
    return _listed((decode_object(raw, codec) for raw in decoded.items or ()), decoded.metadata)


def _decode_odd_list(body: bytes, codec: AnyCodec) -> DecodedList:
    """Decode a list that the fast parser refuses as a whole, for a single broken character perhaps."""
    repaired = convert(load_json(body), _OddList)
    if repaired.value is None:
        raise UnreadableError("not a list of objects")
    return _listed((_decode_repaired(item, codec) for item in repaired.value.items or ()), repaired.value.metadata)


def _listed(decoded: Iterable[Decoded], meta: _ListMeta) -> DecodedList:
    told: list[Diagnostic] = []
    objects: list[WatchedObject] = []
    for item in decoded:
        objects.extend(item.objects)
        told.extend(item.diagnostics)
    return DecodedList(
        objects=tuple(objects),
        diagnostics=tuple(told),
        resource_version=meta.resource_version,
        continue_token=meta.continue_ or "",
    )


def load_json(body: bytes) -> object:
    """Read JSON, also where a number is beyond all bounds or a string is not quite Unicode.

    Raises :class:`UnreadableError`, with line and column, when it is no JSON.
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"not JSON: {error}") from error


def _decode_repaired(data: object, codec: Codec[W]) -> Decoded:
    repaired = convert(data, codec.wire_type)
    if repaired.value is None:
        return _beyond_repair(codec.kind, repaired.complaints)
    return _built(codec, repaired.value, repaired)


def _beyond_repair(kind: str, malformed: Iterable[Complaint]) -> Decoded:
    return Decoded(diagnostics=Complaints(kind, "without a name", malformed).told)


def _built(codec: Codec[W], wire: W, repaired: Repaired[W] | None) -> Decoded:
    name = _name(wire.metadata, codec.namespaced)
    complaints = Complaints(codec.kind, name, repaired.complaints if repaired else ())
    fault = _name_fault(name, codec.namespaced)
    if fault:
        complaints.add(fault, "no valid name; the object is left out", "use lower-case letters, digits and dashes")
        return Decoded(diagnostics=complaints.told)
    objects = codec.build(wire, name, complaints, repaired)
    meta = ObjectMeta(codec.kind, name, wire.metadata.uid, wire.metadata.resource_version)
    return Decoded(
        meta=meta, objects=objects, diagnostics=complaints.told, repaired=repaired is not None and bool(repaired.complaints)
    )


def _name(meta: WireMeta, namespaced: bool) -> ObjectName:
    """The name; the namespace is ``default`` where a namespaced object has none, as for kubectl."""
    return ObjectName(sys.intern(meta.namespace or "default") if namespaced else "", sys.intern(meta.name))


def _name_fault(name: ObjectName, namespaced: bool) -> str:
    if _NAME.fullmatch(name.name) is None:
        return "metadata.name"
    return "metadata.namespace" if namespaced and _NAMESPACE.fullmatch(name.namespace) is None else ""


def _unknown(data: object, meta: _TypeMeta) -> Decoded:
    """What no codec is for: of no concern to a proxy, or a slip of the pen, which would silently cost a Service."""
    metadata = data.get("metadata") if isinstance(data, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    if meta.kind:
        subject = f"{meta.kind} without a name" if name is None else f"{meta.kind} {namespace or 'default'}/{name}"
        return Decoded(diagnostics=(misspelt_kind(meta.api_version, meta.kind, subject) or _of_no_concern(meta, subject),))
    near = next((str(key) for key in data if nearest(str(key), ["kind"])), "") if isinstance(data, dict) else ""
    note = Diagnostic(
        severity=Severity.ERROR,
        subject="object" if name is None else f"object {name}",
        message=f"no kind, but {near!r}; left out" if near not in ("", "kind") else "no kind; left out",
        remedy="write a mapping with apiVersion, kind and metadata",
    )
    return Decoded(diagnostics=(note,))


def _of_no_concern(meta: _TypeMeta, subject: str) -> Diagnostic:
    version = meta.api_version or "no apiVersion"
    message = f"objects of kind {meta.kind} in {version} do not concern the proxy"
    return Diagnostic(severity=Severity.NOTE, subject=subject, message=message)


def misspelt_kind(api_version: str, kind: str, subject: str) -> Diagnostic | None:
    """Tell of a kind or apiVersion that is probably meant to be one of those that are read; None for one of no concern.

    Other API groups may have a kind of the same name: Knative has a Service, too.
    """
    versions = {known: version for version, known in reversed(tuple(CODECS))}
    near = kind if kind in versions else nearest(kind, versions, ALIKE_KINDS)
    if not near:
        return None
    wanted = versions[near]
    everywhere = [version for version, _ in CODECS]
    if api_version and not (_group(api_version) == _group(wanted) or nearest(api_version, everywhere)):
        return None
    if near != kind:
        message, remedy = f"there is no kind {kind}; left out", f"did you mean {near}?"
    elif api_version:
        message, remedy = f"kind {kind} is not read in apiVersion {api_version}; left out", f"write apiVersion: {wanted}"
    else:
        message, remedy = "no apiVersion; left out", f"write apiVersion: {wanted}"
    return Diagnostic(severity=Severity.ERROR, subject=subject, message=message, remedy=remedy)


ALIKE_KINDS: Final = 0.75
"""As much must two kinds agree; those of one API group that are of no concern, such as ServiceAccount, are less alike."""


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]
