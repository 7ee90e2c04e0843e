"""From a request to its answer: who asks, whether they may, and which part of the server answers."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from attrs import evolve, field, frozen

from kproxy_core.testing.fake_api.answers import ApiError, forbidden, no_such_path, unauthorized
from kproxy_core.testing.fake_api.faults import ANY, Faults, Request
from kproxy_core.testing.fake_api.http import HttpAnswer, HttpRequest
from kproxy_core.testing.fake_api.lists import Lists
from kproxy_core.testing.fake_api.log import RequestLog
from kproxy_core.testing.fake_api.resources import Target, in_served_group, target
from kproxy_core.testing.fake_api.store import Store
from kproxy_core.testing.fake_api.streams import Stream, Writer, error_line, plan_watch
from kproxy_core.testing.fake_api.writes import Write, Writes

ANONYMOUS = "system:anonymous"
VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "fake",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}
PLAIN_TEXT = "text/plain; charset=utf-8"
HEALTH = ("/healthz", "/livez", "/readyz")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class Access:
    """Who is known and what is forbidden; change it at any time.

    ``tokens`` maps bearer tokens to users, ``revoked`` are serial numbers of client certificates that are refused, ``forbidden``
    pairs of verb and plural (``*`` for any), ``absent`` the plurals that are not served at all.
    """

    def __init__(self) -> None:
        self.tokens = {"secret": "system:node-proxier"}
        self.revoked: set[int] = set()
        self.forbidden: set[tuple[str, str]] = set()
        self.absent: set[str] = set()

    def user(self, request: HttpRequest) -> str:
        """Tell who asks. Raises ApiError for credentials that are not known."""
        authorization = request.headers.get("authorization") or ""
        if authorization:
            user = self.tokens.get(authorization.removeprefix("Bearer "))
            if user is None:
                raise unauthorized()
            return user
        if request.certificate:
            if int(request.certificate["serialNumber"], 16) in self.revoked:
                raise unauthorized()
            return _common_name(request.certificate)
        return ANONYMOUS

    def check(self, request: Request, wanted: Target) -> None:
        """Raise ApiError when the user may not do this, or the resource is not served."""
        denied = request.user == ANONYMOUS or any(
            (verb, plural) in self.forbidden for verb in (ANY, request.verb) for plural in (ANY, request.resource)
        )
        if denied:
            raise forbidden(request.user, request.verb, wanted.resource, wanted.namespace, wanted.name)
        if wanted.resource.plural in self.absent:
            raise no_such_path()


@frozen(kw_only=True)
class Routes:
    """Answers requests. ``streams`` holds the watches that are being answered, guarded by the store's lock."""

    store: Store
    lists: Lists
    writes: Writes
    faults: Faults
    access: Access
    log: RequestLog
    bookmark_interval: Callable[[], float]
    streams: list[Stream] = field(factory=list)

    def answer(self, http: HttpRequest) -> HttpAnswer:
        """Answer one request and log it."""
        found = target(http.path)
        request = _described(http, found)
        try:
            request = evolve(request, user=self.access.user(http))
            answer = self._checked(http, request, found)
        except ApiError as error:
            retry = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
            answer = HttpAnswer(status=error.code, body=error.body, headers=retry)
        self.log.add(evolve(request, status=answer.status))
        return answer

    def _checked(self, http: HttpRequest, request: Request, found: Target | None) -> HttpAnswer:
        refusal = self.faults.refusal(request)
        if refusal is not None:
            raise refusal
        if found is None:
            return _unversioned(http.path)
        self.access.check(request, found)
        if http.method != "GET":
            return self._write(http, found)
        if request.verb == "watch":
            return self._watch(http.query, found)
        if found.name:
            return HttpAnswer(body=self.lists.get(found))
        return HttpAnswer(body=self.lists.list(found, http.query))

    def _write(self, http: HttpRequest, found: Target) -> HttpAnswer:
        if http.method not in ("POST", "PUT", "PATCH", "DELETE"):
            raise ApiError(405, "the server does not allow this method on the requested resource")
        content_type = http.headers.get("content-type") or "application/json"
        write = Write(method=http.method, target=found, body=http.body, content_type=content_type, query=http.query)
        status, body = self.writes.perform(write)
        return HttpAnswer(status=status, body=body)

    def _watch(self, query: Mapping[str, str], found: Target) -> HttpAnswer:
        stream = Stream(self.store, plan_watch(found, query, self.faults), self.bookmark_interval())
        refusal = stream.check_start()
        if refusal is not None:
            if self.faults.expired_as_http:
                raise refusal
            line = error_line(refusal)
            return HttpAnswer(stream=lambda writer: _one_line(writer, line))
        return HttpAnswer(stream=lambda writer: self._run(stream, writer))

    def _run(self, stream: Stream, writer: Writer) -> None:
        with self.store.changed:
            self.streams.append(stream)
        try:
            stream.run(writer)
        finally:
            with self.store.changed:
                self.streams.remove(stream)


def _one_line(writer: Writer, line: bytes) -> None:
    writer.chunk(line)
    writer.end()


def _described(http: HttpRequest, found: Target | None) -> Request:
    if http.method == "GET":
        watching = http.query.get("watch") in ("1", "true")
        verb = "watch" if watching else "get" if found is None or found.name else "list"
    elif http.method == "DELETE":
        verb = "delete" if found and found.name else "deletecollection"
    else:
        verb = _VERBS.get(http.method, http.method.lower())
    return Request(
        verb=verb,
        resource=found.resource.plural if found else "",
        path=http.path,
        query=http.query,
        at=time.monotonic(),
        agent=http.headers.get("user-agent") or "",
    )


def _unversioned(path: str) -> HttpAnswer:
    if path == "/version":
        return HttpAnswer(body=msgspec.json.encode(VERSION))
    if path in HEALTH:
        return HttpAnswer(body=b"ok", content_type=PLAIN_TEXT)
    if in_served_group(path):
        raise no_such_path()
    return HttpAnswer(status=404, body=b"404 page not found\n", content_type=PLAIN_TEXT)


def _common_name(certificate: Mapping[str, Any]) -> str:
    names = [value for part in certificate["subject"] for name, value in part if name == "commonName"]
    return str(names[0]) if names else ANONYMOUS
