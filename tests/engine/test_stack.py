"""A mode above its companion: who programs what, in which order, and what becomes of ids, refusals and leftovers."""

import select
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given

from kproxy_core.config.settings import Settings
from kproxy_core.engine.stack import Stack
from kproxy_core.model.addresses import parse_address
from kproxy_core.model.changes import Change
from kproxy_core.model.flows import FrontendKey
from kproxy_core.model.names import Protocol, ServicePortKey
from kproxy_core.model.packet import Delivered, Packet, Refused, Untouched
from kproxy_core.model.state import FrontendKind, FrontendRule, NodeState, Origin, ServicePort
from kproxy_core.plugin.backend import Capability
from kproxy_core.plugin.division import divide
from kproxy_core.plugin.errors import UnsupportedError
from kproxy_core.runtime.assembly import program_for
from kproxy_core.runtime.stack import StackedBackend
from kproxy_core.testing.faults import FailKeys, no_faults
from kproxy_core.testing.memory_backend import TABLE, MemoryBackend, MemoryKernel, Objects
from kproxy_core.testing.playbook import Playbook
from kproxy_core.testing.sketch import gone, listed, node, port_key, put, service, slice_of

from .arrangements import STACKED, UPPER_TABLE, stacked
from .test_laws import Story, daemon, stories

HERE = node("192.0.2.1")
WEB = service("shop/web", "10.96.0.10", node_port=30080)
BEHIND_WEB = slice_of("shop/web", "10.244.1.1", "10.244.1.2")
BOTH = (UPPER_TABLE, TABLE)


def kernel() -> MemoryKernel:
    return MemoryKernel(hooks=BOTH, addresses=(parse_address("192.0.2.1"),))


def sockets(_port: ServicePort, rule: FrontendRule, origin: Origin) -> bool:
    """Claim what a hook in sockets sees: what local pods and the node itself dial."""
    return origin is not Origin.OUTSIDE


def cluster_ips_inside(port: ServicePort, rule: FrontendRule, origin: Origin) -> bool:
    return rule.frontend.kind is FrontendKind.CLUSTER_IP and origin is not Origin.OUTSIDE


def node_ports_of_few(port: ServicePort, rule: FrontendRule, origin: Origin) -> bool:
    """Claim NodePorts as long as there are at most two endpoints, so that a third one moves them down."""
    return rule.frontend.kind is FrontendKind.NODE_PORT and len(port.serving) <= 2


def frontends(objects: Objects) -> set[str]:
    return {f"{key[3]}:{key[4]}" for key in objects if key[0] == "frontend"}


def in_both(of: MemoryKernel) -> tuple[set[str], set[str]]:
    upper, lower = (frontends(of.tables.get(table, {})) for table in BOTH)
    return upper, lower


def packet(source: str, to: str, port: int = 80, interface: str = "eth0") -> Packet:
    return Packet(
        source=parse_address(source), destination=parse_address(to), protocol=Protocol.TCP, port=port, interface=interface
    )


# -- who gets what


def test_a_service_port_is_divided_rule_by_rule() -> None:
    state, _ = program_for(MemoryBackend(), listed(HERE, WEB, BEHIND_WEB), Settings(), ())
    port = state.ports[port_key("shop/web")]
    by_kind = {rule.frontend.kind: rule for rule in port.rules}
    cluster_ip, node_port = by_kind[FrontendKind.CLUSTER_IP], by_kind[FrontendKind.NODE_PORT]
    upper = MemoryBackend(claimed=cluster_ips_inside)
    division = divide(port, [upper, MemoryBackend()])
    assert division.shares == ((cluster_ip,), port.rules)
    assert division.left == ()
    alone = divide(port, [upper])
    assert alone.shares == ((cluster_ip,),)
    assert set(alone.left) == {(cluster_ip, Origin.OUTSIDE), *((node_port, origin) for origin in Origin)}


def test_what_is_left_is_asked_of_the_next_one_down() -> None:
    state, _ = program_for(MemoryBackend(), listed(HERE, WEB, BEHIND_WEB), Settings(), ())
    port = state.ports[port_key("shop/web")]
    asked: list[Origin] = []

    def remember(_port: ServicePort, rule: FrontendRule, origin: Origin) -> bool:
        asked.append(origin)
        return True

    modes = [MemoryBackend(claimed=sockets), MemoryBackend(claimed=remember), MemoryBackend(claimed=remember)]
    division = divide(port, modes)
    assert division.shares == (port.rules, port.rules, ())
    assert asked == [Origin.OUTSIDE] * len(port.rules)


