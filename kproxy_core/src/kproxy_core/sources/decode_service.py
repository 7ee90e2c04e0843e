"""Makes model Services of decoded ones, and tells what the API server would have refused."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Final, TypeVar

from kproxy_core.model.addresses import Address, Family, Network, host_network, parse_address, parse_network
from kproxy_core.model.diagnostics import Severity
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import (
    DEFAULT_AFFINITY_TIMEOUT,
    HEADLESS_LABEL,
    SCHEDULER_ANNOTATION,
    SERVICE_PROXY_NAME_LABEL,
    WEIGHTS_ANNOTATION,
    LoadBalancerIngress,
    Service,
    ServicePortSpec,
    ServiceType,
    TrafficPolicy,
)
from kproxy_core.sources.api_types import WireIngress, WireMeta, WireService, WireServicePort, WireServiceSpec
from kproxy_core.sources.complaints import Complaints
from kproxy_core.sources.weights import parse_weights

E = TypeVar("E", bound=Enum)

LONGEST_AFFINITY: Final = 86400
"""Seconds; the API server's upper limit for ``timeoutSeconds``."""

PROTOCOLS: Final[Mapping[str, Protocol]] = {protocol.name: protocol for protocol in Protocol}

_TYPES: Final = {kind.value: kind for kind in ServiceType}
_POLICIES: Final = {policy.value: policy for policy in TrafficPolicy}
_FAMILIES: Final = {family.label: family for family in Family}
# Up to Python 3.11, to name a member of an enumeration by its class takes half a microsecond.
_CLUSTER_IP: Final = ServiceType.CLUSTER_IP
_CLUSTER: Final = TrafficPolicy.CLUSTER
_NO_WEIGHTS: Final[Mapping[str, int]] = {}
_PORT_NAME: Final = re.compile(r"[A-Za-z0-9._-]{0,63}")
_NOBODY: Final = {Family.IPV4: host_network(Address(bytes(4))), Family.IPV6: host_network(Address(bytes(16)))}
"""A range without a possible source: no packet comes from the unspecified address."""


def service_of(wire: WireService, name: ObjectName, complaints: Complaints, *, ranges_lost: bool = False) -> Service:
    """Make the Service. ``ranges_lost`` says that source ranges were given and some could not even be decoded."""
    spec = wire.spec or WireServiceSpec()
    meta = wire.metadata
    labels, annotations = meta.labels or {}, meta.annotations or {}
    cluster_ips, headless = _cluster_ips(spec, complaints)
    balancer = wire.status.load_balancer if wire.status else None
    return Service(
        name=name,
        uid=meta.uid,
        created=_created(meta),
        type=_chosen(spec.type, _TYPES, _CLUSTER_IP, "spec.type", complaints),
        cluster_ips=cluster_ips,
        external_ips=tuple(_addresses(spec.external_ips, "spec.externalIPs", complaints)) if spec.external_ips else (),
        ingress=tuple(_ingress(balancer.ingress, complaints)) if balancer and balancer.ingress else (),
        ports=(_known_ports(tuple(spec.ports)) or tuple(_ports(spec.ports, complaints))) if spec.ports else (),
        affinity_timeout=_affinity_timeout(spec, complaints),
        internal_policy=_policy(spec.internal_traffic_policy, "spec.internalTrafficPolicy", complaints),
        external_policy=_policy(spec.external_traffic_policy, "spec.externalTrafficPolicy", complaints),
        source_ranges=_source_ranges(spec, ranges_lost, complaints),
        health_check_node_port=_optional_port(spec.health_check_node_port, "spec.healthCheckNodePort", complaints),
        proxy_name=labels.get(SERVICE_PROXY_NAME_LABEL),
        headless=headless or HEADLESS_LABEL in labels,
        weights=parse_weights(annotations[WEIGHTS_ANNOTATION], complaints) if WEIGHTS_ANNOTATION in annotations else _NO_WEIGHTS,
        scheduler=sys.intern(annotations[SCHEDULER_ANNOTATION].strip()) if SCHEDULER_ANNOTATION in annotations else "",
    )


def _created(meta: WireMeta) -> float:
    created = meta.creation_timestamp
    return float("inf") if created is None else _seconds(created)


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _chosen(text: str | None, choices: Mapping[str, E], default: E, field: str, complaints: Complaints) -> E:
    choice = choices.get(text) if text else default
    if choice is None:
        complaints.add(field, f"{text!r} is unknown; {default.value} is assumed", f"write one of {', '.join(choices)}")
        return default
    return choice


def _policy(text: str | None, field: str, complaints: Complaints) -> TrafficPolicy:
    return _chosen(text, _POLICIES, _CLUSTER, field, complaints)


def _addresses(texts: Iterable[str | None], field: str, complaints: Complaints, *, is_list: bool = True) -> Iterator[Address]:
    for index, text in enumerate(texts):
        if text is None:
            continue
        try:
            yield parse_address(text)
        except ValueError as error:
            complaints.add(
                f"{field}[{index}]" if is_list else field,
                f"{error}; left out",
                "write an address such as 10.0.0.1 or 2001:db8::1",
            )


def _cluster_ips(spec: WireServiceSpec, complaints: Complaints) -> tuple[tuple[Address, ...], bool]:
    """The cluster addresses, at most one a family, and whether the Service is headless."""
    texts, field = (spec.cluster_ips, "spec.clusterIPs") if spec.cluster_ips else ([spec.cluster_ip], "spec.clusterIP")
    if "None" in texts:
        return (), True
    chosen = _ip_families(spec.ip_families or (), complaints)
    found: dict[Family, Address] = {}
    for address in _addresses([text or None for text in texts], field, complaints, is_list=texts is spec.cluster_ips):
        family = address.family
        if chosen and family not in chosen:
            complaints.add(field, f"{address} is left out: spec.ipFamilies has no {family.label}", f"add {family.label} there")
        elif family in found:
            complaints.add(field, f"{address} is left out: {found[family]} is the {family.label} address", "keep one a family")
        else:
            found[family] = address
    return tuple(found.values()), False


