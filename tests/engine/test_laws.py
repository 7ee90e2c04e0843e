"""Laws of the engine, over generated clusters, histories and faults, on the in-memory kernel: for one mode and for two."""

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
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
from kproxy_core.testing.memory_backend import MemoryKernel, Objects, attributed
from kproxy_core.testing.memory_lookup import lookup
from kproxy_core.testing.oracle import Scene
from kproxy_core.testing.playbook import Playbook
from kproxy_core.testing.strategies import changes_leading_to, objects_of, packets, scenes

from .arrangements import SINGLE, STACKED, Arrangement

each_arrangement = pytest.mark.parametrize("arrangement", [SINGLE, STACKED], ids=str)

Story = tuple[Scene, tuple[Change, ...]]
LONG = 100.0
FOREIGN: dict[str, Objects] = {"firewall": {("rule", 1): "theirs"}}


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """A scene, and a history that leads to it."""
    scene = draw(scenes())
    return scene, draw(changes_leading_to(scene.snapshot))


def daemon(arrangement: Arrangement, kernel: MemoryKernel, scene: Scene, *, atomic: bool = False) -> Playbook[Any]:
    kernel.addresses = tuple(scene.site.addresses)
    backend = arrangement.backend(kernel, atomic=atomic, everywhere=scene.site.node_ports_everywhere)
    return Playbook(backend, scene.settings, map(str, scene.site.addresses))


def from_scratch(arrangement: Arrangement, scene: Scene, history: Sequence[Change]) -> object:
    """The meaning of the program that a cluster should lead to."""
    backend = arrangement.backend(MemoryKernel(), everywhere=scene.site.node_ports_everywhere)
    _, program = program_for(backend, history, scene.settings, scene.site.addresses)
    return backend.canonical(program)


def held(arrangement: Arrangement, kernel: MemoryKernel) -> object:
    backend = arrangement.backend(kernel)
    with backend.open() as dataplane:
        return backend.canonical(dataplane.read())


def foreign(arrangement: Arrangement, kernel: MemoryKernel) -> dict[str, Objects]:
    return {name: table for name, table in kernel.tables.items() if name not in arrangement.tables}


def told(play: Playbook[Any], history: Sequence[Change], pauses: Sequence[float] = ()) -> None:
    """Tell a history change by change, with pauses in between."""
    for number, change in enumerate(history):
        play >> [change]
        if pauses:
            play.advance(pauses[number % len(pauses)])


PAUSES = st.lists(st.sampled_from([0.0, 0.0, 0.01, 0.2, 1.5, 40.0]), min_size=1, max_size=4)


@each_arrangement
@given(stories(), PAUSES)
def test_incremental_equals_from_scratch_whatever_the_order_of_events(
    arrangement: Arrangement, story: Story, pauses: list[float]
) -> None:
    scene, history = story
    kernel = arrangement.kernel(**FOREIGN)
    play = daemon(arrangement, kernel, scene)
    told(play, history, pauses)
    play.settle()
    assert held(arrangement, kernel) == from_scratch(arrangement, scene, history)
    assert all(report.ok for report in play.reports)
    assert not play.engine.drift_count
    assert foreign(arrangement, kernel) == FOREIGN


def assert_every_frontend_answers(kernel: MemoryKernel) -> None:
    """A lookup raises KeyError where a client would be sent to something that is not there."""
    frontends = [key for table in kernel.hooks for key in list(kernel.tables.get(table, {})) if key[0] == "frontend"]
    for _, *where in frontends:
        if where:
            _, protocol, address, port = where
            destination = address if isinstance(address, Address) else parse_address("192.0.2.1")
            source = parse_address("198.51.100.1")
            number, transport = int(str(port)), Protocol[str(protocol)]
            packet = Packet(source=source, destination=destination, protocol=transport, port=number, interface="eth0")
            for table in kernel.hooks:
                lookup(kernel.tables.get(table, {}), packet, [destination])


@each_arrangement
@given(stories(), PAUSES)
def test_at_no_moment_of_a_change_is_a_frontend_without_an_answer(
    arrangement: Arrangement, story: Story, pauses: list[float]
) -> None:
    scene, history = story
    kernel = arrangement.kernel(**FOREIGN)

    def look(_number: int, _key: object) -> None:
        assert_every_frontend_answers(kernel)

    kernel.fault = look
    play = daemon(arrangement, kernel, scene)
    told(play, history, pauses)
    play.settle()
    assert_every_frontend_answers(kernel)


@each_arrangement
@given(stories(), PAUSES)
def test_a_second_sync_and_a_restart_are_empty(arrangement: Arrangement, story: Story, pauses: list[float]) -> None:
    scene, history = story
    kernel = arrangement.kernel(**FOREIGN)
    play = daemon(arrangement, kernel, scene)
    told(play, history, pauses)
    play.settle()
    before, operations = arrangement.ours(kernel), kernel.operations
    play >> e.CheckRequested()
    play.close()
    play = daemon(arrangement, kernel, scene) >> history
    assert play.reports[-1].ok
    assert kernel.operations == operations
    assert arrangement.ours(kernel) == before