def test_a_packet_meets_the_mode_that_claims_it_and_else_its_companion() -> None:
    here = kernel()
    Playbook(stacked(here, claims=cluster_ips_inside)) >> listed(HERE, WEB, BEHIND_WEB)
    assert in_both(here) == ({"10.96.0.10:80"}, {"10.96.0.10:80", "*:30080"})
    upper, lower = (here.tables[table] for table in BOTH)
    assert ("cluster address", parse_address("10.96.0.10")) in lower
    assert ("cluster address", parse_address("10.96.0.10")) not in upper
    for source, interface in (("192.0.2.1", ""), ("198.51.100.1", "eth0")):
        verdict = here.pass_through(packet(source, "10.96.0.10", interface=interface))
        assert isinstance(verdict, Delivered)
        assert here.pass_through(packet(source, "10.96.0.10", 81, interface)) == Refused()
        assert isinstance(here.pass_through(packet(source, "192.0.2.1", 30080, interface)), Delivered)


# -- make before break, from one mode to the other


def places_of(frontend: str, here: MemoryKernel, change: Callable[[], object]) -> list[tuple[bool, bool]]:
    """Whether a frontend is in the upper and in the lower table, from moment to moment of a change."""
    seen: list[tuple[bool, bool]] = []

    def look(_number: int = 0, _key: object = None) -> None:
        upper, lower = in_both(here)
        now = (frontend in upper, frontend in lower)
        if seen[-1:] != [now]:
            seen.append(now)

    here.fault = look
    change()
    here.fault = no_faults
    look()
    return seen


def settle(play: Playbook[StackedBackend], changes: Sequence[Change]) -> None:
    (play >> changes).settle()


ONE_MORE = slice_of("shop/web", "10.244.1.1", "10.244.1.2", "10.244.1.3")


def test_a_frontend_that_moves_down_is_there_before_the_upper_mode_lets_go_of_it() -> None:
    here = kernel()
    play = Playbook(stacked(here, claims=node_ports_of_few)) >> listed(HERE, WEB, BEHIND_WEB)
    play.advance(5)
    assert in_both(here) == ({"*:30080"}, {"10.96.0.10:80"})
    moved = places_of("*:30080", here, lambda: play >> put(ONE_MORE))
    assert moved == [(True, False), (True, True), (False, True)]
    assert not play.engine.is_busy


def test_a_frontend_that_moves_up_stays_below_until_it_is_there() -> None:
    here = kernel()
    play = Playbook(stacked(here, claims=node_ports_of_few)) >> listed(HERE, WEB, ONE_MORE)
    play.advance(5)
    assert in_both(here) == (set(), {"*:30080", "10.96.0.10:80"})
    moved = places_of("*:30080", here, lambda: settle(play, put(BEHIND_WEB)))
    assert moved == [(False, True), (True, True), (True, False)]
    assert [report.ok for report in play.reports] == [True, True, True]


def test_a_frontend_stays_below_while_the_mode_above_cannot_have_it() -> None:
    here = kernel()
    play = Playbook(stacked(here, claims=node_ports_of_few)) >> listed(HERE, WEB, ONE_MORE)
    here.faults[UPPER_TABLE] = FailKeys(lambda key: key[0] == "frontend", message="not up here")
    play.advance(5) >> put(BEHIND_WEB)
    play.settle(60)
    assert in_both(here) == (set(), {"*:30080", "10.96.0.10:80"})
    assert play.reports[-1].failed == {port_key("shop/web"): "upper: not up here"}
    here.faults.clear()
    play.settle()
    assert in_both(here) == ({"*:30080"}, {"10.96.0.10:80"})
    assert play.reports[-1].ok


def test_a_mode_put_above_one_that_is_at_work_takes_over_without_a_gap() -> None:
    here = kernel()
    (Playbook(MemoryBackend(here)) >> listed(HERE, WEB, BEHIND_WEB)).close()
    assert in_both(here) == (set(), {"*:30080", "10.96.0.10:80"})
    play = Playbook(stacked(here, claims=node_ports_of_few))
    moved = places_of("*:30080", here, lambda: settle(play, listed(HERE, WEB, BEHIND_WEB)))
    assert moved == [(False, True), (True, True), (True, False)]
    play.close()
    operations = here.operations
    assert (Playbook(stacked(here, claims=node_ports_of_few)) >> listed(HERE, WEB, BEHIND_WEB)).settle().reports[-1].ok
    assert here.operations == operations


