"""Finds misspelt and misplaced fields in manifests; what people type is checked here, what an API server sends needs no check.

Every field that the Kubernetes API has is known here (1.36, and those it had before), also those that a proxy does not read, so
that only what is no field at all is told: nobody validates a manifest that goes straight to the proxy.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from attrs import evolve, frozen

from kproxy_core.model.diagnostics import Diagnostic, Severity

Fields = Mapping[str, "Fields | None"]
"""The fields of an object; below each those of its value, or of the items of its list. None: anything goes."""

ALIKE: Final = 0.8
"""How much of a name must agree to be taken for a slip: ``nodePorts`` and ``nodePort`` do, ``hostname`` and
``nodeName`` do not."""


def _plain(names: str) -> dict[str, "Fields | None"]:
    return dict.fromkeys(names.split(), None)


_META: Final = _plain(
    "name generateName namespace selfLink uid resourceVersion generation creationTimestamp deletionTimestamp"
    " deletionGracePeriodSeconds labels annotations ownerReferences finalizers managedFields clusterName"
)
_ROOT: Final[Fields] = {"apiVersion": None, "kind": None, "metadata": _META}
_PORT: Final = _plain("name protocol port appProtocol")
_ZONES: Final = {"forZones": _plain("name"), "forNodes": _plain("name")}
_SUBSET_ADDRESS: Final = _plain("ip hostname nodeName targetRef")

_SERVICE_SPEC: Final[Fields] = {
    **_plain(
        "selector clusterIP clusterIPs type externalIPs sessionAffinity loadBalancerIP loadBalancerSourceRanges externalName"
        " externalTrafficPolicy healthCheckNodePort publishNotReadyAddresses ipFamily ipFamilies ipFamilyPolicy loadBalancerClass"
        " allocateLoadBalancerNodePorts internalTrafficPolicy trafficDistribution topologyKeys"
    ),
    "ports": {**_PORT, **_plain("targetPort nodePort")},
    "sessionAffinityConfig": {"clientIP": _plain("timeoutSeconds")},
}
_SERVICE_STATUS: Final[Fields] = {
    "conditions": None,
    "loadBalancer": {"ingress": {**_plain("ip hostname ipMode"), "ports": _plain("port protocol error")}},
}
_ENDPOINT: Final[Fields] = {
    **_plain("addresses hostname targetRef deprecatedTopology topology nodeName zone"),
    "conditions": _plain("ready serving terminating"),
    "hints": _ZONES,
}
_NODE_SPEC: Final[Fields] = {
    **_plain("podCIDR podCIDRs providerID unschedulable configSource externalID"),
    "taints": _plain("key value effect timeAdded"),
}
_NODE_STATUS: Final[Fields] = {
    **_plain(
        "capacity allocatable phase conditions daemonEndpoints nodeInfo images volumesInUse volumesAttached config "
        "runtimeHandlers features declaredFeatures"
    ),
    "addresses": _plain("type address"),
}

OBJECTS: Final[Mapping[str, Fields]] = {
    "Service": {**_ROOT, "spec": _SERVICE_SPEC, "status": _SERVICE_STATUS},
    "EndpointSlice": {**_ROOT, "addressType": None, "endpoints": _ENDPOINT, "ports": _PORT},
    "Endpoints": {
        **_ROOT,
        "subsets": {"addresses": _SUBSET_ADDRESS, "notReadyAddresses": _SUBSET_ADDRESS, "ports": _PORT},
    },
    "Node": {**_ROOT, "spec": _NODE_SPEC, "status": _NODE_STATUS},
    "ServiceCIDR": {**_ROOT, "spec": _plain("cidrs"), "status": _plain("conditions")},
}
"""All fields of each kind that a source reads."""


def nearest(name: str, known: Iterable[str], alike: float = ALIKE) -> str:
    """The known name that ``name`` is most likely a slip for, whatever its capitals; empty when there is none."""
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=alike)
    return by_lower[found[0]] if found else ""


@frozen
class _Stranger:
    """A key that is no field: where it is first (``field``), how often, and the fields that are there."""

    field: str
    name: str
    known: Fields
    times: int = 1


def misspelt(data: object, kind: str, subject: str) -> Iterator[Diagnostic]:
    """Tell of fields of an object that are none, but much like one there, or one of another part of it.

    ``data`` may be anything that a YAML or JSON file holds; ``subject`` is how the object is called. A slip that is repeated in
    all items of a list is told once.
    """
    fields = OBJECTS[kind]
    found: dict[str, _Stranger] = {}
    _look(data, fields, ("", ""), found, set())
    for stranger in found.values():
        near = nearest(stranger.name, stranger.known)
        home = "" if near else _home(stranger.name, fields)
        if near or home:
            more = f" (nor the {stranger.times - 1} more like it)" if stranger.times > 1 else ""
            yield Diagnostic(
                severity=Severity.WARNING,
                subject=subject,
                field=stranger.field,
                message=f"there is no such field, and it is not read{more}",
                remedy=f"did you mean {near}?" if near else f"it belongs to {home}",
            )


def _look(data: object, fields: Fields, path: tuple[str, str], found: dict[str, _Stranger], seen: set[int]) -> None:
    """Collect the keys that are no fields. ``path`` is the one of this item, then the one that all items of its list share."""
    # Anchors of YAML can repeat an object without end.
    if not isinstance(data, dict | list) or id(data) in seen:
        return
    seen.add(id(data))
    exact, shared = path
    if isinstance(data, list):
        for index, item in enumerate(data):
            if isinstance(item, dict):
                _look(item, fields, (f"{exact.removesuffix('.')}[{index}].", shared), found, seen)
        return
    for name, value in data.items():
        if name in fields:
            below = fields[name]
            if below is not None:
                _look(value, below, (f"{exact}{name}.", f"{shared}{name}."), found, seen)
        elif isinstance(name, str):
            before = found.get(f"{shared}{name}")
            again = evolve(before, times=before.times + 1) if before else _Stranger(f"{exact}{name}", name, fields)
            found[f"{shared}{name}"] = again


def _home(name: str, fields: Fields, path: str = "") -> str:
    """Where a field of exactly this name is at home, for those that are indented too little or too much."""
    for parent, below in fields.items():
        if below is not None:
            if name in below:
                return f"{path}{parent}"
            deeper = _home(name, below, f"{path}{parent}.")
            if deeper:
                return deeper
    return ""
