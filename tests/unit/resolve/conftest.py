"""Builders of small clusters, in the words of the tables."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from attrs import evolve

from kproxy_core.config.settings import Settings
from kproxy_core.model.addresses import Family, parse_address, parse_network
from kproxy_core.model.names import ObjectName, Protocol
from kproxy_core.model.objects import EndpointSlice, Service, ServicePortSpec, SliceEndpoint, SlicePort
from kproxy_core.model.state import LocalByNetwork, NodeContext
from kproxy_core.resolve.resolve import ResolvedService, resolve_service

WEB = ObjectName("shop", "web")
NODE = NodeContext(
    name="here",
    zone="east",
    addresses=(parse_address("192.0.2.1"), parse_address("2001:db8::1")),
    node_port_addresses=(parse_address("192.0.2.1"), parse_address("2001:db8::1")),
    local_detector=LocalByNetwork((parse_network("10.244.0.0/16"), parse_network("fd00:244::/32"))),
)


def _endpoint(text: str, **given: Any) -> SliceEndpoint:
    """``address [here] [notready] [terminating] [dead]``: ``dead`` is neither ready nor serving."""
    address, *words = text.split()
    return SliceEndpoint(
        **{
            "address": parse_address(address),
            "ready": not {"notready", "terminating", "dead"} & set(words),
            "serving": not {"notready", "dead"} & set(words),
            "terminating": "terminating" in words,
            "node_name": "here" if "here" in words else "elsewhere",
            **given,
        }
    )


def _slice(*endpoints: str | SliceEndpoint, **given: Any) -> EndpointSlice:
    made = tuple(e if isinstance(e, SliceEndpoint) else _endpoint(e) for e in endpoints)
    family = made[0].address.family if made else Family.IPV4
    defaults = {"name": ObjectName("shop", "web-1"), "service": WEB, "family": family, "ports": (SlicePort(port=8080),)}
    return EndpointSlice(**{**defaults, "endpoints": made, **given})


def _service(**given: Any) -> Service:
    defaults = {"name": WEB, "created": 1.0, "cluster_ips": (parse_address("10.96.0.10"),), "ports": (ServicePortSpec(port=80),)}
    return Service(**{**defaults, **given})


def _resolve(
    service: Service, slices: Iterable[EndpointSlice | str] = (), settings: Settings | None = None, **node: Any
) -> ResolvedService:
    texts = [part for part in slices if isinstance(part, str)]
    parts = [_slice(*texts)] if texts else [part for part in slices if isinstance(part, EndpointSlice)]
    return resolve_service(service, parts, evolve(NODE, **node), settings or Settings(node_name="here"))


@pytest.fixture
def make_endpoint() -> Callable[..., SliceEndpoint]:
    return _endpoint


@pytest.fixture
def make_slice() -> Callable[..., EndpointSlice]:
    return _slice


@pytest.fixture
def make_service() -> Callable[..., Service]:
    return _service


@pytest.fixture
def decide() -> Callable[..., ResolvedService]:
    """Resolve one Service on the node ``here``, with slices or with endpoints in words; keywords change the NodeContext."""
    return _resolve


@pytest.fixture
def node() -> NodeContext:
    return NODE


@pytest.fixture
def udp_port() -> ServicePortSpec:
    return ServicePortSpec(name="dns", protocol=Protocol.UDP, port=53)