def _ip_families(labels: Sequence[str | None], complaints: Complaints) -> set[Family]:
    found = set()
    for index, label in enumerate(labels):
        family = _FAMILIES.get(label) if label else None
        if family is not None:
            found.add(family)
        elif label is not None:
            complaints.add(f"spec.ipFamilies[{index}]", f"{label!r} is unknown; left out", "write IPv4 or IPv6")
    return found


@lru_cache(maxsize=1024)
def _known_ports(wires: tuple[WireServicePort | None, ...]) -> tuple[ServicePortSpec, ...]:
    """One tuple for all Services with the same ports: many are alike. Empty where there is something to complain about."""
    complaints = Complaints("Service", "")
    ports = tuple(_ports(wires, complaints))
    return () if complaints.told else ports


def _ports(wires: Sequence[WireServicePort | None], complaints: Complaints) -> Iterator[ServicePortSpec]:
    seen: set[str] = set()
    for index, wire in enumerate(wires):
        if wire is None:
            continue
        path = f"spec.ports[{index}]"
        name = sys.intern(wire.name or "")
        protocol = protocol_of(wire.protocol, path, complaints)
        if protocol is None:
            continue
        if not 1 <= wire.port <= 65535:
            complaints.add(f"{path}.port", f"{wire.port} is no port; the entry is left out", "write a number from 1 to 65535")
        elif _PORT_NAME.fullmatch(name) is None:
            complaints.add(f"{path}.name", f"{name!r} is no port name; the entry is left out", "use letters, digits and dashes")
        elif name in seen:
            complaints.add(f"{path}.name", f"a second port {name!r} is left out", "give each port a name of its own")
        else:
            seen.add(name)
            node_port = _optional_port(wire.node_port, f"{path}.nodePort", complaints)
            yield ServicePortSpec(name=name, protocol=protocol, port=wire.port, node_port=node_port)


def protocol_of(text: str | None, path: str, complaints: Complaints) -> Protocol | None:
    """The protocol of a port entry, TCP when none is given; None, and a complaint, when it is unknown."""
    protocol = PROTOCOLS.get(text or "TCP")
    if protocol is None:
        complaints.add(f"{path}.protocol", f"{text!r} is unknown; the entry is left out", "write TCP, UDP or SCTP")
    return protocol


def _optional_port(number: int | None, field: str, complaints: Complaints) -> int:
    if not number:
        return 0
    if not 1 <= number <= 65535:
        complaints.add(field, f"{number} is no port; left out", "write a number from 1 to 65535")
        return 0
    return number


def _affinity_timeout(spec: WireServiceSpec, complaints: Complaints) -> int | None:
    affinity = spec.session_affinity
    if not affinity or affinity == "None":
        return None
    if affinity != "ClientIP":
        complaints.add("spec.sessionAffinity", f"{affinity!r} is unknown; None is assumed", "write None or ClientIP")
        return None
    client_ip = spec.session_affinity_config.client_ip if spec.session_affinity_config else None
    timeout = client_ip.timeout_seconds if client_ip else None
    if timeout is None:
        return DEFAULT_AFFINITY_TIMEOUT
    if not 1 <= timeout <= LONGEST_AFFINITY:
        complaints.add(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            f"{timeout} is out of range; {DEFAULT_AFFINITY_TIMEOUT} seconds are assumed",
            f"write 1 to {LONGEST_AFFINITY} seconds",
        )
        return DEFAULT_AFFINITY_TIMEOUT
    return timeout


def _source_ranges(spec: WireServiceSpec, ranges_lost: bool, complaints: Complaints) -> tuple[Network, ...] | None:
    """The ranges; where some were given but none of a family could be read, nobody is let in rather than everybody."""
    texts = spec.load_balancer_source_ranges or ()
    if not texts and not ranges_lost:
        return None
    found: list[Network] = []
    unread: set[Family] = set()
    for index, text in enumerate(texts):
        if text is None:
            continue
        try:
            found.append(parse_network(text))
        except ValueError as error:
            field = f"spec.loadBalancerSourceRanges[{index}]"
            complaints.add(field, f"{error}; nobody is let in by it", "write a range such as 192.0.2.0/24")
            unread.add(Family.IPV6 if ":" in text else Family.IPV4)
    if not found:
        return ()
    # Ranges of the other family alone mean no filter; a slip of the pen must not.
    closed = (set(Family) if ranges_lost else unread) - {network.family for network in found}
    return (*found, *(_NOBODY[family] for family in sorted(closed)))


def _ingress(entries: Iterable[WireIngress | None], complaints: Complaints) -> Iterator[LoadBalancerIngress]:
    """The load balancer's addresses; entries with a host name only are none."""
    for index, entry in enumerate(entries):
        if entry is None or not entry.ip:
            continue
        path = f"status.loadBalancer.ingress[{index}]"
        mode = entry.ip_mode or "VIP"
        if mode not in ("VIP", "Proxy"):
            complaints.add(f"{path}.ipMode", f"{mode!r} is unknown; the address is left alone", "", Severity.WARNING)
        try:
            yield LoadBalancerIngress(address=parse_address(entry.ip), proxied=mode != "VIP")
        except ValueError as error:
            complaints.add(f"{path}.ip", f"{error}; left out")
