"""The reference mode keeps the contract it is there to show."""

import select
from collections.abc import Sequence

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.model.addresses import parse_address
from kproxy_core.model.names import Protocol
from kproxy_core.model.packet import Delivered, Packet, Refused
from kproxy_core.model.state import ServicePort
from kproxy_core.plugin.backend import Backend, Capability, Dataplane
from kproxy_core.plugin.errors import ApplyError
from kproxy_core.program.delta import diff_programs
from kproxy_core.program.program import Program, link, objects
from kproxy_core.runtime.assembly import program_for
from kproxy_core.testing.faults import Crash, CrashAt, Either, FailKeys, FailNth, FailRandomly
from kproxy_core.testing.memory_backend import Key, MemoryBackend, MemoryKernel, MemoryProgram, Operation, Value, attributed
from kproxy_core.testing.memory_lookup import lookup
from kproxy_core.testing.sketch import listed, node, port_key, service, slice_of

WEB, DNS = service("n/web", "10.96.0.1"), service("n/dns", "10.96.0.2", protocol=Protocol.UDP)
EMPTY: MemoryProgram = Program()


def program(*endpoints: str) -> MemoryProgram:
    changes = listed(node("192.0.2.1"), WEB, DNS, slice_of("n/web", *endpoints))
    return program_for(MemoryBackend(), changes, Settings(), ())[1]


def plan(before: MemoryProgram, after: MemoryProgram) -> Sequence[Operation]:
    return MemoryBackend().plan(before, diff_programs(before, after))


def test_it_is_a_backend_and_a_dataplane() -> None:
    backend: Backend[Key, Value] = MemoryBackend()
    with backend.open() as dataplane:
        typed: Dataplane[Key, Value] = dataplane
        assert objects(typed.read()) == {}
    assert Capability.ATOMIC not in backend.capabilities
    assert Capability.ATOMIC in MemoryBackend(atomic=True).capabilities
    assert backend.probe().usable


def test_what_is_applied_is_read_back_with_its_ids() -> None:
    wanted = program("10.244.1.1", "10.244.1.2")
    with MemoryBackend().open() as dataplane:
        result = dataplane.apply(plan(EMPTY, wanted))
        assert (result.done, result.failures) == (len(objects(wanted)), ())
        read = dataplane.read()
    assert objects(read) == objects(wanted)
    assert {port: fragment.id for port, fragment in read.fragments.items()} == {
        port: fragment.id for port, fragment in wanted.fragments.items()
    }
    assert MemoryBackend().canonical(read) == MemoryBackend().canonical(wanted)


def test_canonical_forgets_ids_and_slots_and_nothing_else() -> None:
    backend = MemoryBackend()
    changes = listed(node("192.0.2.1"), WEB, slice_of("n/web", "10.244.1.1", "10.244.1.2"))
    state, one = program_for(backend, changes, Settings(), ())
    port: ServicePort = state.ports[port_key("n/web")]
    other = link({port.key: backend.compile(port, state.node, None, 99)}, backend.scaffold(state.node))
    assert objects(one) != objects(other)
    assert backend.canonical(one) == backend.canonical(other)
    assert backend.canonical(program("10.244.1.1")) != backend.canonical(program("10.244.1.2"))


def test_frontends_are_made_last_and_removed_first() -> None:
    verbs = [operation.key[0] == "frontend" for operation in plan(EMPTY, program("10.244.1.1"))]
    assert verbs == sorted(verbs)
    verbs = [operation.key[0] == "frontend" for operation in plan(program("10.244.1.1"), EMPTY)]
    assert verbs == sorted(verbs, reverse=True)


def test_the_kernel_is_strict() -> None:
    kernel = MemoryKernel()
    with MemoryBackend(kernel).open() as dataplane:
        key: Key = ("range", 1)
        bad = dataplane.apply(
            [Operation("set", key, 1), Operation("delete", key), Operation("add", key, 1), Operation("add", key, 2)]
        )
    assert [failure.keys for failure in bad.failures] == [(key,)] * 3
    assert bad.done == 1
    assert kernel.ours == {key: 1}


@pytest.mark.parametrize("atomic", [True, False])
def test_after_a_failure_an_atomic_kernel_is_unchanged_and_another_is_not(atomic: bool) -> None:
    kernel = MemoryKernel(fault=FailKeys(lambda key: key[0] == "frontend"))
    with MemoryBackend(kernel, atomic).open() as dataplane:
        result = dataplane.apply(plan(EMPTY, program("10.244.1.1")))
    assert result.failures
    assert result.unchanged is atomic
    assert bool(kernel.ours) is not atomic


