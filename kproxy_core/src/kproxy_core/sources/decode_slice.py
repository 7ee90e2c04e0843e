"""Makes model EndpointSlices of decoded ones, and of the older Endpoints."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from kproxy_core.model.addresses import Family, parse_address
from kproxy_core.model.diagnostics import Severity
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import (
    HEADLESS_LABEL,
    SERVICE_NAME_LABEL,
    TRIGGER_TIME_ANNOTATION,
    EndpointSlice,
    SliceEndpoint,
    SlicePort,
)
from kproxy_core.model.packed import MOST_KINDS, NOWHERE, Packed, kind_of
from kproxy_core.sources.api_types import (
    WireConditions,
    WireEndpoint,
    WireEndpointAddress,
    WireEndpoints,
    WireEndpointSlice,
    WireHint,
    WireMeta,
    WirePort,
    WireSubset,
)
from kproxy_core.sources.complaints import Complaints
from kproxy_core.sources.decode_service import protocol_of

_FAMILIES: Final[Mapping[str, Family]] = {family.label: family for family in Family}
_NO_HINTS: Final[frozenset[str]] = frozenset()
_FIELDS: Final = SliceEndpoint.__struct_fields__[1:]
_NO_CONDITIONS: Final = WireConditions()


def slice_of(wire: WireEndpointSlice, name: ObjectName, complaints: Complaints) -> EndpointSlice | None:
    """Make the EndpointSlice; None if the proxy has no use for it: of host names, of a headless Service, without an owner."""
    labels = wire.metadata.labels or {}
    if HEADLESS_LABEL in labels or wire.address_type == "FQDN":
        return None
    family = _FAMILIES.get(wire.address_type)
    if family is None:
        complaints.add("addressType", f"{wire.address_type!r} is unknown; the slice is left out", "write IPv4 or IPv6")
        return None
    owner = labels.get(SERVICE_NAME_LABEL)
    if not owner:
        complaints.add(
            f"metadata.labels[{SERVICE_NAME_LABEL}]",
            "no Service is named; the slice is left out",
            "name the Service in this label",
        )
        return None
    return EndpointSlice(
        name=name,
        service=ObjectName(name.namespace, sys.intern(owner)),
        family=family,
        endpoints=_endpoints(wire.endpoints or (), family, complaints),
        ports=(_known_ports(tuple(wire.ports)) or tuple(_ports(wire.ports, "ports", complaints))) if wire.ports else (),
        trigger_time=_trigger_time(wire.metadata, complaints),
    )


def _endpoints(wires: Sequence[WireEndpoint | None], family: Family, complaints: Complaints) -> Packed[SliceEndpoint]:
    size = family.bits // 8
    addresses: list[bytes] = []
    kinds: list[SliceEndpoint] = []
    for index, wire in enumerate(wires):
        if wire is None:
            continue
        # Only the first address counts: the others were never used (and are to be the same endpoint's).
        text = wire.addresses[0] if wire.addresses else ""
        if text is None:
            continue
        try:
            address = parse_address(text)
        except ValueError as error:
            complaints.add(
                f"endpoints[{index}].addresses[0]", f"{error}; the endpoint is left out", f"write an {family.label} address"
            )
            continue
        if len(address) != size:
            message = f"{address} is left out: the slice is of type {family.label}"
            complaints.add(f"endpoints[{index}].addresses[0]", message, "put it into a slice of its own family")
            continue
        conditions = wire.conditions or _NO_CONDITIONS
        hints = wire.hints
        addresses.append(address)
        kinds.append(
            _kind(
                conditions.ready is not False,
                conditions.serving is not False,
                conditions.terminating is True,
                wire.node_name or "",
                _hints(hints.for_zones) if hints else _NO_HINTS,
                _hints(hints.for_nodes) if hints else _NO_HINTS,
            )
        )
    return Packed(addresses, kinds)


@lru_cache(maxsize=MOST_KINDS)
def _kind(*values: Any) -> SliceEndpoint:
    """Return the kind of endpoint that has these values: the fields after the address, in their order."""
    return kind_of(SliceEndpoint(address=NOWHERE, **dict(zip(_FIELDS, values, strict=True))))


def _hints(wires: Iterable[WireHint | None] | None) -> frozenset[str]:
    return _names(tuple([wire.name for wire in wires if wire and wire.name])) if wires else _NO_HINTS


@lru_cache(maxsize=1024)
def _names(names: tuple[str, ...]) -> frozenset[str]:
    """One set for all endpoints with the same hints: there are few zones and very many endpoints."""
    return frozenset(map(sys.intern, names))


@lru_cache(maxsize=1024)
def _known_ports(wires: tuple[WirePort | None, ...]) -> tuple[SlicePort, ...]:
    """One tuple for all slices with the same ports, most of which are alike; empty where there is something to complain about."""
    complaints = Complaints("EndpointSlice", "")
    ports = tuple(_ports(wires, "ports", complaints))
    return () if complaints.told else ports


def _ports(wires: Sequence[WirePort | None], path: str, complaints: Complaints) -> Iterator[SlicePort]:
    seen: set[str] = set()
    for index, wire in enumerate(wires):
        # No port means all ports, which no Service port can use.
        if wire is None or not wire.port:
            continue
        place = f"{path}[{index}]"
        name = sys.intern(wire.name or "")
        protocol = protocol_of(wire.protocol, place, complaints)
        if protocol is None:
            continue
        if not 1 <= wire.port <= 65535:
            complaints.add(f"{place}.port", f"{wire.port} is no port; the entry is left out", "write a number from 1 to 65535")
        elif name in seen:
            complaints.add(f"{place}.name", f"a second port {name!r} is left out", "give each port a name of its own")
        else:
            seen.add(name)
            yield SlicePort(name=name, protocol=protocol, port=wire.port)


def _trigger_time(meta: WireMeta, complaints: Complaints) -> float | None:
    text = (meta.annotations or {}).get(TRIGGER_TIME_ANNOTATION)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        field = f"metadata.annotations[{TRIGGER_TIME_ANNOTATION}]"
        complaints.add(field, f"{text!r} is no time; ignored", "write a time such as 2026-01-31T12:00:00Z", Severity.NOTE)
        return None


def slices_of_endpoints(wire: WireEndpoints, name: ObjectName, complaints: Complaints) -> tuple[EndpointSlice, ...]:
    """Make EndpointSlices of Endpoints, as the mirroring controller does: one for each subset and family."""
    labels = wire.metadata.labels or {}
    if HEADLESS_LABEL in labels:
        return ()
    trigger_time = _trigger_time(wire.metadata, complaints)
    made: list[EndpointSlice] = []
    for index, subset in enumerate(wire.subsets or ()):
        if subset is None:
            continue
        path = f"subsets[{index}]"
        ports = tuple(_ports(subset.ports or (), f"{path}.ports", complaints))
        by_family: dict[Family, list[SliceEndpoint]] = {}
        for endpoint in _subset_endpoints(subset, path, complaints):
            by_family.setdefault(endpoint.address.family, []).append(endpoint)
        made.extend(
            EndpointSlice(
                name=ObjectName(name.namespace, f"{name.name}-endpoints-{index}-{family.label.lower()}"),
                service=name,
                family=family,
                endpoints=tuple(endpoints),
                ports=ports,
                trigger_time=trigger_time,
            )
            for family, endpoints in sorted(by_family.items())
        )
    return tuple(made)


def _subset_endpoints(subset: WireSubset, path: str, complaints: Complaints) -> Iterator[SliceEndpoint]:
    lists: list[tuple[str, bool, Sequence[WireEndpointAddress | None]]] = [
        ("addresses", True, subset.addresses or ()),
        ("notReadyAddresses", False, subset.not_ready_addresses or ()),
    ]
    for field, ready, wires in lists:
        for index, wire in enumerate(wires):
            if wire is None:
                continue
            try:
                address = parse_address(wire.ip)
            except ValueError as error:
                complaints.add(f"{path}.{field}[{index}].ip", f"{error}; the endpoint is left out", "write an IP address")
                continue
            yield SliceEndpoint(address=address, ready=ready, serving=ready, node_name=sys.intern(wire.node_name or ""))
