"""Refuses dangerous data before a mode sees it: special addresses, frontends that would cut off the node or the API server."""

from collections.abc import Collection
from operator import itemgetter

from kproxy_core.model.addresses import Address
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.flows import FrontendKey
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import EndpointSlice, SliceEndpoint
from kproxy_core.model.packed import Packed, packed
from kproxy_core.model.state import FrontendKind, NodeContext

API_SERVER_SERVICE = ObjectName("default", "kubernetes")
"""The Service of the API server; its endpoints are what no other Service may take over."""

_first = itemgetter(0)
_UNSPECIFIED = {bytes(4), bytes(16)}
_LOOPBACK_V6 = bytes(15) + b"\x01"
_BROADCAST = b"\xff\xff\xff\xff"
_SUSPICIOUS = {4: frozenset({0, 127, 169, *range(224, 256)}), 16: frozenset({0, 0xFE, 0xFF})}


def special_use(address: Address) -> str:
    """Say which special use an address has that no endpoint and no frontend may have; empty for ordinary addresses.

    These are the ranges that the API server refuses for Endpoints, and the broadcast address (RFC 6890).
    """
    if address[0] not in _SUSPICIOUS[len(address)]:
        return ""
    return _special_ipv4(address) if len(address) == 4 else _special_ipv6(address)


def _special_ipv4(address: Address) -> str:
    if address in _UNSPECIFIED:
        return "unspecified"
    if address[0] == 127:
        return "loopback"
    if address[0] == 169:
        return "link-local" if address[1] == 254 else ""
    if address == _BROADCAST:
        return "broadcast"
    # Not 240.0.0.0/4: it is reserved on paper, and the pods of some clouds have addresses in it.
    return "multicast" if 224 <= address[0] < 240 else ""


def _special_ipv6(address: Address) -> str:
    if address in _UNSPECIFIED:
        return "unspecified"
    if address == _LOOPBACK_V6:
        return "loopback"
    if address[0] == 0xFF:
        return "multicast"
    return "link-local" if address[0] == 0xFE and address[1] & 0xC0 == 0x80 else ""


def safe_endpoints(part: EndpointSlice, diagnostics: list[Diagnostic]) -> Packed[SliceEndpoint]:
    """Return the endpoints of a slice without those at special addresses, or of another family, told to ``diagnostics``."""
    size = part.family.bits // 8
    suspicious = _SUSPICIOUS[size]
    addresses = part.endpoints.addresses
    if all(length == size for length in set(map(len, addresses))) and suspicious.isdisjoint(map(_first, addresses)):
        return part.endpoints
    safe = []
    for endpoint in part.endpoints:
        use = special_use(endpoint.address)
        if use:
            remedy = "use an address of the pod or host that other nodes can reach"
            diagnostics.append(_left_out(part, endpoint, f"is a {use} address", remedy))
        elif len(endpoint.address) != size:
            remedy = "put it into a slice of its own family"
            diagnostics.append(_left_out(part, endpoint, f"is in a slice of type {part.family.label}", remedy))
        else:
            safe.append(endpoint)
    return packed(safe)


def _left_out(part: EndpointSlice, endpoint: SliceEndpoint, reason: str, remedy: str) -> Diagnostic:
    return Diagnostic(
        severity=Severity.ERROR,
        subject=part.subject,
        field="endpoints",
        message=f"endpoint {endpoint.address} {reason} and is left out",
        remedy=remedy,
    )


def refusal(service: ObjectName, kind: FrontendKind, key: FrontendKey, node: NodeContext, protected: Collection[int]) -> str:
    """Say why a Service must not have this frontend; empty if it may.

    ``protected`` are TCP ports of the node itself, and the API server's place is its own Service's. A cluster address must be
    nothing else, because the ports that it does not serve are refused.
    """
    address = key.address
    if address is not None:
        use = special_use(address)
        if use:
            return f"it is a {use} address"
        if kind is FrontendKind.CLUSTER_IP and _is_host(address, node):
            return "it is the address of a host, whose other ports would no longer answer"
    if key.protocol is not Protocol.TCP:
        return ""
    if service != API_SERVER_SERVICE and any(_leads_to(key, server, node) for server in node.api_servers):
        return "it is where the API server answers"
    if key.port in protected and (address is None or address in node.addresses):
        return f"TCP port {key.port} of the node itself is protected"
    return ""


def _leads_to(key: FrontendKey, server: tuple[Address, int], node: NodeContext) -> bool:
    """Whether who dials ``server`` dials this frontend; a NodePort stands for the node's addresses of its family."""
    address, port = server
    if port != key.port or address.family is not key.family:
        return False
    return address == key.address if key.address is not None else address in node.addresses


def _is_host(address: Address, node: NodeContext) -> bool:
    """Whether this node or an API server has the address."""
    return address in node.addresses or any(address == server for server, _ in node.api_servers)
