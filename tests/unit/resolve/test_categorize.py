"""Which endpoints each traffic policy may choose from: readiness, the fallback to terminating ones, topology hints."""

from collections.abc import Sequence

import pytest

from kproxy_core.model.addresses import parse_address
from kproxy_core.model.packed import packed
from kproxy_core.model.state import Endpoint, EndpointSets, NodeContext
from kproxy_core.resolve.categorize import categorize, level_zero_weights

NODE = NodeContext(name="here", zone="east")


def endpoint(text: str) -> Endpoint:
    """``a here terminating zone:east node:here``; the letter is the address."""
    letter, *words = text.split()
    hints = {kind: frozenset(w.removeprefix(f"{kind}:") for w in words if w.startswith(f"{kind}:")) for kind in ("zone", "node")}
    return Endpoint(
        address=parse_address(f"10.0.0.{ord(letter)}"),
        port=80,
        ready=not {"terminating", "notready", "dead"} & set(words),
        serving=not {"notready", "dead"} & set(words),
        terminating="terminating" in words,
        local="here" in words,
        zone_hints=hints["zone"],
        node_hints=hints["node"],
    )


def letters(endpoints: Sequence[Endpoint]) -> str:
    return "".join(chr(e.address[3]) for e in endpoints)


def sets(*texts: str, node: NodeContext = NODE, use_cluster: bool = True, use_local: bool = True) -> EndpointSets:
    return categorize(packed(map(endpoint, texts)), node, use_cluster=use_cluster, use_local=use_local)


@pytest.mark.parametrize(
    ("texts", "cluster", "local", "any_in_cluster"),
    [
        pytest.param([], "", "", False, id="nothing"),
        pytest.param(["a", "b here"], "ab", "b", True, id="ready ones"),
        pytest.param(["a", "b notready here"], "a", "", True, id="one not ready"),
        pytest.param(["a notready", "b dead"], "", "", False, id="none usable"),
        pytest.param(["a", "b terminating here"], "a", "b", True, id="s13: the last local one terminates, others are ready"),
        pytest.param(["a terminating", "b terminating here"], "ab", "b", True, id="s13: all terminate"),
        pytest.param(["a here", "b terminating here"], "a", "a", True, id="s13: no terminating one while another is ready"),
        pytest.param(["a terminating", "b here"], "b", "b", True, id="s13: only a remote one terminates"),
        pytest.param(["a terminating dead here"], "", "", False, id="terminating without serving is no use"),
        pytest.param(["a notready here", "b"], "b", "", True, id="s2: endpoints elsewhere only"),
    ],
)
def test_s13_ready_ones_or_separately_for_each_set_serving_terminating_ones(
    texts: list[str], cluster: str, local: str, any_in_cluster: bool
) -> None:
    found = sets(*texts)
    assert (letters(found.cluster), letters(found.local), found.any_in_cluster) == (cluster, local, any_in_cluster)
    assert letters(found.reachable) == "".join(sorted({*cluster, *local}))


def test_s39_ready_without_serving_is_used_as_publish_not_ready_addresses_wants() -> None:
    odd = Endpoint(address=parse_address("10.0.0.97"), port=80, ready=True, serving=False, terminating=True, local=True)
    found = categorize(packed([odd]), NODE, use_cluster=True, use_local=True)
    assert found.cluster == found.local == (odd,)


def test_sets_that_no_policy_uses_stay_empty() -> None:
    texts = ["a", "b here"]
    assert sets(*texts, use_local=False).local == ()
    only_local = sets(*texts, use_cluster=False)
    assert (letters(only_local.cluster), letters(only_local.local), letters(only_local.reachable)) == ("", "b", "b")


def test_s2_any_in_cluster_is_true_even_where_only_local_ones_are_asked_for() -> None:
    found = sets("a", use_cluster=False)
    assert (letters(found.reachable), found.any_in_cluster) == ("", True)


@pytest.mark.parametrize(
    ("texts", "cluster"),
    [
        pytest.param(["a zone:east", "b zone:west"], "a", id="s42: those of this zone"),
        pytest.param(["a zone:east zone:west", "b zone:west"], "a", id="s42: one hint of several"),
        pytest.param(["a zone:east", "b"], "ab", id="s42: one without a hint, so all"),
        pytest.param(["a zone:north", "b zone:west"], "ab", id="s42: none for this zone, so all"),
        pytest.param(["a node:here", "b node:there"], "a", id="node hints"),
        pytest.param(["a node:here zone:west", "b node:there zone:east"], "a", id="node hints before zone hints"),
        pytest.param(["a node:there zone:east", "b node:there zone:west"], "a", id="no node hint fits, so zone hints"),
        pytest.param(["a node:here zone:east", "b zone:west"], "a", id="one without a node hint, so zone hints"),
        pytest.param(["a node:here", "b zone:east"], "ab", id="neither complete"),
        pytest.param(["a zone:east", "b zone:west", "c notready"], "a", id="what is not ready needs no hint"),
        pytest.param(["a zone:west", "b zone:east terminating"], "a", id="a terminating one's hint does not count"),
        pytest.param(
            ["a terminating zone:east", "b terminating zone:west"], "ab", id="s41: hints are no matter when none is ready"
        ),
    ],
)
def test_s42_hints_are_all_or_nothing(texts: list[str], cluster: str) -> None:
    assert letters(sets(*texts, use_local=False).cluster) == cluster


def test_s42_hints_need_a_known_zone_and_node() -> None:
    nowhere = NodeContext()
    assert letters(sets("a zone:east node:here", "b zone: node:", node=nowhere, use_local=False).cluster) == "ab"


def test_hints_narrow_the_cluster_set_only() -> None:
    found = sets("a zone:east", "b zone:west here")
    assert (letters(found.cluster), letters(found.local), letters(found.reachable)) == ("a", "b", "ab")


def test_only_sets_in_which_every_weight_is_zero_are_levelled() -> None:
    weighted = [Endpoint(address=parse_address(f"10.0.0.{n}"), port=80, weight=w, local=n == 1) for n, w in ((1, 0), (2, 4))]
    found = categorize(packed(weighted), NODE, use_cluster=True, use_local=True)
    levelled = level_zero_weights(found)
    assert levelled is not None
    assert [e.weight for e in levelled.cluster] == [0, 4]
    assert [e.weight for e in levelled.local] == [1]
    assert len(levelled.reachable) == 2


@pytest.mark.parametrize("weights", [[], [1], [0, 1]])
def test_other_weights_are_left_alone(weights: list[int]) -> None:
    endpoints = packed(Endpoint(address=parse_address(f"10.0.0.{n}"), port=80, weight=w) for n, w in enumerate(weights, 1))
    assert level_zero_weights(categorize(endpoints, NODE, use_cluster=True, use_local=False)) is None
