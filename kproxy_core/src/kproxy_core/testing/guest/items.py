"""A pytest plugin: tests marked `ipvs` run in a guest where this machine's kernel has no IPVS, as if they ran here.

They are part of the one run: chosen by its options, counted, and reported one by one as they end. To use it, register
:class:`GuestItems` in a conftest's ``pytest_configure``.
"""

import json
import os
import queue
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kproxy_core.testing.guest.request import GuestOutcome, GuestRequest
from kproxy_core.testing.guest.runner import Guest, GuestError

MARKER = "ipvs"
_INSIDE = "KPROXY_INSIDE_A_GUEST"
_WORDS = 64 << 10


class RemoteRun:
    """A pytest in a guest, and what it has told so far."""

    def __init__(self, root: Path, nodes: Sequence[str], time_limit: float) -> None:
        """Start it. Raises :class:`GuestError`."""
        self._arguments = tempfile.NamedTemporaryFile("w", prefix="kproxy-nodes-")  # noqa: SIM115 - closed by close()
        self._arguments.write("".join(f"{node}\n" for node in nodes))
        self._arguments.flush()
        plugins = ["-p", "kproxy_core.testing.guest.inside", "-p", "no:cacheprovider"]
        request = GuestRequest(
            command=[sys.executable, "-m", "pytest", "--rootdir", str(root), *plugins, f"@{self._arguments.name}"],
            directory=root,
            environment={**os.environ, _INSIDE: "1"},
            time_limit=time_limit,
        )
        self._guest = Guest.start(request)
        self._pieces: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._rest = b""
        self._words = b""
        self._reports: dict[str, list[dict[str, object]]] = {}
        self._done: set[str] = set()
        self._outcome: GuestOutcome | None = None
        self._pump = threading.Thread(target=self._carry, name="guest", daemon=True)
        self._pump.start()

    def _carry(self) -> None:
        try:
            self._outcome = self._guest.pump(self._pieces.put, self._keep)
        finally:
            self._pieces.put(None)

    def _keep(self, piece: bytes) -> None:
        self._words = (self._words + piece)[-_WORDS:]

    def reports(self, node: str) -> list[dict[str, object]] | None:
        """What is told about an item, serialized, when it is done; None when the guest ends before that."""
        while node not in self._done:
            piece = self._pieces.get()
            if piece is None:
                self._pieces.put(None)
                return None
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
        return self._reports.pop(node, [])

    def _take(self, told: dict[str, object]) -> None:
        report = told.get("report")
        if isinstance(report, dict):
            self._reports.setdefault(str(report["nodeid"]), []).append(report)
        else:
            self._done.add(str(told["done"]))

    def last_words(self) -> str:
        """Why it ended, as far as can be told."""
        self._pump.join()
        outcome = self._outcome
        why = "it took too long" if outcome is not None and outcome.timed_out else f"exit status {outcome and outcome.status}"
        log = "" if outcome is None or outcome.status is not None else f"\nthe guest's kernel:\n{outcome.log}"
        return f"the guest ended without running this test: {why}\n{self._words.decode(errors='replace')}{log}"

    def close(self) -> None:
        """End the guest if it runs."""
        self._guest.kill()
        self._pump.join()
        self._guest.close()
        self._arguments.close()


class GuestItems:
    """The plugin."""

    def __init__(self, here: Callable[[], bool], time_limit: float = 1800.0) -> None:
        """`here` says whether this machine's own kernel can run such tests; `time_limit` is for all of them, in seconds."""
        self._here = here
        self._limit = time_limit
        self._run: RemoteRun | None = None
        self._reason: str | None = None

    def pytest_configure(self, config: pytest.Config) -> None:
        """Make the marker known."""
        config.addinivalue_line("markers", f"{MARKER}: needs IPVS: runs here if the kernel has it, else in user-mode Linux")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Have a marked item run in the guest."""
        if item.get_closest_marker(MARKER) is None or _INSIDE in os.environ or self._here():
            return None
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item):
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        # What earlier items set up, and this one shares with them, would otherwise be left for an item that does not.
        item.session._setupstate.teardown_exact(nextitem)  # noqa: SLF001 - the runner has no other name for it
        return True

    def _reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        run = self._started(item)
        if run is None:
            where = (str(item.path), (item.location[1] or 0) + 1, f"Skipped: {self._reason}")
            return [_report(item, "skipped", where)]
        told = run.reports(item.nodeid)
        if told is None:
            return [_report(item, "failed", run.last_words())]
        return [_read(item.config, data) for data in told]

    def _started(self, item: pytest.Item) -> RemoteRun | None:
        if self._run is None and self._reason is None:
            nodes = [other.nodeid for other in item.session.items if other.get_closest_marker(MARKER) is not None]
            try:
                self._run = RemoteRun(item.config.rootpath, nodes, self._limit)
            except GuestError as error:
                self._reason = f"no IPVS in this kernel, and {error}"
        return self._run

    def pytest_unconfigure(self) -> None:
        """End the guest."""
        if self._run is not None:
            self._run.close()
            self._run = None


def _read(config: pytest.Config, data: dict[str, object]) -> pytest.TestReport:
    """A report from its serialized form, in which JSON made lists of tuples."""
    made = {
        name: tuple(value) if isinstance(value, list) and name in ("location", "longrepr") else value
        for name, value in data.items()
    }
    report: pytest.TestReport = config.hook.pytest_report_from_serializable(config=config, data=made)
    return report


def _report(item: pytest.Item, outcome: str, why: object) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome=outcome,  # type: ignore[arg-type]
        longrepr=why,  # type: ignore[arg-type]
        when="setup",
    )
