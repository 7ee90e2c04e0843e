"""The mode: Services as text for nft. All of it is pure; dataplane.py meets the kernel, and says what the objects are."""

from collections.abc import Iterator, Mapping
from typing import Any

from kproxy_core.model import state
from kproxy_core.model.addresses import Family, collapse
from kproxy_core.plugin.backend import Capability
from kproxy_core.plugin.hookspecs import hookimpl
from kproxy_core.plugin.text import TextBackend
from kproxy_core.program.delta import Delta
from kproxy_core.program.digest import Digested, digest
from kproxy_core.program.program import Fragment, Program
from kproxy_nfttext.dataplane import KINDS, TABLE, Key, Table, Value, definition

IP = {Family.IPV4: "ip", Family.IPV6: "ip6"}
LOOPBACK = {Family.IPV4: "127.0.0.0/8", Family.IPV6: "::1"}


@hookimpl
def kproxy_backend(mode: str) -> "NfttextBackend | None":
    """Build the backend when the mode is ours; a hook takes what it needs, and may ask for ``settings`` as well."""
    return NfttextBackend() if mode == NfttextBackend.name else None


class NfttextBackend(TextBackend[Key, Value]):
    """What is not among the capabilities it leaves out, such as weights, counters, and NodePorts of loopback addresses."""

    name, dataplane = "nfttext", Table
    remedy = "install nftables 1.0 or later, use Linux 5.9 or later, and run as root"
    capabilities = frozenset(
        {
            Capability.SCTP,
            Capability.SOURCE_RANGES,
            Capability.AFFINITY_TIMEOUT,
            Capability.CLIENT_ADDRESS_KEPT,
            Capability.UNUSED_PORTS_REJECTED,
            Capability.TCP_RESET,
            Capability.ATOMIC,
            Capability.SURVIVES_CRASH,
        }
    )

    def compile(self, port: state.ServicePort, node: state.NodeContext, previous: Any, fresh_id: int) -> Fragment[Key, Value]:
        # Names tell whose a thing is, so there are no ids and slots to be kept from what was before.
        ip, tag, mark = IP[port.family], digest(str(port.key)), f"meta mark set meta mark | {1 << node.masquerade_bit:#x}"
        own, shared = endpoint_chains(port, tag, mark), dict[Key, Value]()
        for rule in port.rules:
            ranges = ", ".join(str(network) for network in port.source_ranges if network.family is port.family)
            way = [f"{ip} saddr != {{ {ranges} }} drop" if ranges else "drop"] if rule.restricted else []
            way += [f"{match} {action(rule.disposition(origin), tag, mark)}" for origin, match in origins(port.family, node)]
            chain, address = f"way.{tag}.{digest(str(way))}", rule.frontend.address
            own["chain", chain] = tuple(map(Digested, way))
            place, key = (f"node-ports.{ip}", "") if address is None else (f"frontends.{ip}", f"{address} . ")
            own[place, f"{key}{port.name.protocol:d} . {rule.frontend.port}"] = f"goto {chain}"
            if rule.frontend.kind is state.FrontendKind.CLUSTER_IP:
                shared[f"cluster-ips.{ip}", str(address)] = ""  # the ports of a Service have it in common
        return Fragment(own=own, shared=shared)

    def scaffold(self, node: state.NodeContext) -> Mapping[Key, Value]:
        bit, services, result = f"{1 << node.masquerade_bit:#x}", list[str](), dict[Key, Value]()
        for family, ip in IP.items():
            result |= {("map", f"frontends.{ip}"): "", ("map", f"node-ports.{ip}"): "", ("set", f"cluster-ips.{ip}"): ""}
            chosen = ", ".join(str(address) for address in node.node_port_addresses if address.family is family)
            here = f"!= {LOOPBACK[family]} fib daddr type local" if node.node_port_any else f"{{ {chosen} }}" if chosen else ""
            services.append(f"{ip} daddr . meta l4proto . th dport vmap @frontends.{ip}")
            services += [f"{ip} daddr {here} meta l4proto . th dport vmap @node-ports.{ip}"] if here else []
            services.append(f"{ip} daddr @cluster-ips.{ip} goto refuse")
            services += [f"{ip} daddr {network} drop" for network in node.service_cidrs if network.family is family]
        masquerade = (f"meta mark & {bit} != {bit} return", f"meta mark set meta mark ^ {bit}", "masquerade fully-random")
        refuse = ("meta l4proto tcp reject with tcp reset", "reject")
        chains = {"prerouting": services, "output": services, "postrouting": masquerade, "refuse": refuse}
        return result | {("chain", name): tuple(map(Digested, rules)) for name, rules in chains.items()}

    def plan(self, before: Program[Key, Value], delta: Delta[Key, Value]) -> list[str]:
        # One transaction. What is referred to comes first in it, and goes last.
        plan = [f"add table {TABLE}"] if delta else []
        plan += [f"add {kind} {TABLE} {name} {definition(name)}" for kind, name in delta.added if kind in KINDS]
        plan += [f"delete element {TABLE} {place} {{ {key} }}" for place, key in delta.gone if place not in KINDS]
        plan += [f"flush chain {TABLE} {name}" for kind, name in delta.gone if kind == "chain"]
        for (place, name), value in delta.made.items():
            if isinstance(value, tuple):
                plan += [f'add rule {TABLE} {name} {rule.text} comment "{rule.digest}"' for rule in value]
            elif place not in KINDS:
                plan.append(f"add element {TABLE} {place} {{ {name}{f' : {value}' if value else ''} }}")
        return plan + [f"delete {kind} {TABLE} {name}" for kind, name in delta.removed if kind in KINDS]


