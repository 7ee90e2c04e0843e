"""Reading YAML and JSON text: Kubernetes' idea of scalars, duplicate keys, and broken text with its line."""

from typing import Any

import pytest

from kproxy_core.sources.documents import BrokenTextError, Documents, DuplicateKey, read_text


def data(text: str) -> list[Any]:
    return [document.data for document in read_text(text.encode()).documents]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("yes", "yes", id="yes is no boolean"),
        pytest.param("no", "no", id="Norway"),
        pytest.param("on", "on", id="on"),
        pytest.param("true", True, id="true"),
        pytest.param("False", False, id="False"),
        pytest.param("~", None, id="tilde"),
        pytest.param("null", None, id="null"),
        pytest.param("", None, id="nothing"),
        pytest.param("80", 80, id="a number"),
        pytest.param("-1", -1, id="negative"),
        pytest.param("0", 0, id="zero"),
        pytest.param("010", "010", id="no octal"),
        pytest.param("0x10", "0x10", id="no hexadecimal"),
        pytest.param("10:20", "10:20", id="no base 60"),
        pytest.param("1_000", "1_000", id="no underscores"),
        pytest.param("1.5", "1.5", id="no floats"),
        pytest.param("2026-01-01", "2026-01-01", id="no date"),
        pytest.param("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", id="no time"),
        pytest.param('"80"', "80", id="quoted"),
        pytest.param("10.0.0.1", "10.0.0.1", id="an address"),
        pytest.param("fd00::1", "fd00::1", id="an IPv6 address"),
    ],
)
def test_scalars(text: str, expected: object) -> None:
    assert data(f"value: {text}\nother: x\n") == [{"value": expected, "other": "x"}]


def test_several_documents_with_their_lines_empty_ones_left_out() -> None:
    found = read_text(b"# a comment\n---\na: 1\n---\n---\n# nothing\n---\nb: 2\n...\n")
    assert [(document.data, document.line) for document in found.documents] == [({"a": 1}, 3), ({"b": 2}, 8)]


def test_anchors_and_merge_keys_work() -> None:
    assert data("base: &b {x: 1, y: 2}\nmade: {<<: *b, y: 3}\n") == [{"base": {"x": 1, "y": 2}, "made": {"x": 1, "y": 3}}]
    assert read_text(b"base: &b {y: 2}\nmade: {<<: *b, y: 3}\n").duplicates == ()


def test_a_byte_order_mark_is_no_text() -> None:
    assert read_text("\ufeffa: 1".encode()).documents[0].data == {"a": 1}


def test_json_is_read_as_json() -> None:
    assert data('{"a": [1, 1.5, "yes"], "b": null}') == [{"a": [1, 1.5, "yes"], "b": None}]
    assert data("{a: yes}") == [{"a": "yes"}], "a flow mapping is YAML"


def test_duplicate_keys_are_told_and_the_last_counts() -> None:
    found = read_text(b"a: 1\nb:\n  c: 2\n  c: 3\na: 4\n")
    assert found.documents[0].data == {"a": 4, "b": {"c": 3}}
    assert sorted(found.duplicates, key=lambda d: d.line) == [DuplicateKey("c", 4), DuplicateKey("a", 5)]
    assert read_text(b'{"a": 1, "a": 2}') == Documents(
        documents=read_text(b'{"a": 2}').documents, duplicates=(DuplicateKey("a", 0),)
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(b"a: 1\nb: [1, 2\n", 3, id="an open bracket"),
        pytest.param(b"a: 1\n b: 2\n", 2, id="odd indentation"),
        pytest.param(b"a: 1\n---\nb: \tx\n\tc: 2\n", 4, id="a tab in the second document"),
        pytest.param(b"a: 1\nb: *nowhere\n", 2, id="an unknown alias"),
        pytest.param(b"a: !!python/object:os.system x\n", 1, id="an unsafe tag"),
        pytest.param(b"? {a: 1}\n: 2\n", 1, id="a mapping as key"),
        pytest.param(b'{"a": 1,\n"b": }', 2, id="JSON"),
        pytest.param(b'{"a": 1', 1, id="half of a JSON document"),
        pytest.param(b"a: 1\nb: \xff\n", 2, id="not UTF-8"),
        pytest.param(b"a: \x00\n", 1, id="a control character"),
        pytest.param(b"a: " + b"1" * 5000 + b"\n", 1, id="a number without end"),
        pytest.param(b'{"a": ' + b"1" * 5000 + b"}", 1, id="the same in JSON"),
        pytest.param(b'{"a":' * 5000, 1, id="nested without end in JSON"),
    ],
)
def test_broken_text_is_refused_as_a_whole_with_its_line(text: bytes, line: int) -> None:
    with pytest.raises(BrokenTextError) as caught:
        read_text(text)
    assert caught.value.line == line
    assert str(caught.value)


@pytest.mark.parametrize(
    "value", ['!!int ""', "!!bool x", '!!float ""', "!!timestamp x", "!!set [1]", "!!pairs [1]", "!!binary x"]
)
def test_a_tag_that_promises_what_is_not_there_breaks_the_text_and_nothing_else(value: str) -> None:
    with pytest.raises(BrokenTextError):
        read_text(f"a: {value}\n".encode())
