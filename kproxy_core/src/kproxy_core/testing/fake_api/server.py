"""FakeApi: an API server for tests, with the resources that a service proxy watches and writes."""

import ssl
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from kproxy_core.testing.fake_api.admission import SERVICE_RANGES
from kproxy_core.testing.fake_api.answers import ApiError
from kproxy_core.testing.fake_api.certificates import Authority, Certificate
from kproxy_core.testing.fake_api.faults import Faults
from kproxy_core.testing.fake_api.http import HttpServer
from kproxy_core.testing.fake_api.lists import Lists
from kproxy_core.testing.fake_api.log import RequestLog
from kproxy_core.testing.fake_api.resources import Object, Resource
from kproxy_core.testing.fake_api.routes import Access, Routes
from kproxy_core.testing.fake_api.store import Store, Stored
from kproxy_core.testing.fake_api.streams import Command, Stream, Writer, error_line
from kproxy_core.testing.fake_api.writes import Writes, resource_of

USUAL_BOOKMARK_INTERVAL = 60.0
"""Seconds between the bookmarks of a quiet watch, as kube-apiserver 1.36 sends them."""

ACCEPT_POLL = 0.02


class FakeApi:
    """An API server on loopback; starts with ``start`` or as a context manager, and stops with its state kept.

    It knows the bearer token ``secret`` and the client certificates of ``client_authority``; other credentials are answered with
    401, none with 403, as kube-apiserver does. What is there at first: the namespaces default and kube-system, the ServiceCIDR
    ``kubernetes``. ``tls`` false serves plain HTTP, which costs less where the transport is not what is tested.

    ``address`` may be any of the network namespace in which ``start`` is called; ``port`` 0 takes a free one, and keeps it.
    """

    def __init__(
        self,
        *,
        tls: bool = True,
        bookmark_interval: float = USUAL_BOOKMARK_INTERVAL,
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.tls = tls
        self.address = address
        self.bookmark_interval = bookmark_interval
        self.faults = Faults()
        self.access = Access()
        self.log = RequestLog()
        self.store = Store()
        self.server_authority = Authority("fake-api-server-ca")
        self.client_authority = Authority("fake-api-client-ca")
        self._lists = Lists(self.store)
        self._writes = Writes(self.store)
        self._routes = Routes(
            store=self.store,
            lists=self._lists,
            writes=self._writes,
            faults=self.faults,
            access=self.access,
            log=self.log,
            bookmark_interval=lambda: self.bookmark_interval,
        )
        self._http: HttpServer | None = None
        self._context: ssl.SSLContext | None = None
        self._port = port
        self._install_first_objects()

    # ------------------------------------------------------------------ life

    def start(self) -> Self:
        """Start, on the same port again after ``stop``. Return itself."""
        assert self._http is None, "already started"
        self._http = HttpServer((self.address, self._port), self._routes.answer, self.faults)
        self._port = self._http.port
        if self.tls and self._context is None:
            self.rotate_server_certificate()
        self._http.context = self._context
        threading.Thread(target=self._http.serve_forever, args=(ACCEPT_POLL,), name="fake-api", daemon=True).start()
        return self

    def stop(self) -> None:
        """Stop: break all connections and refuse new ones. Objects, versions and history are kept."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http.break_connections()
            self._http = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.faults.restore()
        self.stop()

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'https' if self.tls else 'http'}://{host}:{self._port}"

    @property
    def open_connections(self) -> int:
        """How many connections clients hold at present."""
        return self._http.open_connections if self._http else 0

    @property
    def accepted_connections(self) -> int:
        """How many connections have been accepted since the last start."""
        return self._http.accepted if self._http else 0

    # --------------------------------------------------------------- objects

    def apply(self, obj: Object) -> Stored:
        """Create or replace an object, its status included. Raises ApiError when it is not valid."""
        return self._writes.apply(obj)

    def apply_all(self, objects: Iterable[Object]) -> None:
        """Create or replace many objects; watches are woken once."""
        self._writes.apply_all(list(objects))

    def delete(self, resource: Resource, name: str, namespace: str = "") -> Stored | None:
        """Delete an object; return its last state, or None when there was none."""
        return self.store.delete(resource, (namespace, name))

    def delete_object(self, obj: Object) -> Stored | None:
        """Delete the object that ``obj`` names."""
        metadata = obj["metadata"]
        return self.delete(resource_of(obj), metadata["name"], metadata.get("namespace", ""))

    def compact(self, resource: Resource | None = None) -> None:
        """Forget history: watches from older versions and continue tokens expire. Watches that are up to date go on."""
        self.store.compact(resource)
        self._lists.forget_chunks()

    # --------------------------------------------------------------- streams

    def streams(self, resource: Resource | None = None) -> list[Stream]:
        """Return the watches that are being answered."""
        with self.store.changed:
            return [stream for stream in self._routes.streams if resource in (None, stream.plan.resource)]

    def end_watches(self, resource: Resource | None = None) -> int:
        """End watches in the regular way. Return how many."""

        def end(writer: Writer) -> bool:
            writer.end()
            return True

        return self._command(resource, end)

    def break_watches(self, resource: Resource | None = None, *, reset: bool = False, part: bytes = b"") -> int:
        """Break the connections of watches; ``part`` is announced as a chunk, half of it is sent. Return how many."""

        def break_off(writer: Writer) -> bool:
            if part:
                writer.part_of_chunk(part)
            writer.close(reset=reset)
            return True

        return self._command(resource, break_off)

    def send_raw(self, data: bytes, resource: Resource | None = None) -> int:
        """Send bytes as they are within watches: garbage, half an object, an event of one's own. Return to how many."""

        def send(writer: Writer) -> bool:
            writer.chunk(data)
            return False

        return self._command(resource, send)

    def replay(self, count: int, resource: Resource) -> int:
        """Send the last ``count`` events of a resource once more in its watches. Return to how many."""
        streams = self.streams(resource)
        for stream in streams:
            stream.command(_sending(b"".join(stream.replay(count))))
        return len(streams)

    def expire_watches(self, resource: Resource | None = None) -> int:
        """Forget history and end watches with the 410 that arrives within a stream. Return how many."""
        self.compact(resource)
        error = ApiError(410, "The resourceVersion for the provided watch is too old.")

        def expire(writer: Writer) -> bool:
            writer.chunk(error_line(error))
            writer.end()
            return True

        return self._command(resource, expire)

    def break_connections(self) -> None:
        """Break all connections, whatever they are used for."""
        if self._http is not None:
            self._http.break_connections()

    # ----------------------------------------------------------- credentials

    def rotate_server_certificate(self, authority: Authority | None = None) -> Certificate:
        """Use a new server certificate for new connections, of another authority when given. Return it."""
        self.server_authority = authority or self.server_authority
        made = self.server_authority.server(sorted({"localhost", "127.0.0.1", "::1", self.address}))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(made.certificate + made.key)
            context.load_cert_chain(file.name)
        context.load_verify_locations(cadata=self.client_authority.pem.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        self._context = context
        if self._http is not None:
            self._http.context = context
        return made

    def rotate_token(self, new: str, *, user: str = "system:node-proxier") -> None:
        """Accept this bearer token and no other from now on."""
        self.access.tokens = {new: user}

    def revoke(self, certificate: Certificate) -> None:
        """Refuse a client certificate from now on, on open connections too: as kube-apiserver does with an expired one."""
        self.access.revoked.add(certificate.serial)

    def _command(self, resource: Resource | None, command: Command) -> int:
        streams = self.streams(resource)
        for stream in streams:
            stream.command(command)
        return len(streams)

    def _install_first_objects(self) -> None:
        for name in ("default", "kube-system"):
            self.apply({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})
        cidr = {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": list(SERVICE_RANGES)}}
        self.apply({"kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1", **cidr})


def _sending(data: bytes) -> Callable[[Writer], bool]:
    def send(writer: Writer) -> bool:
        writer.chunk(data)
        return False

    return send
