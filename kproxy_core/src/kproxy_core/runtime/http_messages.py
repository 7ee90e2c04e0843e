"""Requests and answers of HTTP/1 as bytes, no more than health checks and scrapers need: one request a connection. Pure."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from attrs import field, frozen

LARGEST_REQUEST: Final = 16 * 1024
"""Bytes of a request's head; what probes send is a few hundred."""

_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/1\.([0-9])")


class BadRequestError(ValueError):
    """What came in is no request; ``status`` is what to answer."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


@frozen(kw_only=True)
class Request:
    """A request: method and path, without the query."""

    method: str
    path: str


@frozen(kw_only=True)
class Response:
    """An answer."""

    status: HTTPStatus = HTTPStatus.OK
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(factory=dict)


def parse_request(data: bytes) -> Request | None:
    """Read the head of a request; None while it is incomplete. A body is ignored. Raises :class:`BadRequestError`.

    The path may also be a whole URL, as proxies send it (RFC 9112 section 3.2.2).
    """
    end = re.search(rb"\r?\n\r?\n", data)
    if end is None and len(data) <= LARGEST_REQUEST:
        # Garbage is told as soon as its first line is there, and need not be waited for.
        if b"\n" in data.lstrip(b"\r\n"):
            _request_line(data)
        return None
    if end is None:
        raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    return _request_line(data)


def _request_line(data: bytes) -> Request:
    # Empty lines before it are to be ignored (RFC 9112 section 2.2).
    line = data.lstrip(b"\r\n").partition(b"\n")[0].removesuffix(b"\r")
    match = _LINE.fullmatch(line)
    if match is None:
        raise BadRequestError(HTTPStatus.BAD_REQUEST)
    target = match[2].decode("ascii").partition("?")[0]
    if not target.startswith("/"):
        scheme, separator, rest = target.partition("://")
        target = f"/{rest.partition('/')[2]}" if scheme and separator else target
    return Request(method=match[1].decode("ascii"), path=target)


def encode_response(response: Response, *, with_body: bool = True) -> bytes:
    """Return the bytes of an answer, after which the connection is closed."""
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "X-Content-Type-Options": "nosniff",
        "Connection": "close",
        **response.headers,
    }
    lines = [f"HTTP/1.1 {response.status.value} {response.status.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head + response.body if with_body else head
