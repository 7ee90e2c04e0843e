"""Strategies for small, nasty clusters, for settings and for the node that packets meet."""

import functools

from attrs import evolve
from hypothesis import strategies as st

from kproxy_core.config.settings import DetectLocalMode, NodePortScope, Settings
from kproxy_core.model.addresses import Address, Family, Network
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import (
    EndpointSlice,
    LoadBalancerIngress,
    Node,
    Service,
    ServiceCIDR,
    ServicePortSpec,
    ServiceType,
    SliceEndpoint,
    SlicePort,
    TrafficPolicy,
)
from kproxy_core.model.snapshot import ClusterSnapshot, Kind
from kproxy_core.testing.oracle import Scene, Site
from kproxy_core.testing.strategies import pools
from kproxy_core.testing.strategies.drawing import one_in, pick, some
from kproxy_core.testing.strategies.pools import addresses, networks


@functools.cache
def service_ports(numbers: tuple[int, ...], node_ports: tuple[int, ...]) -> st.SearchStrategy[tuple[ServicePortSpec, ...]]:
    """Ports of a Service: one to three; names and protocols differ, numbers need not."""
    port = st.builds(
        ServicePortSpec,
        name=pick(pools.PORT_NAMES),
        protocol=pick(pools.PROTOCOLS),
        port=pick(numbers),
        node_port=pick((0, *node_ports)),
    )
    return st.lists(port, min_size=1, max_size=3, unique_by=lambda made: (made.name, made.protocol)).map(tuple)


@functools.cache
@st.composite
def cluster_ips(draw: st.DrawFn) -> tuple[Address, ...]:
    """The virtual addresses of a Service: of either family or both, in either order."""
    four, six = (draw(pick(pool)) for pool in pools.CLUSTER_IPS)
    return draw(st.sampled_from([(four,), (four, six), (six, four), (six,)]))


@functools.cache
def ingresses(pool: tuple[Address, ...]) -> st.SearchStrategy[tuple[LoadBalancerIngress, ...]]:
    """Addresses of a load balancer, rarely with ``ipMode: Proxy``."""
    ingress = st.builds(LoadBalancerIngress, address=pick(pool), proxied=one_in(8))
    return st.lists(ingress, max_size=2).map(tuple)


@functools.cache
def source_ranges() -> st.SearchStrategy[tuple[Network, ...] | None]:
    """None is no filter, nothing is nobody, and ranges may be of one family or both."""
    few = some(pools.SOURCE_RANGES, 3)
    return st.one_of(st.none(), few, few, st.just(networks("192.0.2.0/24", "2001:db8::/64")))


@functools.cache
@st.composite
def services(draw: st.DrawFn, name: ObjectName) -> Service:
    """Services of this name, of every type, with any combination of what they can ask for."""
    policies = pick(TrafficPolicy)
    affinity, health, weights, scheduler = draw(pools.UNSEEN)
    risky = draw(one_in(4))
    addresses = pools.RISKY_ADDRESSES if risky else pools.EXTERNAL_ADDRESSES
    made = Service(
        name=name,
        uid=str(name),
        created=draw(pick((1.0, 2.0, 2.0, float("inf")))),
        type=draw(pick((ServiceType.LOAD_BALANCER, ServiceType.NODE_PORT, ServiceType.CLUSTER_IP))),
        cluster_ips=draw(cluster_ips()),
        external_ips=draw(some(addresses, 2)),
        ingress=draw(ingresses(addresses)),
        ports=draw(
            service_ports(pools.RISKY_PORTS, pools.RISKY_PORTS) if risky else service_ports(pools.PORTS, pools.NODE_PORTS)
        ),
        affinity_timeout=affinity,
        internal_policy=draw(policies),
        external_policy=draw(policies),
        source_ranges=draw(source_ranges()),
        health_check_node_port=health,
        weights=weights,
        scheduler=scheduler,
    )
    return evolve(made, **draw(pools.ODDITIES)) if draw(one_in(6)) else made


@functools.cache
@st.composite
def slice_endpoints(draw: st.DrawFn, hosts: tuple[Address, ...], hints: int) -> SliceEndpoint:
    """An endpoint at one of ``hosts``; for ``hints`` see ``pools.HINTS``."""
    ready, serving, terminating = draw(pick(pools.CONDITIONS))
    zone_hints, node_hints = draw(pick(pools.HINTS[hints]))
    return SliceEndpoint(
        address=draw(pick(hosts)),
        ready=ready,
        serving=serving,
        terminating=terminating,
        node_name=draw(pick(pools.NODE_NAMES)),
        zone_hints=zone_hints,
        node_hints=node_hints,
    )


@functools.cache
def hosts_of(owner: ObjectName, family: Family) -> tuple[Address, ...]:
    """Where the endpoints of a slice of ``family`` may be: pods mostly, the node, a client, rarely what no endpoint can be."""
    likely = pools.API_SERVER_ADDRESSES if owner == pools.API_SERVER else pools.POD_ADDRESSES
    others = (
        *pools.INTERFACE_ADDRESSES[:4],
        *pools.OUTSIDE_ADDRESSES[:1],
        *pools.API_SERVER_ADDRESSES,
        *pools.IMPOSSIBLE_ADDRESSES,
    )
    fitting = (address for address in (*likely * 4, *pools.POD_ADDRESSES, *others) if address.family is family)
    return (*fitting, pools.POD_ADDRESSES[0], pools.POD_ADDRESSES[-1])


