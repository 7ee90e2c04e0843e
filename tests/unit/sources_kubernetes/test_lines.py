"""Lines put together from pieces: any split gives the same, and the cost is linear."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.sources.kubernetes import lines
from kproxy_core.sources.kubernetes.lines import LineBuffer, LineTooLongError

TEXTS = st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=20), max_size=8)


@given(TEXTS, st.lists(st.integers(0, 200), max_size=30))
def test_any_split_even_within_a_character_gives_the_same_lines(texts: list[str], cuts: list[int]) -> None:
    data = b"".join(text.encode() + b"\n" for text in texts)
    edges = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    buffer = LineBuffer()
    found = [line for start, end in itertools.pairwise(edges) for line in buffer.feed(data[start:end])]
    assert [line.decode() for line in found] == texts
    assert not buffer.unfinished


def test_a_line_in_many_pieces_is_joined_once() -> None:
    buffer = LineBuffer()
    for _ in range(10_000):
        assert buffer.feed(b"x") == []
    assert len(buffer._parts) == 10_000
    assert buffer.feed(b"\nrest") == [b"x" * 10_000]
    assert buffer._parts == [b"rest"]
    assert buffer.unfinished
    buffer.clear()
    assert buffer.feed(b"\n") == [b""]


def test_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 100)
    buffer = LineBuffer()
    buffer.feed(b"x" * 100)
    with pytest.raises(LineTooLongError, match="101 bytes"):
        buffer.feed(b"x")
