"""Laws of the engine, over generated clusters, histories and faults, on the in-memory kernel."""

import contextlib
from collections.abc import Sequence

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.engine import events as e
from kproxy_core.model.addresses import Address, parse_address
from kproxy_core.model.changes import Change, Replaced
from kproxy_core.model.names import Protocol, ServicePortKey
from kproxy_core.model.packet import Packet
from kproxy_core.runtime.assembly import program_for
from kproxy_core.testing.faults import Crash, CrashAt, FailRandomly, no_faults
from kproxy_core.testing.interpret import interpret
from kproxy_core.testing.memory_backend import TABLE, MemoryBackend, MemoryKernel, Objects, attributed
from kproxy_core.testing.memory_lookup import lookup
from kproxy_core.testing.oracle import Scene
from kproxy_core.testing.playbook import Playbook
from kproxy_core.testing.strategies import changes_leading_to, objects_of, packets, scenes

Story = tuple[Scene, tuple[Change, ...]]
LONG = 100.0
FOREIGN: dict[str, Objects] = {"firewall": {("rule", 1): "theirs"}}


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """A scene, and a history that leads to it."""
    scene = draw(scenes())
    return scene, draw(changes_leading_to(scene.snapshot))


def new_kernel() -> MemoryKernel:
    tables: dict[str, Objects] = {name: dict(table) for name, table in FOREIGN.items()}
    return MemoryKernel(tables=tables)


def daemon(kernel: MemoryKernel, scene: Scene, *, atomic: bool = False) -> Playbook[MemoryBackend]:
    backend = MemoryBackend(kernel, atomic, everywhere=scene.site.node_ports_everywhere)
    return Playbook(backend, scene.settings, map(str, scene.site.addresses))


def from_scratch(scene: Scene, history: Sequence[Change]) -> object:
    """The meaning of the program that a cluster should lead to."""
    backend = MemoryBackend(everywhere=scene.site.node_ports_everywhere)
    _, program = program_for(backend, history, scene.settings, scene.site.addresses)
    return backend.canonical(program)


def held(kernel: MemoryKernel) -> object:
    return MemoryBackend().canonical(attributed(kernel.ours))


def told(play: Playbook[MemoryBackend], history: Sequence[Change], pauses: Sequence[float] = ()) -> None:
    """Tell a history change by change, with pauses in between."""
    for number, change in enumerate(history):
        play >> [change]
        if pauses:
            play.advance(pauses[number % len(pauses)])


PAUSES = st.lists(st.sampled_from([0.0, 0.0, 0.01, 0.2, 1.5, 40.0]), min_size=1, max_size=4)


@given(stories(), PAUSES)
def test_incremental_equals_from_scratch_whatever_the_order_of_events(story: Story, pauses: list[float]) -> None:
    scene, history = story
    kernel = new_kernel()
    play = daemon(kernel, scene)
    told(play, history, pauses)
    play.settle()
    assert held(kernel) == from_scratch(scene, history)
    assert all(report.ok for report in play.reports)
    assert not play.engine.drift_count
    assert {name: table for name, table in kernel.tables.items() if name != TABLE} == FOREIGN


def assert_every_frontend_answers(kernel: MemoryKernel) -> None:
    """A lookup raises KeyError where a client would be sent to something that is not there."""
    for kind, *where in list(kernel.ours):
        if kind == "frontend":
            _, protocol, address, port = where
            destination = address if isinstance(address, Address) else parse_address("192.0.2.1")
            source = parse_address("198.51.100.1")
            number, transport = int(str(port)), Protocol[str(protocol)]
            packet = Packet(source=source, destination=destination, protocol=transport, port=number, interface="eth0")
            lookup(kernel.ours, packet, [destination])


@given(stories(), PAUSES)
def test_at_no_moment_of_a_change_is_a_frontend_without_an_answer(story: Story, pauses: list[float]) -> None:
    scene, history = story
    kernel = new_kernel()

    def look(_number: int, _key: object) -> None:
        assert_every_frontend_answers(kernel)

    kernel.fault = look
    play = daemon(kernel, scene)
    told(play, history, pauses)
    play.settle()
    assert_every_frontend_answers(kernel)


@given(stories(), PAUSES)
def test_a_second_sync_and_a_restart_are_empty(story: Story, pauses: list[float]) -> None:
    scene, history = story
    kernel = new_kernel()
    play = daemon(kernel, scene)
    told(play, history, pauses)
    play.settle()
    before, operations = dict(kernel.ours), kernel.operations
    play >> e.CheckRequested()
    play.close()
    play = daemon(kernel, scene) >> history
    assert play.reports[-1].ok
    assert kernel.operations == operations
    assert kernel.ours == before


