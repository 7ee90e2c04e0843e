"""What ten thousand reconnects leave behind: nothing. KPROXY_RECONNECTS sets how many are made."""

import gc
import os
import threading
from pathlib import Path

from attrs import evolve

from kproxy_core.testing.fake_api import FakeApi

from .objects import service
from .servers import FakeServer, access_to
from .watching import FAST, PATIENCE, Watching, watching

RECONNECTS = int(os.environ.get("KPROXY_RECONNECTS", "3000"))
AT_ONCE = evolve(FAST, first=0.0, relist_spread=0.0)
WARM_UP = 200
SPARE_OBJECTS = 300
"""Python objects that come and go between two counts; a leak of one for each reconnect is far more."""


def reconnect(api: FakeApi, watched: Watching, times: int) -> None:
    """Have the watches end as soon as they begin, so many times."""
    api.log.clear()
    api.faults.watch_seconds = 0.0
    api.end_watches()
    assert api.log.wait_for(lambda: api.log.count("watch") >= times, timeout=times * 0.1)
    api.faults.watch_seconds = None
    assert api.log.wait_for(lambda: len(api.streams()) == len(watched.source.kinds), PATIENCE)
    api.log.clear()


def descriptors() -> int:
    """Open files of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def objects() -> int:
    """Objects that the garbage collector knows."""
    gc.collect()
    return len(gc.get_objects())


def test_reconnects_leak_no_thread_no_socket_and_no_memory(tmp_path: Path) -> None:
    with FakeApi(tls=False) as api:
        api.apply(service("web", 80))
        with watching(access_to(FakeServer(api), tmp_path), AT_ONCE) as watched:
            watched.wait_listed()
            reconnect(api, watched, WARM_UP)
            threads, files, known = threading.active_count(), descriptors(), objects()
            reconnect(api, watched, RECONNECTS)
            assert threading.active_count() == threads
            assert descriptors() <= files
            assert objects() - known < SPARE_OBJECTS
            api.apply(service("web", 81))
            watched.wait_port("web", 81)
            assert len(watched.delivered.take()) == 5


def test_broken_connections_leak_nothing_either(tmp_path: Path) -> None:
    with FakeApi() as api, watching(access_to(FakeServer(api), tmp_path), AT_ONCE) as watched:
        watched.wait_listed()
        counts = []
        for port in range(80, 110):
            assert api.log.wait_for(lambda: len(api.streams()) == len(watched.source.kinds), PATIENCE)
            api.break_connections()
            api.apply(service("web", port))
            watched.wait_port("web", port)
            assert api.log.wait_for(lambda: len(api.streams()) == len(watched.source.kinds), PATIENCE)
            connection = watched.source.connection
            assert connection is not None
            counts.append((threading.active_count(), connection.open_sockets, descriptors()))
        assert max(counts[5:]) <= max(counts[:5])
