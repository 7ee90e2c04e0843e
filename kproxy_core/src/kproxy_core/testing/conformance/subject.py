"""What can be put under test: a proxy on a lab's node; and a mode's backend as one, in this process."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from kproxy_core.config.settings import Settings
from kproxy_core.model.changes import WatchedObject
from kproxy_core.plugin.backend import AnyBackend, SyncReport
from kproxy_core.plugin.errors import ApplyError
from kproxy_core.sources.mixed import decode_document
from kproxy_core.testing.conformance.configuration import settings_of
from kproxy_core.testing.conformance.notation import Object, key_of
from kproxy_core.testing.conformance.reader import KPROXY_CORE, NODE_PORTS_EVERYWHERE
from kproxy_core.testing.conformance.world import forget_connections
from kproxy_core.testing.lab import Lab
from kproxy_core.testing.node import NodeUnderTest

Key = tuple[str, str, str]
"""Kind, namespace and name of an object."""

NOTICED_WITHIN = 5.0
"""Seconds in which a mode that watches its rules notices that they are gone; after that it is asked to check, as by its clock."""


class SubjectError(Exception):
    """The proxy under test did not do what it was told: its sync failed, or it ended."""


class Subject(Protocol):
    """A proxy at work on the node of a lab. Whatever tells it something returns once the kernel should have it.

    ``traits`` are the names of its capabilities. ``patience`` is how many seconds an expectation may take to come true, 0 when it
    must hold at once.
    """

    lab: Lab
    mode: str
    traits: frozenset[str]
    patience: float

    def begin(self, document: Mapping[str, Any], objects: Iterable[Object]) -> None:
        """Forget everything; have just these objects, and run with this configuration."""
        ...

    def configure(self, document: Mapping[str, Any]) -> None:
        """Start again with this configuration; the cluster stays."""
        ...

    def apply(self, objects: Iterable[Object]) -> None:
        """Create or replace objects."""
        ...

    def delete(self, keys: Iterable[Key]) -> None:
        """Delete objects; those that are not there do not matter."""
        ...

    def see_addresses(self) -> None:
        """The addresses of the node have changed."""
        ...

    def flush(self) -> None:
        """Somebody else removes all that is the proxy's from the kernel, or tries to; return when it should be there again."""
        ...

    def restart(self, what: str) -> None:
        """End it (``daemon``: by kill -9, ``backend``: in good order) and start it again."""
        ...

    def cut(self) -> None:
        """From now on it is not told anything."""
        ...

    def join(self) -> None:
        """It is told again, of all that has changed meanwhile first."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class InProcess:
    """A mode's backend driven by the real engine in this process, without a daemon, an API server or a clock around it.

    ``make`` builds the backend for settings, as the mode's plugin does.
    """

    patience = 0.0

    def __init__(self, lab: Lab, mode: str, make: Callable[[Settings], AnyBackend]) -> None:
        self.lab = lab
        self.mode = mode
        self._make = make
        settings = Settings(mode=mode, node_name=lab.node.name)
        backend = make(settings)
        self.traits = traits_of(backend)
        self.node: NodeUnderTest[AnyBackend] = NodeUnderTest(lab.node, backend, settings)
        self._told: dict[Key, tuple[WatchedObject, ...]] = {}
        self._is_cut = False

    def begin(self, document: Mapping[str, Any], objects: Iterable[Object]) -> None:
        """See :class:`Subject`."""
        self._is_cut = False
        self.node.dataplane.cleanup()
        self._told = {key_of(obj): _decoded(obj) for obj in objects}
        settings = settings_of(document)
        self.node.backend = self._make(settings)
        self._ok(self.node.restart(settings, self._cluster()))
        forget_connections(self.lab)

    def configure(self, document: Mapping[str, Any]) -> None:
        """See :class:`Subject`."""
        settings = settings_of(document)
        self.node.backend = self._make(settings)
        self._ok(self.node.restart(settings, self._cluster()))

    def apply(self, objects: Iterable[Object]) -> None:
        """See :class:`Subject`."""
        changed: list[WatchedObject] = []
        gone: list[WatchedObject] = []
        for obj in objects:
            before = self._told.get(key_of(obj), ())
            now = self._told[key_of(obj)] = _decoded(obj)
            changed += now
            gone += [each for each in before if not any(_same(each, other) for other in now)]
        if not self._is_cut:
            self._ok(self.node.put(*changed) if changed else None)
            self._ok(self.node.remove(*gone) if gone else None)

    def delete(self, keys: Iterable[Key]) -> None:
        """See :class:`Subject`."""
        gone = [each for key in keys for each in self._told.pop(key, ())]
        if gone and not self._is_cut:
            self._ok(self.node.remove(*gone))

    def see_addresses(self) -> None:
        """See :class:`Subject`."""
        self._ok(self.node.see_addresses())

    def flush(self) -> None:
        """Remove all by another socket of the mode's own kind, and let the mode notice, or else check.

        A mode whose rules nobody else can remove has nothing to notice.
        """
        with self.lab.node.enter(), self.node.backend.open() as other, contextlib.suppress(ApplyError):
            other.cleanup()
        self._ok(self.node.notice(NOTICED_WITHIN) or self.node.check())

    def restart(self, what: str) -> None:
        """See :class:`Subject`. To the kernel both ways to end are alike here; the backend is one more made anew."""
        if what == "backend":
            self.node.backend = self._make(self.node.settings)
        if self._is_cut:
            self.node.restart_untold()
        else:
            self._ok(self.node.restart())

    def cut(self) -> None:
        """See :class:`Subject`."""
        self._is_cut = True

    def join(self) -> None:
        """See :class:`Subject`."""
        self._is_cut = False
        self._ok(self.node.set(*self._cluster()))

    def close(self) -> None:
        """See :class:`Subject`."""
        self.node.close()

    def _cluster(self) -> list[WatchedObject]:
        return [each for objects in self._told.values() for each in objects]

    def _ok(self, report: SyncReport | None) -> None:
        """Have conntrack cleaned as after each sync. Raises :class:`SubjectError` when the sync failed, or did not do it all."""
        if report is not None and not report.ok:
            refused = "; ".join(f"{key}: {why}" for key, why in report.failed.items())
            raise SubjectError(f"the sync failed: {report.error or refused}")
        if self.node.snapshot.synced and (difference := self.node.difference()):
            raise SubjectError(f"after a sync the kernel does not hold what it should: {difference}")
        self.node.clean_conntrack()


def traits_of(backend: AnyBackend) -> frozenset[str]:
    """What a backend says of itself, by name, with the core around it."""
    everywhere = {NODE_PORTS_EVERYWHERE} if backend.node_ports_everywhere else set()
    return frozenset({each.name for each in backend.capabilities} | everywhere | {KPROXY_CORE})


def _decoded(obj: Object) -> tuple[WatchedObject, ...]:
    return tuple(each for decoded in decode_document(obj) for each in decoded.objects)


def _same(one: WatchedObject, other: WatchedObject) -> bool:
    return type(one) is type(other) and one.name == other.name
