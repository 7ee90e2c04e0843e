"""Holds what is written in a scenario against the oracle: two opinions that were formed apart must agree."""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import product
from typing import Any

from attrs import define, field, frozen

from kproxy_core.model.addresses import Family, parse_address
from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Node, Service, ServiceCIDR
from kproxy_core.model.packet import Delivered, Dropped, Packet, Refused, Untouched, Verdict
from kproxy_core.model.snapshot import ClusterSnapshot, Kind
from kproxy_core.sources.mixed import decode_document
from kproxy_core.testing.conformance.configuration import document, settings_of
from kproxy_core.testing.conformance.judgement import Owners, sources
from kproxy_core.testing.conformance.notation import ALREADY_THERE, Object, fill, key_of, named
from kproxy_core.testing.conformance.places import LOOPBACK, Places, either
from kproxy_core.testing.conformance.reader import NODE_PORTS_EVERYWHERE
from kproxy_core.testing.conformance.scenario import (
    Api,
    Apply,
    Ask,
    Clients,
    Configure,
    Delete,
    Give,
    Scenario,
    Step,
    Take,
    asks_of,
    flat,
)
from kproxy_core.testing.conformance.world import SERVED_PORTS
from kproxy_core.testing.lab.plan import BRIDGE, NODES, POD_INTERFACE_PREFIX, UPLINK
from kproxy_core.testing.oracle import Scene, Site, verdict

NODE = NODES[0]
_SOURCES = 4  # of a thousand clients, a few


def disagreements(scenario: Scenario) -> list[str]:
    """Where the oracle says otherwise, one line each.

    A scenario that says nothing of a mode's default for nodePortAddresses must hold with both. What only time, conntrack or the
    spread of connections can show is not asked.
    """
    told = NODE_PORTS_EVERYWHERE in (*scenario.needs, *scenario.lacks)
    said = (NODE_PORTS_EVERYWHERE in scenario.needs,) if told else (True, False)
    sent = (each for everywhere in said for each in packets_of(scenario, everywhere=everywhere))
    return [
        f"{scenario.name}.yaml:{each.ask.line}: {each.way}: {wrong}"
        for each in sent
        if (wrong := each.complaint(verdict(each.scene.snapshot, each.scene.settings, each.scene.site, each.packet)))
    ]


@frozen(kw_only=True)
class SentPacket:
    """A packet of a scenario, on ``ask``'s line, and the scene that it meets; ``complaint`` tells what is wrong with a verdict.

    Packets that meet the same scene have the same object for it. ``way`` says from where to where.
    """

    ask: Ask
    packet: Packet
    scene: Scene
    way: str
    complaint: Callable[[Verdict], str]


def packets_of(scenario: Scenario, *, everywhere: bool) -> Iterator[SentPacket]:
    """Every packet of a scenario once, for a mode with this default for nodePortAddresses."""
    return _Story(scenario=scenario, everywhere=everywhere).told()


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

    def told(self) -> Iterator[SentPacket]:
        """Go through the steps."""
        self.settings = self.scenario.settings
        self.objects = {key_of(obj): obj for obj in fill(ALREADY_THERE, self.places)}
        for step in flat(self.scenario.steps):
            self._take_in(step)
            asks = asks_of(step)
            scene = self._scene() if asks else None
            for ask in asks:
                assert scene is not None
                yield from self._about(ask, scene, self._choice(ask, over_time=isinstance(step, Clients)))

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

    def _scene(self) -> Scene:
        settings = settings_of(document(self.settings, "nftables", self.places))
        return Scene(snapshot=_snapshot(self.known.values()), settings=settings, site=self._site())

    def _about(self, ask: Ask, scene: Scene, choice: "_Choice") -> Iterator[SentPacket]:
        owners = {**self.places.owners(), **self.given}
        for origin, target, family, protocol in product(ask.origins, ask.to, ask.families, ask.protocols):
            address = self.places.address(target, family)
            for source in sources(ask.source, family, self.places)[:_SOURCES] if address else ():
                packet = Packet(
                    source=parse_address(source or self._source(origin, address, family)),
                    destination=parse_address(address),
                    protocol=protocol,
                    port=self.places.port(target, ask.port),
                    interface=self._interface(origin),
                )
                judge = _Judge(ask=ask, origin=origin, packet=packet, owners=owners, choice=choice)
                way = f"{origin} to {target} {family.label} {protocol.name}"
                yield SentPacket(ask=ask, packet=packet, scene=scene, way=way, complaint=judge.complaint)

    def _choice(self, ask: Ask, *, over_time: bool) -> "_Choice":
        """Which of the endpoints answers is not the oracle's business: those a client sticks to, those with a weight."""
        if over_time:
            return _Choice.MORE
        return _Choice.FEWER if ask.alike or "WEIGHTS" in self.scenario.needs else _Choice.ALL

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


class _Choice(enum.Enum):
    """How the endpoints that are written relate to those that may answer now."""

    ALL = "they are the same"
    FEWER = "some of them answer"
    MORE = "others may answer at another time"

    def agrees(self, written: AbstractSet[str], now: AbstractSet[str]) -> bool:
        """Whether they do."""
        if self is _Choice.MORE:
            return now <= written
        return written <= now if self is _Choice.FEWER else written == now


@frozen(kw_only=True)
class _Judge:
    """Holds the oracle's verdicts on a packet against what is written."""

    ask: Ask
    origin: str
    packet: Packet
    owners: Owners
    choice: _Choice

    def complaint(self, said: Verdict) -> str:
        """What is wrong; empty if nothing is."""
        expect = self.ask.expect
        if isinstance(said, Untouched):
            return self._of_untouched()
        fates: Mapping[type[object], str] = {Delivered: "answered", Dropped: "dropped", Refused: "refused"}
        if fates[type(said)] != expect.fate:
            return f"{expect.fate} is written, the oracle says {said}"
        if not isinstance(said, Delivered):
            return ""
        seen = {_server(self.owners[str(one.address)], one.port): one.masqueraded for one in said.targets}
        if not self.choice.agrees(expect.servers, seen.keys()):
            return f"{', '.join(sorted(expect.servers))} are written, the oracle says {', '.join(sorted(seen))}"
        # What the node itself sends may keep one of its addresses unless told which, and what it receives is never masqueraded.
        known = self.origin != NODE or self.ask.source
        told = {name: masqueraded for name, masqueraded in seen.items() if known and name.partition(":")[0] != NODE}
        wrong = [name for name, masqueraded in told.items() if expect.client(name) == ("kept" if masqueraded else "masqueraded")]
        return f"the oracle says otherwise about the client's address at {', '.join(wrong)}" if wrong else ""

    def _of_untouched(self) -> str:
        """As if there were no proxy: a host answers as itself, what nobody has is lost, and so is loopback from elsewhere."""
        address = str(self.packet.destination)
        owner = self.owners.get(address)
        if address == LOOPBACK.ipv4 and self.origin != NODE:
            owner = None
        match self.ask.expect.fate:
            case "unclaimed":
                return ""
            case "answered" if owner and self.packet.port in SERVED_PORTS:
                own = _server(owner, self.packet.port)
                return "" if self.ask.expect.servers == {own} else f"the oracle says it goes on its way, to {own}"
            case "dropped" if owner is None:
                return ""
        return f"{self.ask.expect.fate} is written, the oracle says it goes on its way"


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
