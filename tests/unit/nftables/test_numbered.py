"""Objects that stand for several elements: packed, taken apart and told apart, nothing is lost and nothing made up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.program.delta import diff
from kproxy_core.wire.errors import RepeatedElementError
from kproxy_nftables import numbered
from kproxy_nftables.objects import Key, Value

PLACE = "ip endpoints"
IDS = st.sampled_from([b"\0\0\0\1", b"\0\0\0\2", b"\1\0\0\0"])
NUMBERS = st.binary(min_size=4, max_size=4) | st.integers(0, 3).map(lambda slot: slot.to_bytes(4, "little"))
ELEMENTS = st.dictionaries(st.tuples(IDS, NUMBERS).map(b"".join), st.binary(min_size=8, max_size=8), max_size=12)


@given(ELEMENTS, st.randoms())
def test_elements_become_objects_in_whatever_order_and_come_out_again(elements: dict[bytes, bytes], chance: object) -> None:
    shuffled = list(elements.items())
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    objects = numbered.gathered(shuffled)
    assert objects == numbered.gathered(elements.items())
    unpacked = numbered.Elements(PLACE, objects)
    assert dict(unpacked.pairs()) == elements == dict(unpacked)
    assert len(unpacked) == len(elements)
    assert objects.keys() == {key[:4] for key in elements}
    for identity, packed in objects.items():
        assert packed == numbered.pack((key[4:], data) for key, data in shuffled if key[:4] == identity)


@given(ELEMENTS.filter(bool))
def test_an_element_that_is_told_twice_is_noticed(elements: dict[bytes, bytes]) -> None:
    with pytest.raises(RepeatedElementError):
        numbered.gathered([*elements.items(), next(iter(elements.items()))])


@given(ELEMENTS, ELEMENTS)
def test_what_differs_between_objects_is_what_differs_between_their_elements(
    old: dict[bytes, bytes], new: dict[bytes, bytes]
) -> None:
    before, after = numbered.gathered(old.items()), numbered.gathered(new.items())
    both = before.keys() & after.keys()
    added, swapped, removed = numbered.differences(PLACE, {identity: (before[identity], after[identity]) for identity in both})
    wanted = diff(
        {key: data for key, data in old.items() if key[:4] in both}, {key: data for key, data in new.items() if key[:4] in both}
    )
    assert dict(numbered.Elements(PLACE, added)) == wanted.added
    assert swapped == wanted.changed
    assert dict(numbered.Elements(PLACE, removed)) == wanted.removed


@given(ELEMENTS)
def test_objects_of_other_kinds_are_left_as_they_are(elements: dict[bytes, bytes]) -> None:
    others: dict[Key, Value] = {("ip actions", b"\0" * 12): b"\1\0\0\0", ("ip", "table"): b""}
    packed: dict[Key, Value] = {(PLACE, identity): rows for identity, rows in numbered.gathered(elements.items()).items()}
    single: dict[Key, Value] = {(PLACE, key): data for key, data in elements.items()}
    assert numbered.spread({**others, **packed}) == {**others, **single}
