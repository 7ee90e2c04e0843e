"""Small clusters in few words, for tests: ``service("shop/web", "10.96.0.10")`` with ``slice_of("shop/web", "10.244.1.1")``."""

from kproxy_core.model.addresses import parse_address
from kproxy_core.model.changes import Deleted, Replaced, Upserted, WatchedObject
from kproxy_core.model.names import ObjectName, Protocol, ServicePortKey, ServicePortName
from kproxy_core.model.objects import EndpointSlice, Node, Service, ServicePortSpec, ServiceType, SliceEndpoint, SlicePort
from kproxy_core.model.snapshot import Kind

NODE = "node-1"


def name_of(text: str) -> ObjectName:
    """Parse ``namespace/name``."""
    namespace, _, name = text.partition("/")
    return ObjectName(namespace, name)


def port_key(text: str, address: str = "10.96.0.0", protocol: Protocol = Protocol.TCP) -> ServicePortKey:
    """The key of the only port of a Service made by :func:`service`; ``address`` tells the family."""
    name = name_of(text)
    return ServicePortKey(parse_address(address).family, ServicePortName(name.namespace, name.name, "", protocol))


def service(text: str, *addresses: str, port: int = 80, node_port: int = 0, protocol: Protocol = Protocol.TCP) -> Service:
    """A Service with these cluster addresses and one nameless port; of type NodePort if it has one."""
    return Service(
        name=name_of(text),
        uid=text,
        created=0.0,
        type=ServiceType.NODE_PORT if node_port else ServiceType.CLUSTER_IP,
        cluster_ips=tuple(map(parse_address, addresses)),
        ports=(ServicePortSpec(port=port, node_port=node_port, protocol=protocol),),
    )


def slice_of(
    text: str, *addresses: str, port: int = 8080, protocol: Protocol = Protocol.TCP, at: float | None = None
) -> EndpointSlice:
    """The one EndpointSlice of a Service, with ready endpoints of one family on another node; ``at`` is its trigger time."""
    family = parse_address(addresses[0]).family if addresses else parse_address("10.96.0.0").family
    owner = name_of(text)
    return EndpointSlice(
        name=ObjectName(owner.namespace, f"{owner.name}-{family.label.lower()}"),
        service=owner,
        family=family,
        endpoints=tuple(SliceEndpoint(address=parse_address(address), node_name="node-2") for address in addresses),
        ports=(SlicePort(port=port, protocol=protocol),),
        trigger_time=at,
    )


def node(*addresses: str, name: str = NODE) -> Node:
    """The node with these internal addresses."""
    return Node(name=name, internal_addresses=tuple(map(parse_address, addresses)))


def listed(*objects: WatchedObject) -> tuple[Replaced, ...]:
    """What a source tells first: the complete lists of Services, EndpointSlices and Nodes, made of these objects."""
    services = tuple(thing for thing in objects if isinstance(thing, Service))
    slices = tuple(thing for thing in objects if isinstance(thing, EndpointSlice))
    nodes = tuple(thing for thing in objects if isinstance(thing, Node))
    return (
        Replaced(kind=Kind.NODE, objects=nodes),
        Replaced(kind=Kind.SERVICE, objects=services),
        Replaced(kind=Kind.ENDPOINT_SLICE, objects=slices),
    )


def put(*objects: WatchedObject) -> tuple[Upserted, ...]:
    """Objects that are new or have changed."""
    return tuple(Upserted(object=thing) for thing in objects)


def gone(thing: Service | EndpointSlice) -> tuple[Deleted, ...]:
    """An object that is gone."""
    return (Deleted(kind=Kind.SERVICE if isinstance(thing, Service) else Kind.ENDPOINT_SLICE, name=thing.name),)
