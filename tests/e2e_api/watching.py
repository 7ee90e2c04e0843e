"""A KubernetesSource that runs, and what it has delivered so far."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from attrs import evolve, frozen

from kproxy_core.model.changes import Change, Replaced, Upserted, WatchedObject
from kproxy_core.model.names import ObjectName
from kproxy_core.model.objects import EndpointSlice, Service
from kproxy_core.model.snapshot import Kind
from kproxy_core.sources.kubernetes import ApiAccess, KubernetesSource, Pace, SourceOptions

PATIENCE = 60.0
"""Seconds to wait for what is certain to come, on a machine that may be busy."""

FAST = Pace(first=0.01, longest=0.1, steady=0.2, relist_spread=0.02, connect=5.0, absent=0.2)
"""Waits so short that failures by the dozen take no time; signs of life are expected as usual."""

HASTY = evolve(FAST, silence=0.5, stream_silence=0.5, list_silence=0.5)
"""Gives up on a silent server after half a second."""


class Delivered:
    """An inbox that keeps everything: the changes in order, and the objects that they lead to."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.objects: dict[Kind, dict[ObjectName, WatchedObject]] = {}
        self._changed = threading.Condition()

    def put(self, changes: Iterable[Change], /) -> None:
        """Apply changes."""
        with self._changed:
            for change in changes:
                self.changes.append(change)
                self._apply(change)
            self._changed.notify_all()

    def fileno(self) -> int:
        """There is nothing to wait on."""
        return -1

    def take(self) -> tuple[Change, ...]:
        """Everything so far."""
        with self._changed:
            return tuple(self.changes)

    def close(self) -> None:
        """Nothing to close."""

    def wait(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, and fail when it does not."""
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while not condition():
                assert time.monotonic() < deadline, f"not within {PATIENCE} s; delivered so far: {self.changes[-5:]}"
                self._changed.wait(0.02)

    def service(self, name: str, namespace: str = "default") -> Service | None:
        """A Service as it stands."""
        found = self.objects.get(Kind.SERVICE, {}).get(ObjectName(namespace, name))
        assert found is None or isinstance(found, Service)
        return found

    def addresses(self, owner: str, namespace: str = "default") -> set[str]:
        """The endpoints of a Service as they stand."""
        slices = self.objects.get(Kind.ENDPOINT_SLICE, {}).values()
        mine = (each for each in slices if isinstance(each, EndpointSlice) and each.service == ObjectName(namespace, owner))
        return {str(endpoint.address) for each in mine for endpoint in each.endpoints}

    def lists(self, kind: Kind) -> list[Replaced]:
        """The complete lists of a kind, in order."""
        with self._changed:
            return [change for change in self.changes if isinstance(change, Replaced) and change.kind is kind]

    def _apply(self, change: Change) -> None:
        if isinstance(change, Replaced):
            self.objects[change.kind] = {_name(each): each for each in change.objects}
        elif isinstance(change, Upserted):
            self.objects.setdefault(_kind(change.object), {})[_name(change.object)] = change.object
        else:
            self.objects.setdefault(change.kind, {}).pop(change.name, None)


def _name(each: WatchedObject) -> ObjectName:
    return each.name if isinstance(each.name, ObjectName) else ObjectName("", each.name)


def _kind(each: WatchedObject) -> Kind:
    return Kind(type(each).__name__)


@frozen(kw_only=True)
class Watching:
    """A source that runs."""

    source: KubernetesSource
    delivered: Delivered

    def wait_listed(self) -> None:
        """Wait until every kind has been listed."""
        self.delivered.wait(lambda: set(self.delivered.objects) >= self.source.kinds)

    def wait_port(self, name: str, port: int) -> None:
        """Wait until a Service of one port has this one."""

        def seen() -> bool:
            found = self.delivered.service(name)
            return found is not None and [each.port for each in found.ports] == [port]

        self.delivered.wait(seen)


@contextlib.contextmanager
def watching(access: ApiAccess, pace: Pace = FAST, *, node: str = "node", check_period: float = 5.0) -> Iterator[Watching]:
    """Run a source until the block ends, and see that it leaves no thread behind."""
    source = KubernetesSource(access, node, SourceOptions(pace=pace, agent="kproxy/test", check_period=check_period))
    delivered = Delivered()
    before = set(threading.enumerate())
    source.start(delivered)
    started = [thread for thread in threading.enumerate() if thread not in before and thread.name.startswith("kproxy-")]
    try:
        yield Watching(source=source, delivered=delivered)
    finally:
        source.stop()
        for thread in started:
            thread.join(PATIENCE)
        assert not [thread.name for thread in started if thread.is_alive()]
