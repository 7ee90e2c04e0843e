"""A whole process that runs the daemon on the in-memory kernel, for the tests of signals: says ``sync`` on standard output."""

import logging
import sys

from kproxy_core.config.settings import Settings
from kproxy_core.model.addresses import parse_address
from kproxy_core.model.changes import Change
from kproxy_core.model.snapshot import NEEDED_BEFORE_FIRST_SYNC
from kproxy_core.plugin.backend import SyncReport
from kproxy_core.plugin.hookspecs import hookimpl
from kproxy_core.plugin.registry import new_plugin_manager
from kproxy_core.runtime.daemon import run_daemon
from kproxy_core.runtime.logs import configure_logging
from kproxy_core.runtime.options import DaemonOptions
from kproxy_core.testing.memory_backend import MemoryBackend
from kproxy_core.testing.sketch import NODE, listed, node, service, slice_of


class Once:
    """A source without a descriptor that lists a small cluster once."""

    name = "a list"
    kinds = NEEDED_BEFORE_FIRST_SYNC
    told = False

    def fileno(self) -> int:
        """Have it polled."""
        return -1

    def poll(self) -> tuple[Change, ...]:
        """List everything the first time."""
        told, self.told = self.told, True
        start = listed(node("192.0.2.1"), service("shop/web", "10.96.0.10"), slice_of("shop/web", "10.244.1.1"))
        return () if told else start

    def close(self) -> None:
        """Say so."""
        print("closed", flush=True)  # noqa: T201


class Speaker:
    """Tells the test of each sync."""

    @hookimpl
    def kproxy_sync_finished(self, report: SyncReport) -> None:
        """Say so."""
        print(f"sync {report.operations} {'full' if report.full else 'partial'}", flush=True)  # noqa: T201


def main() -> int:
    """Run until a signal comes."""
    configure_logging("json", logging.DEBUG)
    plugins = new_plugin_manager()
    plugins.register(Speaker())
    options = DaemonOptions(
        settings=Settings(node_name=NODE),
        backend=MemoryBackend(),
        sources=(Once(),),
        plugins=plugins,
        addresses=(parse_address("192.0.2.1"),),
        lock_name=None,
        clean_conntrack=False,
    )
    return run_daemon(options)


if __name__ == "__main__":
    sys.exit(main())