def owners(state: NodeState | None) -> dict[FrontendKey, ServicePortKey]:
    """Whose each frontend is."""
    ports = state.ports.values() if state is not None else ()
    return {
        FrontendKey(port.family, rule.frontend.address, rule.frontend.port, port.name.protocol): port.key
        for port in ports
        for rule in port.rules
    }


@given(stories())
def test_a_frontend_that_stays_a_service_ports_own_is_never_without_a_mode(story: Story) -> None:
    scene, history = story
    here = STACKED.kernel()
    play = daemon(STACKED, here, scene)
    before: dict[FrontendKey, ServicePortKey] = {}
    gaps: set[FrontendKey] = set()

    def look(_number: int, _key: object) -> None:
        for each in before.items() & owners(play.engine.state).items():
            frontend = each[0]
            key = ("frontend", frontend.family.label, frontend.protocol.name, frontend.address or "*", frontend.port)
            if not any(key in here.tables.get(table, {}) for table in BOTH):
                gaps.add(frontend)

    here.fault = look
    for change in history:
        play >> [change]
        if play.reports:
            play.settle()
            before = owners(play.engine.state)
    assert not gaps


# -- ids, refusals, what the kernel tells


def test_each_mode_has_ids_of_its_own_and_keeps_them() -> None:
    here = kernel()
    other = service("shop/other", "10.96.0.11")
    # An earlier process had the lower mode alone, and gave its ids in another order than the upper mode will.
    first = Playbook(MemoryBackend(here)) >> listed(HERE, other, slice_of("shop/other", "10.244.2.1"))
    first.advance(5) >> put(WEB, BEHIND_WEB)
    first.close()
    ids = service_ids(here, TABLE)
    play = Playbook(stacked(here, claims=sockets))
    (play >> listed(HERE, WEB, BEHIND_WEB, other, slice_of("shop/other", "10.244.2.1"))).settle()
    assert service_ids(here, TABLE) == ids
    upper = service_ids(here, UPPER_TABLE)
    assert upper.keys() == ids.keys()
    assert not set(upper.values()) & set(ids.values())
    play.close()
    play = Playbook(stacked(here, claims=sockets))
    (play >> listed(HERE, WEB, ONE_MORE, other)).settle()
    assert (service_ids(here, TABLE), service_ids(here, UPPER_TABLE)) == (ids, upper)


def service_ids(here: MemoryKernel, table: str) -> dict[object, object]:
    return {value: key[1] for key, value in here.tables[table].items() if key[0] == "service"}


@pytest.mark.parametrize("table", BOTH)
@pytest.mark.parametrize("told", [True, False])
def test_what_one_of_the_modes_refuses_keeps_back_one_service_port_only(table: str, told: bool) -> None:
    here = kernel()
    refused = FailKeys(lambda key: key[0] == "frontend" and str(key[3]) == "10.96.0.13", told=told, message="not to my taste")
    here.faults[table] = refused
    services = [service(f"shop/s{n}", f"10.96.0.{n}") for n in range(10, 20)]
    behind = [slice_of(f"shop/s{n}", f"10.244.0.{n}") for n in range(10, 20)]
    play = Playbook(stacked(here, claims=sockets)) >> listed(HERE, *services, *behind)
    play.settle(60)
    assert set(play.reports[-1].failed) == {port_key("shop/s13")}
    assert "not to my taste" in play.reports[-1].failed[port_key("shop/s13")]
    others = {f"10.96.0.{n}:80" for n in range(10, 20) if n != 13}
    assert in_both(here)[BOTH.index(table)] == others
    assert others <= in_both(here)[1 - BOTH.index(table)]


def test_a_step_that_fails_keeps_back_those_above_it() -> None:
    here = kernel()
    here.faults[TABLE] = FailKeys(lambda key: key[0] == "frontend")
    play = Playbook(stacked(here, claims=sockets)) >> listed(HERE, WEB, BEHIND_WEB)
    assert frontends(here.tables.get(UPPER_TABLE, {})) == set()
    assert not play.reports[-1].ok


@pytest.mark.parametrize("table", BOTH)
def test_drift_in_either_table_is_told_by_one_descriptor(table: str) -> None:
    here = kernel()
    play = Playbook(stacked(here, claims=sockets)) >> listed(HERE, WEB, BEHIND_WEB)
    before = STACKED.ours(here)
    descriptor = play.dataplane.fileno()
    assert not select.select([descriptor], [], [], 0)[0]
    here.meddle(dict.clear, "nft (pid 7)", table)
    assert select.select([descriptor], [], [], 0)[0]
    play.drift().settle()
    assert play.dataplane.fileno() == descriptor
    assert not select.select([descriptor], [], [], 0)[0]
    assert STACKED.ours(here) == before
    assert [report.culprit for report in play.reports if report.drifted] == ["nft (pid 7)"]


