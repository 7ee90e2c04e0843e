"""Requests are read from bytes, whole or not; answers are written as HTTP/1.1 has it."""

import contextlib
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.runtime.http_messages import (
    LARGEST_REQUEST,
    BadRequestError,
    Request,
    Response,
    encode_response,
    parse_request,
)


@pytest.mark.parametrize(
    ("data", "method", "path"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/healthz"),
        (b"GET / HTTP/1.0\r\n\r\n", "GET", "/"),
        (b"GET /a?b=c#d HTTP/1.1\n\n", "GET", "/a"),
        (b"\r\n\r\nHEAD /x HTTP/1.1\r\n\r\n", "HEAD", "/x"),
        (b"OPTIONS * HTTP/1.1\r\n\r\n", "OPTIONS", "*"),
        (b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", "POST", "/"),
        (b"GET http://node.example:10256/healthz?x HTTP/1.1\r\n\r\n", "GET", "/healthz"),
        (b"GET http://node.example:10256 HTTP/1.1\r\n\r\n", "GET", "/"),
    ],
)
def test_requests(data: bytes, method: str, path: str) -> None:
    assert parse_request(data) == Request(method=method, path=path)


@pytest.mark.parametrize("data", [b"", b"G", b"GET / HTTP/1.1", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n", b"\r\n"])
def test_half_a_request_is_waited_for(data: bytes) -> None:
    assert parse_request(data) is None


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET /a b HTTP/1.1\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\n",
        b" GET / HTTP/1.1\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
    ],
)
def test_garbage_is_refused_by_its_first_line(data: bytes) -> None:
    with pytest.raises(BadRequestError) as told:
        parse_request(data)
    assert told.value.status == 400


def test_endless_heads_are_refused() -> None:
    with pytest.raises(BadRequestError) as told:
        parse_request(b"GET / HTTP/1.1\r\nA: " + b"a" * LARGEST_REQUEST)
    assert told.value.status == 431


def test_an_answer_and_its_head_alone() -> None:
    response = Response(status=HTTPStatus.SERVICE_UNAVAILABLE, body=b"no\n", headers={"X-Weight": "0"})
    whole = encode_response(response)
    head, separator, body = whole.partition(b"\r\n\r\n")
    assert body == b"no\n"
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 503 Service Unavailable",
        b"Content-Type: text/plain; charset=utf-8",
        b"Content-Length: 3",
        b"X-Content-Type-Options: nosniff",
        b"Connection: close",
        b"X-Weight: 0",
    ]
    assert encode_response(response, with_body=False) == head + separator


@given(st.binary(max_size=200))
def test_any_bytes_are_read_wait_or_are_refused(data: bytes) -> None:
    request: Request | None = None
    with contextlib.suppress(BadRequestError):
        request = parse_request(data)
    assert request is None or (request.method and request.path)


@given(st.integers(1, 40))
def test_a_request_in_pieces_is_the_same(cut: int) -> None:
    data = b"GET /healthz HTTP/1.1\r\nHost: node:10256\r\n\r\n"
    assert parse_request(data[:cut]) is None
    assert parse_request(data) == Request(method="GET", path="/healthz")