def endpoint_chains(port: state.ServicePort, tag: str, mark: str) -> dict[Key, Value]:
    """A chain for each endpoint, and one for each endpoint set, which picks one of them; sets of clients that stick to one."""
    ip, sticky, own = IP[port.family], port.affinity_timeout is not None, dict[Key, Value]()
    names = {each: f"{tag}.{digest(str(each))}" for scope in state.EndpointScope for each in port.endpoints.of(scope)}
    for endpoint, name in names.items():
        rules = [f"update @clients.{ip}.{name} {{ {ip} saddr timeout {port.affinity_timeout}s }}"] if sticky else []
        # Who meets itself is masqueraded, lest it answer itself directly.
        rules += [f"{ip} saddr {endpoint.address} {mark}", f"meta l4proto {port.name.protocol:d} dnat {ip} to {endpoint}"]
        own["chain", f"endpoint.{name}"] = tuple(map(Digested, rules))
        own |= {("set", f"clients.{ip}.{name}"): ""} if sticky else {}
    for scope in state.EndpointScope:
        if chosen := [names[endpoint] for endpoint in port.endpoints.of(scope)]:
            pick = [f"{ip} saddr @clients.{ip}.{name} goto endpoint.{name}" for name in chosen if sticky]
            slots = ", ".join(f"{slot} : goto endpoint.{name}" for slot, name in enumerate(chosen))
            pick.append(f"numgen random mod {len(chosen)} vmap {{ {slots} }}")
            own["chain", f"{scope.value}.{tag}"] = tuple(map(Digested, pick))
    return own


def origins(family: Family, node: state.NodeContext) -> Iterator[tuple[state.Origin, str]]:
    """How each origin of traffic is told, in the order in which they are to be asked."""
    match node.local_detector:
        case state.LocalByNetwork(networks) if local := collapse([each for each in networks if each.family is family]):
            yield state.Origin.LOCAL_POD, f"{IP[family]} saddr {{ {', '.join(map(str, local))} }}"
        case state.LocalByInterface(name, prefix):
            yield state.Origin.LOCAL_POD, f'iifname "{name}{"*" if prefix else ""}"'
    yield from ((state.Origin.NODE, "fib saddr type local"), (state.Origin.OUTSIDE, ""))


def action(disposition: state.Disposition, tag: str, mark: str) -> str:
    """What becomes of a connection."""
    if isinstance(disposition, state.Forward):
        return f"{mark if disposition.masquerade is state.Masquerade.ALWAYS else ''} goto {disposition.scope.value}.{tag}"
    return "drop" if isinstance(disposition, state.Drop) else "goto refuse"
