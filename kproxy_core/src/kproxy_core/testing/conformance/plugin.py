"""The kit as pytest tests: a mode's whole conformance test is a class of its own that inherits them.

::

    from kproxy_core.testing.conformance.plugin import Conformance


    class TestMyMode(Conformance):
        mode = "my-mode"

Each scenario is a test for each protocol that it sends. A scenario runs once, for all of them. What a mode cannot do is skipped,
by the name of the capability that it does not claim.
"""

import contextlib
import shlex
import sys
import tempfile
from pathlib import Path
from typing import ClassVar

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.model.names import Protocol
from kproxy_core.plugin.backend import AnyBackend
from kproxy_core.testing.conformance.corpus import corpus, scenarios_in
from kproxy_core.testing.conformance.modes import installed_backend
from kproxy_core.testing.conformance.runner import Report, run
from kproxy_core.testing.conformance.scenario import Scenario, asks_of, flat
from kproxy_core.testing.conformance.subject import InProcess, Subject, traits_of
from kproxy_core.testing.conformance.world import serve_everywhere
from kproxy_core.testing.lab import Lab, can_build


def protocols_of(scenario: Scenario) -> tuple[Protocol, ...]:
    """The protocols of the packets that a scenario sends."""
    asks = [ask for step in flat(scenario.steps) for ask in asks_of(step)]
    used = {protocol for ask in asks for protocol in ask.protocols}
    return tuple(protocol for protocol in Protocol if protocol in used)


class Conformance:
    """The scenarios as tests of an installed mode. Inherit, and set ``mode``.

    ``own_scenarios`` is a folder with more of them. ``make_backend`` may be overridden where the mode is not installed.
    """

    mode: ClassVar[str]
    own_scenarios: ClassVar[Path | None] = None

    _cleanup: ClassVar[contextlib.ExitStack]
    _subject: ClassVar[Subject]
    _reports: ClassVar[dict[str, Report]]

    @classmethod
    def make_backend(cls, settings: Settings) -> AnyBackend:
        """Build the backend for settings, by default as it is installed."""
        return installed_backend(settings)

    @classmethod
    def scenarios(cls) -> tuple[Scenario, ...]:
        """The kit's scenarios and the mode's own."""
        return (*corpus(), *(scenarios_in(cls.own_scenarios) if cls.own_scenarios else ()))

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make a test for each scenario and protocol."""
        if {"scenario", "protocol"} <= set(metafunc.fixturenames):
            pairs = [(scenario, protocol) for scenario in self.scenarios() for protocol in protocols_of(scenario)]
            ids = [f"{scenario.name}-{protocol.name.lower()}" for scenario, protocol in pairs]
            metafunc.parametrize(("scenario", "protocol"), pairs, ids=ids)

    @classmethod
    def setup_class(cls) -> None:
        """Build a lab with the mode at work on its node, for all the tests of the class."""
        if not can_build():
            pytest.skip("no privilege to make network namespaces (run as root, or: python -m kproxy_core.testing.lab pytest)")
        cls._reports = {}
        cls._cleanup = contextlib.ExitStack()
        lab = cls._cleanup.enter_context(Lab())
        serve_everywhere(lab)
        cls._subject = cls.make_subject(lab)
        cls._cleanup.callback(cls._subject.close)

    @classmethod
    def make_subject(cls, lab: Lab) -> Subject:
        """Put the mode to work on the lab's node: in this process, unless overridden."""
        return InProcess(lab, cls.mode, cls.make_backend)

    @classmethod
    def teardown_class(cls) -> None:
        """Take all of it down."""
        cls._cleanup.close()

    @classmethod
    def report(cls, scenario: Scenario) -> Report:
        """Run a scenario, or tell what became of it when it was run."""
        if scenario.name not in cls._reports:
            cls._reports[scenario.name] = run(scenario, cls._subject)
        return cls._reports[scenario.name]

    def test_scenario(self, scenario: Scenario, protocol: Protocol) -> None:
        """What is written in the scenario holds for packets of this protocol."""
        report = self.report(scenario).of(protocol)
        if report.skipped:
            pytest.skip(report.skipped)
        if not report.ok:
            pytest.fail(report.text(), pytrace=False)


class DaemonConformance(Conformance):
    """The scenarios as tests of the whole daemon, a process of its own that watches an API server.

    ``command`` has ``{config}`` where the path of its configuration file is to be. ``only`` restricts it to scenarios by name.
    """

    command: ClassVar[str] = f"{shlex.quote(sys.executable)} -m kproxy_core.cli.main run --config {{config}}"
    only: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def scenarios(cls) -> tuple[Scenario, ...]:
        """Those that are chosen, or all."""
        return tuple(each for each in super().scenarios() if not cls.only or each.name in cls.only)

    @classmethod
    def make_subject(cls, lab: Lab) -> Subject:
        """Start the command on the lab's node, with what the mode's backend says that it can do."""
        from kproxy_core.testing.conformance.command import Command

        folder = Path(cls._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="kproxy-conformance-")))
        traits = traits_of(cls.make_backend(Settings(mode=cls.mode, node_name=lab.node.name)))
        return Command(lab, cls.command, cls.mode, traits, folder)