@given(st.data(), stories())
def test_the_kernel_does_with_packets_what_the_state_says(data: st.DataObject, story: Story) -> None:
    scene, history = story
    play = daemon(new_kernel(), scene)
    told(play, history)
    play.settle()
    state = play.engine.state
    assert state is not None
    for packet in data.draw(st.lists(packets(scene), min_size=1, max_size=10)):
        expected = interpret(state, packet, scene.site.addresses)
        assert lookup(play.backend.kernel.ours, packet, scene.site.addresses) == expected


@given(stories(), PAUSES, st.integers(0, 2**32), st.booleans(), st.booleans())
def test_with_faults_at_a_tenth_of_all_operations_the_kernel_gets_there_in_the_end(
    story: Story, pauses: list[float], seed: int, atomic: bool, retryable: bool
) -> None:
    scene, history = story
    kernel = new_kernel()
    kernel.fault = FailRandomly(0.1, seed, retryable)
    play = daemon(kernel, scene, atomic=atomic)
    told(play, history, pauses)
    play.advance(LONG)
    kernel.fault = no_faults
    play.settle(most=1000)
    play >> e.CheckRequested()
    play.settle(most=1000)
    assert held(kernel) == from_scratch(scene, history)
    assert play.reports[-1].ok
    assert not play.engine.drift_count
    assert {name: table for name, table in kernel.tables.items() if name != TABLE} == FOREIGN


@given(stories(), PAUSES, st.integers(1, 60))
def test_after_a_crash_at_any_operation_the_next_process_gets_there(story: Story, pauses: list[float], operation: int) -> None:
    scene, history = story
    kernel = new_kernel()
    kernel.fault = CrashAt(operation)
    play = daemon(kernel, scene)
    with contextlib.suppress(Crash):
        told(play, history, pauses)
    play.close()
    kernel.fault = no_faults
    play = daemon(kernel, scene)
    told(play, history)
    play.settle()
    assert held(kernel) == from_scratch(scene, history)
    assert play.reports[-1].ok


@given(stories(), st.data())
def test_whatever_somebody_does_to_our_objects_is_repaired(story: Story, data: st.DataObject) -> None:
    scene, history = story
    kernel = new_kernel()
    play = daemon(kernel, scene)
    told(play, history)
    play.settle().advance(5)
    before = dict(kernel.ours)
    keys = data.draw(st.lists(st.sampled_from(sorted(before, key=str)), unique=True)) if before else []
    removed, spoiled = keys[::2], keys[1::2]

    def meddle(objects: dict[tuple[object, ...], object]) -> None:
        for key in removed:
            del objects[key]
        objects.update(dict.fromkeys(spoiled, "spoiled"))
        objects["slot", 4711, "cluster", 0] = "stray"

    kernel.meddle(meddle)
    play.drift().settle()
    assert kernel.ours == before


def ids_and_slots(kernel: MemoryKernel) -> dict[ServicePortKey, tuple[int, object]]:
    fragments = attributed(kernel.ours).fragments
    return {
        port: (fragment.id, {key: value for key, value in fragment.own.items() if key[0] == "slot"})
        for port, fragment in fragments.items()
    }


def listing(scene: Scene) -> list[Change]:
    return [Replaced(kind=kind, objects=tuple(things.values())) for kind, things in objects_of(scene.snapshot).items()]


@given(scenes(), scenes(), st.booleans())
def test_ids_stay_and_slots_too_where_endpoints_do(first: Scene, second: Scene, restart: bool) -> None:
    second = evolve(second, settings=first.settings, site=first.site)
    kernel = new_kernel()
    play = daemon(kernel, first) >> listing(first)
    before, earlier = ids_and_slots(kernel), play.engine.state
    if restart:
        play.close()
        play = daemon(kernel, second)
    play >> listing(second)
    play.settle()
    after, later = ids_and_slots(kernel), play.engine.state
    assert earlier is not None
    assert later is not None
    for port in before.keys() & after.keys():
        assert before[port][0] == after[port][0]
        if earlier.ports[port] == later.ports[port]:
            assert before[port] == after[port]
    numbers = [number for number, _ in after.values()]
    assert len(set(numbers)) == len(numbers)
    # Nobody gets the number of somebody who has just gone: its clients may still be remembered under it.
    if not restart:
        vanished = {before[port][0] for port in before.keys() - after.keys()}
        assert not vanished & set(numbers)
