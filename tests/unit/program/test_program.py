"""Programs: linking, replacing and telling apart agree with one another, whatever the order; contract breaches are loud."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.model.addresses import Family
from kproxy_core.model.names import Protocol, ServicePortKey, ServicePortName
from kproxy_core.program.delta import Delta, diff, diff_ports, diff_programs, patch
from kproxy_core.program.program import ContractError, Fragment, Program, link, objects, owners, replace

PORTS = [ServicePortKey(Family.IPV4, ServicePortName("shop", name, "", Protocol.TCP)) for name in "abc"]
flat = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2))

AnyFragments = dict[ServicePortKey, Fragment[str, int]]


@st.composite
def fragment_sets(draw: st.DrawFn, version: int = 0) -> AnyFragments:
    """Fragments that keep the contract: own keys have one owner (which may be another in another set), shared keys one value."""
    holders = draw(st.dictionaries(st.sampled_from(["x", "y", "z"]), st.sampled_from(PORTS)))
    values = draw(st.fixed_dictionaries({key: st.integers(0, 2) for key in ("s", "t")}))
    made = {}
    for port in draw(st.sets(st.sampled_from(PORTS))):
        own = {key: draw(st.integers(0, 2)) for key, holder in holders.items() if holder == port}
        shared = {key: values[key] for key in draw(st.sets(st.sampled_from(["s", "t"])))}
        made[port] = Fragment(id=draw(st.integers(0, 3)), own=own, shared=shared)
    return made


scaffolds = st.dictionaries(st.sampled_from(["base", "chain"]), st.integers(0, 1))


@given(flat, flat)
def test_patching_with_the_difference_gives_the_other(before: dict[str, int], after: dict[str, int]) -> None:
    delta = diff(before, after)
    assert patch(before, delta) == after
    assert bool(delta) == (before != after)
    assert len(delta) == len(delta.added) + len(delta.changed) + len(delta.removed)
    assert not delta.added.keys() & delta.changed.keys()
    assert not delta.removed.keys() & (delta.added.keys() | delta.changed.keys())
    assert all(old != new for old, new in delta.changed.values())


@given(flat)
def test_no_difference_is_no_delta(mapping: dict[str, int]) -> None:
    assert diff(mapping, dict(mapping)) == Delta()


@given(fragment_sets(), fragment_sets(), scaffolds, scaffolds)
def test_replacing_fragment_by_fragment_equals_linking_the_final_ones(
    before: AnyFragments, after: AnyFragments, old: dict[str, int], new: dict[str, int]
) -> None:
    program = link(before, old)
    snapshot = (dict(program.fragments), dict(program.common), dict(program.uses))
    updates: Mapping[ServicePortKey, Fragment[str, int] | None] = {
        port: after.get(port) for port in PORTS if before.get(port) != after.get(port) or port in after
    } | {port: None for port in before if port not in after}
    assert replace(program, updates, new) == link(after, new)
    assert (program.fragments, program.common, program.uses) == snapshot, "programs never change"


@given(fragment_sets(), fragment_sets(), scaffolds, scaffolds)
def test_whole_programs_are_told_apart(
    before: AnyFragments, after: AnyFragments, old: dict[str, int], new: dict[str, int]
) -> None:
    one, other = link(before, old), link(after, new)
    assert patch(objects(one), diff_programs(one, other)) == objects(other)


@given(fragment_sets(), fragment_sets(), scaffolds, st.sets(st.sampled_from(PORTS)))
def test_dirty_ports_are_enough_to_tell_programs_apart(
    before: AnyFragments, after: AnyFragments, scaffold: dict[str, int], more: set[ServicePortKey]
) -> None:
    one, other = link(before, scaffold), link(after, scaffold)
    dirty = {port for port in PORTS if before.get(port) != after.get(port)}
    assert diff_ports(one, other, dirty) == diff_programs(one, other)
    assert diff_ports(one, other, dirty | more) == diff_programs(one, other)


@given(fragment_sets(), scaffolds)
def test_owners_are_told_for_own_objects_only(fragments: AnyFragments, scaffold: dict[str, int]) -> None:
    program = link(fragments, scaffold)
    found = owners(program, [*objects(program), "unknown"])
    assert found == {key: port for port, fragment in fragments.items() for key in fragment.own}
    assert program.highest_id == max((fragment.id for fragment in fragments.values()), default=0)


def test_a_key_that_moves_to_another_port_is_a_change() -> None:
    one = link({PORTS[0]: Fragment(own={"x": 1})}, {})
    other = link({PORTS[1]: Fragment(own={"x": 2})}, {})
    assert diff_ports(one, other, PORTS) == Delta(changed={"x": (1, 2)})


def test_a_shared_object_stays_until_its_last_user_goes() -> None:
    shared: Fragment[str, int] = Fragment(shared={"s": 1})
    both = link({PORTS[0]: shared, PORTS[1]: shared}, {})
    one = replace(both, {PORTS[0]: None})
    assert objects(one) == {"s": 1}
    assert diff_ports(both, one, PORTS[:1]) == Delta()
    none = replace(one, {PORTS[1]: None})
    assert diff_ports(one, none, PORTS[1:2]) == Delta(removed={"s": 1})


def test_a_shared_value_may_change_for_all_its_users_at_once() -> None:
    both = link({PORTS[0]: Fragment(shared={"s": 1}), PORTS[1]: Fragment(shared={"s": 1})}, {})
    changed = replace(both, {PORTS[0]: Fragment(shared={"s": 2}), PORTS[1]: Fragment(shared={"s": 2})})
    assert diff_ports(both, changed, PORTS[:2]) == Delta(changed={"s": (1, 2)})


@pytest.mark.parametrize(
    ("fragments", "scaffold"),
    [
        pytest.param({PORTS[0]: Fragment(shared={"s": 1}), PORTS[1]: Fragment(shared={"s": 2})}, {}, id="two values"),
        pytest.param({PORTS[0]: Fragment(shared={"s": 1})}, {"s": 1}, id="shared with the scaffold"),
    ],
)
def test_breaches_of_the_contract_are_loud(fragments: Any, scaffold: Any) -> None:
    with pytest.raises(ContractError):
        link(fragments, scaffold)


def test_a_new_scaffold_keeps_the_shared_objects() -> None:
    program: Program[str, int] = link({PORTS[0]: Fragment(shared={"s": 1})}, {"base": 1})
    assert replace(program, {}, {"base": 2, "more": 1}).common == {"base": 2, "more": 1, "s": 1}
