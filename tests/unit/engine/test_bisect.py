"""Refused batches are divided so that culprits are soon alone and keys that move stay in one step."""

import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.engine.bisect import Batch, culprits_of, divide, linked_groups
from kproxy_core.model.names import ServicePortKey
from kproxy_core.plugin.backend import Failure
from kproxy_core.program.program import Fragment
from kproxy_core.testing.sketch import port_key

PORTS = tuple(port_key(f"n/s{number}") for number in range(20))
A, B, C, D = PORTS[:4]
Fragments = dict[ServicePortKey, Fragment[str, int]]


def fragments(**keys: str) -> Fragments:
    """``a="x y"``: Service port A has the keys x and y."""
    names = {"a": A, "b": B, "c": C, "d": D}
    return {names[name]: Fragment(own=dict.fromkeys(text.split(), 1)) for name, text in keys.items()}


def test_service_ports_between_which_a_key_moves_are_a_group() -> None:
    before, after = fragments(a="x", b="y", c="z"), fragments(a="y", b="q", c="r", d="z")
    assert set(linked_groups((A, B, C, D), before, after)) == {(A, B), (C, D)}


def test_a_group_of_a_chain_of_moves_is_one() -> None:
    before, after = fragments(a="1", b="2", c="3"), fragments(b="1", c="2", d="3")
    assert linked_groups((A, B, C, D), before, after) == ((A, B, C, D),)


def test_a_removal_links_with_the_heir() -> None:
    after: Mapping[ServicePortKey, Fragment[str, int] | None] = {A: None, **fragments(b="x")}
    assert linked_groups((A, B), fragments(a="x"), after) == ((A, B),)


def test_keys_that_stay_link_nobody() -> None:
    same = fragments(a="x", b="y")
    assert linked_groups((A, B), same, same) == ((A,), (B,))


def test_groups_stay_whole_while_there_is_anything_else_to_divide() -> None:
    before, after = fragments(a="x", b="y"), fragments(a="y", b="x", c="z")
    assert {frozenset(part) for part in divide((A, C, B), before, after)} == {frozenset({A, B}), frozenset({C})}
    assert {frozenset(part) for part in divide((A, B), before, after)} == {frozenset({A}), frozenset({B})}
    assert divide((A,), before, after) == ()


@given(st.sets(st.sampled_from(PORTS), min_size=2), st.dictionaries(st.sampled_from(PORTS), st.sampled_from("uvwxyz")))
def test_the_parts_are_the_batch_and_neither_is_empty(batch: set[ServicePortKey], moves: dict[ServicePortKey, str]) -> None:
    before = {port: Fragment(own={key: 1}) for port, key in moves.items()}
    after = {port: Fragment(own={chr(ord(key) ^ 1): 1}) for port, key in moves.items()}
    first, second = divide(tuple(batch), before, after)
    assert first
    assert second
    assert not set(first) & set(second)
    assert set(first) | set(second) == batch


@given(st.integers(2, 20), st.data())
def test_a_culprit_is_alone_after_about_two_times_log2_trials(count: int, data: st.DataObject) -> None:
    culprit = data.draw(st.sampled_from(PORTS[:count]))
    trials, queue = 0, [PORTS[:count]]
    alone: list[Batch] = []
    while queue:
        batch = queue.pop(0)
        trials += 1
        if culprit in batch:
            parts = divide(batch, {}, {})
            queue.extend(parts)
            alone += [] if parts else [batch]
    assert alone == [(culprit,)]
    assert trials <= 1 + 2 * math.ceil(math.log2(count))


def test_a_refused_key_is_the_fault_of_who_wants_it_else_of_who_wants_to_be_rid_of_it() -> None:
    before, after = fragments(a="x", b="y"), fragments(a="q", b="x")
    failures = [Failure(message="no x", keys=("x",)), Failure(message="no q", keys=("q",))]
    assert culprits_of(failures, (A, B), before, after) == {B: "no x", A: "no q"}
    assert culprits_of([Failure(message="no y", keys=("y",))], (A, B), before, after) == {B: "no y"}
    assert culprits_of([Failure(message="?", keys=("shared",))], (A, B), before, after) == {}
    assert culprits_of([Failure(message="?")], (A, B), before, after) == {}


def test_the_first_reason_counts() -> None:
    failures = [Failure(message="first", keys=("x",)), Failure(message="second", keys=("x",))]
    assert culprits_of(failures, (A,), {}, fragments(a="x")) == {A: "first"}