def test_a_service_that_is_gone_is_gone_from_both() -> None:
    here = kernel()
    play = Playbook(stacked(here, claims=sockets)) >> listed(HERE, WEB, BEHIND_WEB)
    (play.advance(5) >> gone(WEB)).settle()
    assert in_both(here) == (set(), set())
    with stacked(here).open() as dataplane:
        assert len(dataplane.leftovers().lines) == 2
        assert len(dataplane.cleanup().lines) == 2
        assert not dataplane.leftovers()
    assert here.tables == {}


def test_a_change_costs_the_same_whatever_the_number_of_services() -> None:
    costs = set()
    for count in (10, 100):
        here = kernel()
        services = [service(f"shop/s{n}", f"10.97.{n // 250}.{n % 250}") for n in range(count)]
        behind = [slice_of(f"shop/s{n}", f"10.244.{n // 250}.{n % 250}") for n in range(count)]
        play = (Playbook(stacked(here, claims=sockets)) >> listed(HERE, *services, *behind)).advance(5)
        before = here.operations
        play >> put(slice_of("shop/s3", "10.244.9.9"))
        costs.add(here.operations - before)
    assert costs == {2}


# -- what the stack says of itself


def test_capabilities_are_those_of_any_or_of_all_as_their_sense_is() -> None:
    here = kernel()
    upper = MemoryBackend(here, name="upper", table=UPPER_TABLE)
    told: Stack = StackedBackend([upper, MemoryBackend(here, atomic=True)])
    assert {Capability.SCTP, Capability.UNUSED_PORTS_REJECTED, Capability.TRACE, Capability.COUNTERS} <= told.capabilities
    assert Capability.ATOMIC not in told.capabilities

    class Mute(MemoryBackend):
        capabilities = frozenset({Capability.SURVIVES_CRASH})

    less = StackedBackend([upper, Mute(here)])
    assert Capability.COUNTERS in less.capabilities
    assert not less.capabilities & {Capability.TRACE, Capability.SURVIVES_CRASH, Capability.DRIFT_NOTIFIED}
    with less.open() as dataplane:
        assert dataplane.counters() == {}
        with pytest.raises(UnsupportedError, match="mode memory cannot follow a packet"):
            dataplane.trace(packet("198.51.100.1", "10.96.0.10"))


def test_counters_add_up_and_a_trace_goes_from_mode_to_mode() -> None:
    here = kernel()
    play = Playbook(stacked(here, claims=sockets)) >> listed(HERE, WEB, BEHIND_WEB)
    for _ in range(3):
        here.connect(packet("192.0.2.1", "10.96.0.10", interface=""), sent=10, received=100)
        here.connect(packet("198.51.100.1", "192.0.2.1", 30080), sent=1, received=1)
    counts = play.dataplane.counters()[port_key("shop/web")]
    assert sum(traffic.connections for traffic in counts.values()) == 6
    assert sum(traffic.bytes_to_client or 0 for traffic in counts.values()) == 303
    assert {str(address) for address, _ in counts} == {"10.244.1.1", "10.244.1.2"}
    inside = play.dataplane.trace(packet("192.0.2.1", "10.96.0.10", interface=""))
    assert isinstance(inside.verdict, Delivered)
    assert {line.split(":")[0] for line in inside.lines} == {"upper"}
    outside = play.dataplane.trace(packet("198.51.100.1", "10.96.0.10"))
    assert isinstance(outside.verdict, Delivered)
    assert "upper: from 198.51.100.1: leave" in outside.lines
    assert [line.split(":")[0] for line in outside.lines][-1] == "memory"
    assert play.dataplane.trace(packet("198.51.100.1", "203.0.113.9")).verdict == Untouched()


def test_rendered_text_names_the_modes() -> None:
    backend = stacked(kernel(), claims=sockets)
    _, program = program_for(backend, listed(HERE, WEB, BEHIND_WEB), Settings(), ())
    text = backend.render(program)
    assert text.index("# mode upper") < text.index("# mode memory")
    assert text.count("frontend IPv4 TCP 10.96.0.10 80 =") == 2


def test_replies_are_valid_that_any_mode_calls_so() -> None:
    backend = stacked(kernel(), claims=sockets)
    state, _ = program_for(backend, listed(HERE, WEB, BEHIND_WEB), Settings(), ())
    replies = backend.valid_replies(state.ports[port_key("shop/web")])
    assert {str(address) for address, _ in replies} == {"10.244.1.1", "10.244.1.2"}