@each_arrangement
@given(st.data(), stories())
def test_the_kernel_does_with_packets_what_the_state_says(arrangement: Arrangement, data: st.DataObject, story: Story) -> None:
    scene, history = story
    kernel = arrangement.kernel(**FOREIGN)
    play = daemon(arrangement, kernel, scene)
    told(play, history)
    play.settle()
    state = play.engine.state
    assert state is not None
    for packet in data.draw(st.lists(packets(scene), min_size=1, max_size=10)):
        assert kernel.pass_through(packet) == interpret(state, packet, scene.site.addresses)


@each_arrangement
@given(stories(), PAUSES, st.booleans(), st.builds(FailRandomly, st.just(0.1), st.integers(0, 2**32), st.booleans()))
def test_with_faults_at_a_tenth_of_all_operations_the_kernel_gets_there_in_the_end(
    arrangement: Arrangement, story: Story, pauses: list[float], atomic: bool, fault: FailRandomly
) -> None:
    scene, history = story
    kernel = arrangement.kernel(**FOREIGN)
    kernel.fault = fault
    play = daemon(arrangement, kernel, scene, atomic=atomic)
    told(play, history, pauses)
    play.advance(LONG)
    kernel.fault = no_faults
    play.settle(most=1000)
    play >> e.CheckRequested()
    play.settle(most=1000)
    assert held(arrangement, kernel) == from_scratch(arrangement, scene, history)
    assert play.reports[-1].ok
    assert not play.engine.drift_count
    assert foreign(arrangement, kernel) == FOREIGN


@each_arrangement
@given(stories(), PAUSES, st.integers(1, 60))
def test_after_a_crash_at_any_operation_the_next_process_gets_there(
    arrangement: Arrangement, story: Story, pauses: list[float], operation: int
) -> None:
    scene, history = story
    kernel = arrangement.kernel(**FOREIGN)
    kernel.fault = CrashAt(operation)
    play = daemon(arrangement, kernel, scene)
    with contextlib.suppress(Crash):
        told(play, history, pauses)
    play.close()
    kernel.fault = no_faults
    play = daemon(arrangement, kernel, scene)
    told(play, history)
    play.settle()
    assert held(arrangement, kernel) == from_scratch(arrangement, scene, history)
    assert play.reports[-1].ok


@each_arrangement
@given(stories(), st.data())
def test_whatever_somebody_does_to_our_objects_is_repaired(arrangement: Arrangement, story: Story, data: st.DataObject) -> None:
    scene, history = story
    kernel = arrangement.kernel(**FOREIGN)
    play = daemon(arrangement, kernel, scene)
    told(play, history)
    play.settle().advance(5)
    before = arrangement.ours(kernel)
    table = data.draw(st.sampled_from(arrangement.tables))
    keys = (
        data.draw(st.lists(st.sampled_from(sorted(kernel.tables[table], key=str)), unique=True)) if kernel.tables[table] else []
    )
    removed, spoiled = keys[::2], keys[1::2]

    def meddle(objects: dict[tuple[object, ...], object]) -> None:
        for key in removed:
            del objects[key]
        objects.update(dict.fromkeys(spoiled, "spoiled"))
        objects["slot", 4711, "cluster", 0] = "stray"

    kernel.meddle(meddle, table=table)
    play.drift().settle()
    assert arrangement.ours(kernel) == before


def ids_and_slots(arrangement: Arrangement, kernel: MemoryKernel) -> dict[tuple[str, ServicePortKey], tuple[int, object]]:
    """The id of each Service port in each table, and its slots there."""
    return {
        (table, port): (fragment.id, {key: value for key, value in fragment.own.items() if key[0] == "slot"})
        for table in arrangement.tables
        for port, fragment in attributed(kernel.tables.get(table, {})).fragments.items()
    }


def listing(scene: Scene) -> list[Change]:
    return [Replaced(kind=kind, objects=tuple(things.values())) for kind, things in objects_of(scene.snapshot).items()]


@each_arrangement
@given(scenes(), scenes(), st.booleans())
def test_ids_stay_and_slots_too_where_endpoints_do(arrangement: Arrangement, first: Scene, second: Scene, restart: bool) -> None:
    second = evolve(second, settings=first.settings, site=first.site)
    kernel = arrangement.kernel(**FOREIGN)
    play = daemon(arrangement, kernel, first) >> listing(first)
    before, earlier = ids_and_slots(arrangement, kernel), play.engine.state
    if restart:
        play.close()
        play = daemon(arrangement, kernel, second)
    play >> listing(second)
    play.settle()
    after, later = ids_and_slots(arrangement, kernel), play.engine.state
    assert earlier is not None
    assert later is not None
    for table, port in before.keys() & after.keys():
        assert before[table, port][0] == after[table, port][0]
        if earlier.ports[port] == later.ports[port]:
            assert before[table, port] == after[table, port]
    for table in arrangement.tables:
        numbers = [number for (where, _), (number, _) in after.items() if where == table]
        assert len(set(numbers)) == len(numbers)
        # Nobody gets the number of somebody who has just gone: its clients may still be remembered under it.
        if not restart:
            vanished = {before[place][0] for place in before.keys() - after.keys() if place[0] == table}
            assert not vanished & set(numbers)
