"""Packed endpoints: to who reads them a sequence like any other, whatever they are held as."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kproxy_core.model.addresses import Address
from kproxy_core.model.packed import NOWHERE, Packed, kind_of, packed
from kproxy_core.model.state import Endpoint

ADDRESSES = st.binary(min_size=4, max_size=4).map(Address)
EITHER = st.one_of(ADDRESSES, st.binary(min_size=16, max_size=16).map(Address))


def endpoints(addresses: st.SearchStrategy[Address]) -> st.SearchStrategy[tuple[Endpoint, ...]]:
    made = st.builds(
        Endpoint,
        address=addresses,
        port=st.sampled_from([80, 443]),
        ready=st.booleans(),
        local=st.booleans(),
        zone_hints=st.sampled_from([frozenset(), frozenset({"east"})]),
    )
    # All of one kind, too, and more than there is a form for.
    alike = st.builds(
        lambda one, many: tuple(replace(one, address=each) for each in many), made, st.lists(addresses, max_size=200)
    )
    return st.one_of(st.lists(made, max_size=20).map(tuple), alike)


@given(endpoints(EITHER), st.data())
def test_it_is_the_sequence_that_it_was_made_of(made: tuple[Endpoint, ...], data: st.DataObject) -> None:
    found = packed(made)
    assert tuple(found) == made
    assert found == made
    assert (len(found), bool(found), repr(found)) == (len(made), bool(made), repr(made))
    assert all(type(endpoint.address) is Address for endpoint in found)
    assert tuple(found.addresses) == tuple(endpoint.address for endpoint in made)
    assert tuple(found.kinds) == tuple(replace(endpoint, address=NOWHERE) for endpoint in made)
    assert {*found.distinct_kinds} == {*found.kinds}
    assert [replace(kind, address=Address(address)) for address, kind in found.pairs()] == [*made]
    part = data.draw(st.slices(len(made)))
    assert found[part] == made[part]
    if made:
        index = data.draw(st.integers(-len(made), len(made) - 1))
        assert found[index] == made[index]
        assert made[index] in found


@given(endpoints(EITHER))
def test_elements_are_chosen_by_what_they_have_beside_the_address(made: tuple[Endpoint, ...]) -> None:
    found = packed(made)
    assert found.where(lambda endpoint: endpoint.ready) == tuple(endpoint for endpoint in made if endpoint.ready)
    assert found.where(lambda _: True) is found
    assert found.where(lambda _: False) == ()


@given(endpoints(ADDRESSES), endpoints(EITHER))
def test_equal_ones_are_equal_and_no_others(one: tuple[Endpoint, ...], other: tuple[Endpoint, ...]) -> None:
    assert (packed(one) == packed(other)) == (one == other)
    assert packed(one) == packed(list(one))
    assert hash(packed(one)) == hash(packed(list(one)))
    assert packed(one) != [*one]
    again = packed(one)
    assert packed(again) is again


def test_addresses_of_different_lengths_do_not_run_into_one_another() -> None:
    short, long = Endpoint(address=Address(b"\1\2\3\4"), port=1), Endpoint(address=Address(b"\1\2\3\4" * 4), port=1)
    assert packed([long]) != packed([short] * 4)
    assert packed([short, long]) != packed([long, short])
    assert Packed() == packed([])


@given(endpoints(ADDRESSES))
def test_equal_kinds_are_one_object(made: tuple[Endpoint, ...]) -> None:
    kinds = [kind_of(endpoint) for endpoint in made]
    assert len(set(map(id, kinds))) == len(set(kinds))
