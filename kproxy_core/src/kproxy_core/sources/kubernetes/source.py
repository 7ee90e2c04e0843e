"""KubernetesSource: Services, EndpointSlices, the own Node and ServiceCIDRs from an API server, a thread for each."""

import logging
import random
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from attrs import field, frozen

from kproxy_core.model.changes import Change
from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.kubernetes.access import ApiAccess
from kproxy_core.sources.kubernetes.connection import ApiConnection
from kproxy_core.sources.kubernetes.machine import WatchMachine
from kproxy_core.sources.kubernetes.pace import Pace
from kproxy_core.sources.kubernetes.reflector import Reflector
from kproxy_core.sources.kubernetes.resources import (
    ENDPOINT_SLICES,
    SERVICE_CIDRS,
    SERVICES,
    WatchedResource,
    own_node,
)

log = logging.getLogger("kproxy.kubernetes")

CHECK_PERIOD = 5.0
"""Seconds between two looks at certificates and kubeconfig."""

PATIENCE = 2.0
"""Seconds for which ``stop`` waits for threads. One that is just connecting ends a little later, and delivers nothing."""


class Inbox(Protocol):
    """Where changes go; the daemon's wakes its loop."""

    def fileno(self) -> int:
        """Readable while there is something to take."""

    def put(self, changes: Iterable[Change], /) -> None:
        """Take changes in, from any thread."""

    def take(self) -> tuple[Change, ...]:
        """Take everything out."""

    def close(self) -> None:
        """Take nothing more."""


@frozen(kw_only=True)
class Liveness:
    """How one watch is doing.

    ``silence`` is the time in seconds since the server's last sign of life, None before the first. ``problem`` is empty while all
    is well. ``relists`` counts how often the kind had to be listed anew, ``requests`` all requests for it.
    """

    listed: bool
    silence: float | None
    problem: str = ""
    version: str = ""
    relists: int = 0
    requests: int = 0


@frozen(kw_only=True)
class SourceOptions:
    """What may be set of a KubernetesSource. ``resources`` are watched beside the own Node. ``check_period`` is in seconds.

    ``streaming_lists`` false gives up what they save in memory here and at the server, for a start that is up to a second faster:
    kube-apiserver looks each second only which streams are due the bookmark that ends their list.
    """

    resources: tuple[WatchedResource, ...] = (SERVICES, ENDPOINT_SLICES, SERVICE_CIDRS)
    pace: Pace = field(factory=Pace)
    agent: str = "kproxy"
    check_period: float = CHECK_PERIOD
    streaming_lists: bool = True


class _Run:
    """What there is between a start and a stop."""

    def __init__(self, access: ApiAccess, resources: tuple[WatchedResource, ...], options: SourceOptions, inbox: Inbox) -> None:
        self.inbox = inbox
        self.stopped = threading.Event()
        self.connection = ApiConnection(access, agent=options.agent, connect_timeout=options.pace.connect)
        self.reflectors = [
            Reflector(
                WatchMachine(resource, options.pace, random.random, streaming=options.streaming_lists),
                self.connection,
                inbox.put,
                self.stopped,
            )
            for resource in resources
        ]
        self._period = options.check_period
        self._guard = threading.Thread(target=self._watch_credentials, name="kproxy-credentials", daemon=True)
        self.threads = [self._guard, *(reflector.thread for reflector in self.reflectors)]

    def _watch_credentials(self) -> None:
        while not self.stopped.wait(self._period):
            try:
                self.connection.check()
            except Exception:
                log.exception("the credentials cannot be checked; going on")

    def stop(self) -> None:
        self.stopped.set()
        self.connection.close()
        deadline = time.monotonic() + PATIENCE
        for thread in self.threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))


class KubernetesSource:
    """A source of changes for the daemon: give it an inbox with ``start``; ``stop`` and start again at will.

    ``node_name`` is the own Node's; empty watches no Node. Between ``start`` and ``close`` it is a ``Source`` as the daemon
    expects it: what the threads put into the inbox, ``poll`` takes out.
    """

    def __init__(self, access: ApiAccess, node_name: str, options: SourceOptions | None = None) -> None:
        self._access = access
        self._options = options or SourceOptions()
        node = (own_node(node_name),) if node_name else ()
        self._resources = (*self._options.resources, *node)
        self._run: _Run | None = None

    @property
    def name(self) -> str:
        """How logs call it."""
        return f"kubernetes:{self._access.server}"

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds it delivers."""
        return frozenset(resource.kind for resource in self._resources)

    def start(self, inbox: Inbox) -> None:
        """Begin to watch and to deliver. Does nothing if it has begun. Raises AccessError."""
        if self._run is None:
            self._run = _Run(self._access, self._resources, self._options, inbox)
            for thread in self._run.threads:
                thread.start()

    def stop(self) -> None:
        """End all requests and threads; nothing is delivered any more."""
        run, self._run = self._run, None
        if run is not None:
            run.stop()

    def liveness(self) -> Mapping[Kind, Liveness]:
        """Tell how each watch is doing; empty while stopped."""
        run, now = self._run, time.monotonic()
        if run is None:
            return {}
        return {reflector.machine.resource.kind: _liveness(reflector, now) for reflector in run.reflectors}

    @property
    def connection(self) -> ApiConnection | None:
        """The connection, for writing Events by the same credentials; None while stopped."""
        return self._run.connection if self._run else None

    def fileno(self) -> int:
        """Return the inbox's descriptor, -1 while stopped."""
        return self._run.inbox.fileno() if self._run else -1

    def poll(self) -> tuple[Change, ...]:
        """Return what has been delivered since the last call."""
        return self._run.inbox.take() if self._run else ()

    def close(self) -> None:
        """Stop, and close the inbox too."""
        inbox = self._run.inbox if self._run else None
        self.stop()
        if inbox is not None:
            inbox.close()


def _liveness(reflector: Reflector, now: float) -> Liveness:
    machine, life = reflector.machine, reflector.last_life
    return Liveness(
        listed=machine.listed,
        silence=None if life is None else max(0.0, now - life),
        problem=machine.problem,
        version=machine.position,
        relists=machine.relists,
        requests=reflector.requests,
    )