@st.composite
def slice_ports(draw: st.DrawFn, owner: Service | None) -> tuple[SlicePort, ...]:
    """The ports of a slice: most of those that its Service has, each with its own number, and now and then a stranger."""
    ports = []
    for spec in owner.ports if owner is not None else ():
        number = draw(
            pick(
                (6443, 6443, 8080, 0)
                if owner and owner.name == pools.API_SERVER
                else (*pools.ENDPOINT_PORTS, *pools.ENDPOINT_PORTS, 0)
            )
        )
        if number:
            ports.append(SlicePort(name=spec.name, protocol=spec.protocol, port=number))
    if not ports or draw(one_in(8)):
        name, protocol = draw(pick(pools.PORT_NAMES)), draw(pick(pools.PROTOCOLS))
        ports.append(SlicePort(name=name, protocol=protocol, port=draw(pick(pools.ENDPOINT_PORTS))))
    return tuple(ports)


@st.composite
def slices(draw: st.DrawFn, owner: ObjectName, service: Service | None, number: int) -> EndpointSlice:
    """A slice of the Service ``owner``, which may not be there; slices are numbered, so that a name may change its owner."""
    families = [address.family for address in service.cluster_ips] if service is not None else []
    # Of the two families of a Service each has its turn.
    family = families[number % len(families)] if families and not draw(one_in(10)) else draw(pick(Family))
    return EndpointSlice(
        name=ObjectName(owner.namespace, f"slice-{number}"),
        service=owner,
        family=family,
        endpoints=draw(several_endpoints(hosts_of(owner, family), draw(pick((0, 0, 1, 2, 3))))),
        ports=draw(slice_ports(service)),
        trigger_time=draw(pick((None, 1000.0))),
    )


@functools.cache
def several_endpoints(hosts: tuple[Address, ...], hints: int) -> st.SearchStrategy[tuple[SliceEndpoint, ...]]:
    """One to four endpoints, rarely none."""
    few = st.lists(slice_endpoints(hosts, hints), min_size=1, max_size=4).map(tuple)
    return one_in(15).flatmap(lambda none: st.just(()) if none else few)


@functools.cache
def nodes() -> st.SearchStrategy[Node]:
    """The node's own Node object, with more or less in it."""
    return st.builds(
        Node,
        name=st.just(pools.NODE_NAME),
        internal_addresses=st.sampled_from(pools.INTERNAL_ADDRESSES),
        external_addresses=some(pools.NODE_OBJECT_ADDRESSES[2:], 2),
        pod_cidrs=pick((pools.NODE_POD_NETWORKS, pools.NODE_POD_NETWORKS[:1], pools.NODE_POD_NETWORKS, ())),
        zone=pick(("east", "west", "east", "")),
        eligible=st.booleans(),
    )


@functools.cache
@st.composite
def snapshots(draw: st.DrawFn) -> ClusterSnapshot:
    """A cluster of a few Services and slices, all kinds in sync; the Node is rarely missing."""
    names = draw(st.lists(pick(pools.SERVICE_NAMES), min_size=1, max_size=3, unique=True))
    made = {name: draw(services(name)) for name in names}
    owners = [name for name in names for _ in range(draw(pick((2, 1, 2, 3, 0))))]
    owners += draw(pick(((), (pools.API_SERVER,), pools.SERVICE_NAMES[:1], pools.SERVICE_NAMES[2:])))
    owned: dict[ObjectName, dict[ObjectName, EndpointSlice]] = {}
    for number, owner in enumerate(owners):
        piece = draw(slices(owner, made.get(owner), number))
        owned.setdefault(owner, {})[piece.name] = piece
    ranges = draw(some((pools.SERVICE_NETWORKS, pools.SERVICE_NETWORKS[:1], pools.SERVICE_NETWORKS[2:]), 2))
    return ClusterSnapshot(
        services=made,
        slices=owned,
        node=None if draw(one_in(10)) else draw(nodes()),
        service_cidrs={f"cidr-{number}": ServiceCIDR(name=f"cidr-{number}", cidrs=cidrs) for number, cidrs in enumerate(ranges)},
        synced=frozenset(Kind),
    )


@functools.cache
def settings() -> st.SearchStrategy[Settings]:
    """What an operator may decide that changes a verdict."""
    return st.builds(
        Settings,
        node_name=st.just(pools.NODE_NAME),
        bind_address=pick((*(None,) * 5, *addresses("192.0.2.2", "2001:db8::2", "0.0.0.0", "0.0.0.0", "127.0.0.1"))),
        cluster_cidrs=pick((pools.POD_NETWORKS, pools.POD_NETWORKS, pools.POD_NETWORKS[:1], pools.POD_NETWORKS[1:], ())),
        detect_local_mode=pick((DetectLocalMode.CLUSTER_CIDR, *DetectLocalMode)),
        bridge_interface=pick((pools.BRIDGE, pools.BRIDGE, "")),
        interface_name_prefix=pick((pools.PREFIX, pools.PREFIX, "")),
        node_port_addresses=st.one_of(st.none(), st.none(), pick(NodePortScope), some(pools.NODE_PORT_RANGES, 2)),
        masquerade_all=one_in(4),
        external_ips_allowed=one_in(5).map(lambda forbidden: not forbidden),
        protected_ports=pick((frozenset({22, 10250}), frozenset({22, 10250}), frozenset[int](), frozenset({80}))),
    )


@functools.cache
def sites() -> st.SearchStrategy[Site]:
    """The node as the kernel knows it. NodePorts never answer on loopback here: that is a matter of single modes."""
    return st.builds(
        Site,
        name=st.just(pools.NODE_NAME),
        addresses=pick((pools.INTERFACE_ADDRESSES, pools.INTERFACE_ADDRESSES, pools.INTERFACE_ADDRESSES[1:], ())),
        node_ports_everywhere=st.booleans(),
    )


@functools.cache
def scenes() -> st.SearchStrategy[Scene]:
    """A cluster, settings and the node that packets meet."""
    return st.builds(Scene, snapshot=snapshots(), settings=settings(), site=sites())
