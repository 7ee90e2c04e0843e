"""Holds what is written in a scenario against the oracle: two opinions that were formed apart must agree."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from attrs import define, field

from kproxy_core.model.addresses import Family, parse_address
from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Node, Service, ServiceCIDR
from kproxy_core.model.packet import Delivered, Dropped, Packet, Refused, Untouched, Verdict
from kproxy_core.model.snapshot import ClusterSnapshot, Kind
from kproxy_core.sources.mixed import decode_document
from kproxy_core.testing.conformance.configuration import document, settings_of
from kproxy_core.testing.conformance.judgement import sources
from kproxy_core.testing.conformance.notation import ALREADY_THERE, Object, fill, key_of, named
from kproxy_core.testing.conformance.places import LOOPBACK, Places, either
from kproxy_core.testing.conformance.reader import NODE_PORTS_EVERYWHERE
from kproxy_core.testing.conformance.scenario import (
    Api,
    Apply,
    Ask,
    Configure,
    Delete,
    Give,
    Open,
    Packets,
    Scenario,
    Step,
    Take,
)
from kproxy_core.testing.conformance.world import SERVED_PORTS
from kproxy_core.testing.lab.plan import BRIDGE, NODES, POD_INTERFACE_PREFIX, UPLINK
from kproxy_core.testing.oracle import Site, verdict

NODE = NODES[0]


def disagreements(scenario: Scenario) -> list[str]:
    """Where the oracle says otherwise, one line each.

    A scenario that says nothing of a mode's default for nodePortAddresses must hold with both. What only time, conntrack or the
    spread of connections can show is not asked.
    """
    told = NODE_PORTS_EVERYWHERE in (*scenario.needs, *scenario.lacks)
    said = (NODE_PORTS_EVERYWHERE in scenario.needs,) if told else (True, False)
    return [line for everywhere in said for line in _Story(scenario=scenario, everywhere=everywhere).told()]


@define(kw_only=True)
class _Story:
    """A scenario as the oracle sees it: objects, settings and addresses at each moment."""

    scenario: Scenario
    everywhere: bool
    places: Places = field(factory=Places)
    objects: dict[tuple[str, str, str], Object] = field(factory=dict)
    known: dict[tuple[str, str, str], Object] = field(factory=dict)
    is_cut: bool = False
    given: dict[str, str] = field(factory=dict)
    settings: Mapping[str, Any] = field(factory=dict)

    def told(self) -> Iterator[str]:
        """Go through the steps."""
        self.settings = self.scenario.settings
        self.objects = {key_of(obj): obj for obj in fill(ALREADY_THERE, self.places)}
        for step in self.scenario.steps:
            self._take_in(step)
            asks = step.asks if isinstance(step, Packets) else (step.ask,) if isinstance(step, Open) else ()
            for ask in asks:
                yield from self._about(ask)

    def _take_in(self, step: Step) -> None:
        match step:
            case Apply(notes=notes):
                self.objects |= {key_of(obj): obj for obj in fill(notes, self.places)}
            case Delete(names=names):
                for name in names:
                    for key in named(name):
                        self.objects.pop(key, None)
            case Give() | Take():
                for written in step.addresses:
                    address = self.places.expand(written).partition("/")[0]
                    if isinstance(step, Give):
                        self.given[address] = step.host
                    else:
                        del self.given[address]
            case Configure(settings=settings):
                self.settings = settings
            case Api(what=what):
                self.is_cut = what == "cut"
        if not self.is_cut:
            self.known = dict(self.objects)

    def _about(self, ask: Ask) -> Iterator[str]:
        site = self._site()
        snapshot = _snapshot(self.known.values())
        settings = settings_of(document(self.settings, "nftables", self.places))
        for origin, target, family, protocol in product(ask.origins, ask.to, ask.families, ask.protocols):
            address = self.places.address(target, family)
            for source in sources(ask.source, family, self.places) if address else ():
                packet = Packet(
                    source=parse_address(source or self._source(origin, address, family)),
                    destination=parse_address(address),
                    protocol=protocol,
                    port=self.places.port(target, ask.port),
                    interface=self._interface(origin),
                )
                wrong = self._complaint(ask, origin, packet, verdict(snapshot, settings, site, packet))
                if wrong:
                    way = f"{origin} to {target} {family.label} {protocol.name}"
                    yield f"{self.scenario.name}.yaml:{ask.line}: {way}: {wrong}"

    def _site(self) -> Site:
        node = self.places.host(NODE)
        bridge = self.places.plan.bridge_gateway(NODE)[0]
        own = [node.ipv4, node.ipv6, bridge.ipv4, bridge.ipv6, LOOPBACK.ipv4, LOOPBACK.ipv6]
        own += [address for address, host in self.given.items() if host == NODE]
        loopback = frozenset({Family.IPV4}) if "LOCALHOST_NODE_PORTS" in self.scenario.needs else frozenset[Family]()
        return Site(
            name=NODE,
            addresses=tuple(map(parse_address, own)),
            node_ports_everywhere=self.everywhere,
            localhost_node_ports=loopback,
        )

    def _source(self, origin: str, address: str, family: Family) -> str:
        if origin == NODE and address in (LOOPBACK.ipv4, LOOPBACK.ipv6):
            return address
        return either(self.places.host(origin), family)

    def _interface(self, origin: str) -> str:
        if origin == NODE:
            return ""
        if self.places.on.get(origin) != NODE:
            return UPLINK
        return BRIDGE if origin in self.places.bridged else f"{POD_INTERFACE_PREFIX}{origin}"

    def _complaint(self, ask: Ask, origin: str, packet: Packet, said: Verdict) -> str:
        expect = ask.expect
        if isinstance(said, Untouched):
            return self._of_untouched(ask, origin, packet)
        fates: Mapping[type[object], str] = {Delivered: "answered", Dropped: "dropped", Refused: "refused"}
        if fates[type(said)] != expect.fate:
            return f"{expect.fate} is written, the oracle says {said}"
        if not isinstance(said, Delivered):
            return ""
        owners = {**self.places.owners(), **self.given}
        seen = {_server(owners[str(one.address)], one.port): one.masqueraded for one in said.targets}
        # Which of the endpoints answers is not the oracle's business: those a client sticks to, those with a weight.
        fewer = bool(ask.alike) or "WEIGHTS" in self.scenario.needs
        if not (expect.servers <= seen.keys() if fewer else expect.servers == seen.keys()):
            return f"{', '.join(sorted(expect.servers))} are written, the oracle says {', '.join(sorted(seen))}"
        # What the node itself sends may keep one of its addresses, and what it receives is never masqueraded.
        told = {name: masqueraded for name, masqueraded in seen.items() if origin != NODE and name.partition(":")[0] != NODE}
        wrong = [name for name, masqueraded in told.items() if expect.client(name) == ("kept" if masqueraded else "masqueraded")]
        return f"the oracle says otherwise about the client's address at {', '.join(wrong)}" if wrong else ""

    def _of_untouched(self, ask: Ask, origin: str, packet: Packet) -> str:
        """As if there were no proxy: a host answers as itself, what nobody has is lost, and so is loopback from elsewhere."""
        address = str(packet.destination)
        owner = {**self.places.owners(), **self.given}.get(address)
        if address == LOOPBACK.ipv4 and origin != NODE:
            owner = None
        match ask.expect.fate:
            case "unclaimed":
                return ""
            case "answered" if owner and packet.port in SERVED_PORTS:
                own = _server(owner, packet.port)
                return "" if ask.expect.servers == {own} else f"the oracle says it goes on its way, to {own}"
            case "dropped" if owner is None:
                return ""
        return f"{ask.expect.fate} is written, the oracle says it goes on its way"


def _server(host: str, port: int) -> str:
    return host if port == SERVED_PORTS[0] else f"{host}:{port}"


def _snapshot(objects: Iterable[Object]) -> ClusterSnapshot:
    services: dict[ObjectName, Service] = {}
    slices: dict[ObjectName, dict[ObjectName, EndpointSlice]] = {}
    node: Node | None = None
    ranges: dict[str, ServiceCIDR] = {}
    decoded: list[WatchedObject] = [each for obj in objects for one in decode_document(obj) for each in one.objects]
    for each in decoded:
        match each:
            case Service():
                services[each.name] = each
            case EndpointSlice():
                slices.setdefault(each.service, {})[each.name] = each
            case Node():
                node = each
            case ServiceCIDR():
                ranges[each.name] = each
    return ClusterSnapshot(services=services, slices=slices, node=node, service_cidrs=ranges, synced=frozenset(Kind))
