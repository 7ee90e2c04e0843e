"""The source as the daemon drives it: a descriptor to wait on, changes to poll."""

import select
import time
from collections.abc import Callable

from kproxy_core.model.changes import Change, Replaced
from kproxy_core.model.snapshot import Kind
from kproxy_core.plugin.source import Source
from kproxy_core.runtime.sources import Inbox
from kproxy_core.sources.kubernetes import ApiAccess, KubernetesSource
from kproxy_core.testing.fake_api import FakeApi

from .objects import service
from .watching import PATIENCE


def polled(source: Source, enough: Callable[[list[Change]], bool]) -> list[Change]:
    """Poll whenever the descriptor says so, until there is enough."""
    found: list[Change] = []
    deadline = time.monotonic() + PATIENCE
    while not enough(found):
        assert time.monotonic() < deadline, found
        if select.select([source.fileno()], [], [], 1.0)[0]:
            found.extend(source.poll())
    return found


def test_the_daemons_inbox_wakes_it_for_each_change(api: FakeApi, access: ApiAccess) -> None:
    api.apply(service("web", 80))
    source = KubernetesSource(access, "node")
    assert (source.fileno(), source.poll()) == (-1, ())
    source.start(Inbox())
    lists = polled(source, lambda found: {change.kind for change in found if isinstance(change, Replaced)} == source.kinds)
    assert source.kinds == frozenset(Kind)
    assert len(lists) == 4
    assert not select.select([source.fileno()], [], [], 0)[0]
    api.apply(service("web", 81))
    assert len(polled(source, bool)) == 1
    assert source.name == f"kubernetes:{api.url}"
    source.close()
    source.close()
    assert (source.fileno(), source.poll()) == (-1, ())