def test_only_others_changes_are_drift() -> None:
    kernel = MemoryKernel()
    with MemoryBackend(kernel).open() as dataplane:
        dataplane.apply(plan(EMPTY, program("10.244.1.1")))
        assert dataplane.drift() is None
        kernel.meddle(dict.clear, "nft (pid 7)")
        assert select.select([dataplane.fileno()], [], [], 0)[0]
        drift = dataplane.drift()
        assert drift is not None
        assert drift.culprit == "nft (pid 7)"
        assert dataplane.drift() is None
        assert not select.select([dataplane.fileno()], [], [], 0)[0]


def test_cleanup_leaves_nothing_of_ours_and_touches_nothing_else() -> None:
    kernel = MemoryKernel(tables={"firewall": {("rule",): "theirs"}})
    with MemoryBackend(kernel).open() as dataplane:
        assert not dataplane.leftovers()
        dataplane.apply(plan(EMPTY, program("10.244.1.1")))
        assert dataplane.leftovers()
        assert dataplane.cleanup()
        assert not dataplane.cleanup()
    assert kernel.tables == {"firewall": {("rule",): "theirs"}}


def test_an_unreadable_kernel_says_why() -> None:
    with MemoryBackend(MemoryKernel(unreadable="no buffers")).open() as dataplane, pytest.raises(ApplyError, match="no buffers"):
        dataplane.read()


def test_lookup_holds_what_a_port_needs_and_not_its_neighbours() -> None:
    wanted = program("10.244.1.1")
    kernel = MemoryKernel()
    state, _ = program_for(MemoryBackend(), listed(WEB, DNS, slice_of("n/web", "10.244.1.1")), Settings(), ())
    with MemoryBackend(kernel).open() as dataplane:
        dataplane.apply(plan(EMPTY, wanted))
        held = dataplane.lookup(state.ports[port_key("n/web")])
    assert held == {**wanted.common, **wanted.fragments[port_key("n/web")].own}


def test_render_names_each_port() -> None:
    text = MemoryBackend().render(program("10.244.1.1"))
    assert "# n/web/TCP (IPv4)" in text
    assert "10.244.1.1" in text


def test_a_packet_meets_what_the_objects_say_and_a_dangling_one_is_noticed() -> None:
    kernel = dict(objects(program("10.244.1.1")))
    client, there = parse_address("198.51.100.1"), parse_address("10.96.0.1")
    packet = Packet(source=client, destination=there, protocol=Protocol.TCP, port=80, interface="eth0")
    verdict = lookup(kernel, packet)
    assert isinstance(verdict, Delivered)
    assert {str(target.address) for target in verdict.targets} == {"10.244.1.1"}
    nobody = Packet(source=client, destination=parse_address("10.96.0.2"), protocol=Protocol.UDP, port=80, interface="eth0")
    assert lookup(kernel, nobody) == Refused()
    for kind in ("slot", "pick", "service"):
        broken = {key: value for key, value in kernel.items() if key[0] != kind}
        with pytest.raises(KeyError):
            lookup(broken, packet)


def test_attribution_needs_the_service_object() -> None:
    whole = objects(program("10.244.1.1"))
    without = {key: value for key, value in whole.items() if key != ("service", 1)}
    read = attributed(without)
    assert len(read.fragments) == 1
    assert objects(read) == without


# -- faults


def test_faults_strike_where_they_are_told_to() -> None:
    assert [FailNth(2, start=10)(number, "k") is not None for number in range(10, 14)] == [False, False, True, False]
    with pytest.raises(Crash):
        CrashAt(3)(3, "k")
    assert CrashAt(3)(2, "k") is None
    told = FailKeys(lambda key: key == "k")(1, "k")
    assert told is not None
    assert told.keys == ("k",)
    untold = FailKeys(lambda key: key == "k", told=False)(1, "k")
    assert untold is not None
    assert untold.keys == ()
    both = Either((FailNth(1), FailNth(3)))
    assert [both(number, "k") is not None for number in range(1, 5)] == [True, False, True, False]


def test_random_faults_are_the_same_for_the_same_seed() -> None:
    def strikes(seed: int) -> list[bool]:
        fault = FailRandomly(0.3, seed)
        return [fault(number, "k") is not None for number in range(200)]

    assert strikes(1) == strikes(1) != strikes(2)
    assert 30 <= sum(strikes(1)) <= 90
