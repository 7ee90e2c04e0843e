"""Planted faults as tests that a mode's conformance test inherits: each must be found by a scenario of the kit."""

import contextlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import ClassVar

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.plugin.backend import AnyBackend
from kproxy_core.plugin.registry import load_backend, new_plugin_manager
from kproxy_core.testing.conformance.corpus import corpus, scenarios_in
from kproxy_core.testing.conformance.planted.catalogue import CATALOGUE, Fault
from kproxy_core.testing.conformance.planted.faulty import with_fault
from kproxy_core.testing.conformance.planted.in_code import CodeFault, planted
from kproxy_core.testing.conformance.planted.search import Search
from kproxy_core.testing.conformance.runner import run, unmet
from kproxy_core.testing.conformance.scenario import Scenario
from kproxy_core.testing.conformance.subject import InProcess
from kproxy_core.testing.conformance.world import serve_everywhere
from kproxy_core.testing.lab import Lab, can_build

TRIES = 4
"""Scenarios that are tried for a fault: paper does not know, for instance, which endpoint of several a packet will find."""
_SURE = 1.0
"""Seconds that an answer which should come is waited for here, since many will not."""


class PlantedFaults:
    """Set ``mode``; ``own_faults`` are some in the code of the mode itself, which name the scenarios that find them.

    ``own_scenarios`` and ``make_backend`` are as for :class:`~kproxy_core.testing.conformance.plugin.Conformance`.
    """

    mode: ClassVar[str]
    own_scenarios: ClassVar[Path | None] = None
    own_faults: ClassVar[tuple[CodeFault, ...]] = ()

    _cleanup: ClassVar[contextlib.ExitStack]
    _subject: ClassVar[InProcess]
    _search: ClassVar[Search]
    _planted: ClassVar[Fault | None] = None

    @classmethod
    def make_backend(cls, settings: Settings) -> AnyBackend:
        """Build the backend for settings, by default from its entry point."""
        return load_backend(cls.mode, settings, new_plugin_manager())

    @classmethod
    def scenarios(cls) -> tuple[Scenario, ...]:
        """The kit's scenarios and the mode's own."""
        return (*corpus(), *(scenarios_in(cls.own_scenarios) if cls.own_scenarios else ()))

    @classmethod
    def _make(cls, settings: Settings) -> AnyBackend:
        made = cls.make_backend(settings)
        return with_fault(made, cls._planted) if cls._planted is not None else made

    @classmethod
    def setup_class(cls) -> None:
        """Build a lab with the mode at work on its node."""
        if not can_build():
            pytest.skip("no privilege to make network namespaces (run as root, or: python -m kproxy_core.testing.lab pytest)")
        with contextlib.ExitStack() as cleanup:
            lab = cleanup.enter_context(Lab())
            serve_everywhere(lab)
            cls._subject = InProcess(lab, cls.mode, cls._make)
            cleanup.callback(cls._subject.close)
            everywhere = cls._subject.node.backend.node_ports_everywhere
            cls._search = Search((each for each in cls.scenarios() if not unmet(each, cls._subject)), everywhere=everywhere)
            cls._cleanup = cleanup.pop_all()

    @classmethod
    def teardown_class(cls) -> None:
        """Take it down."""
        cls._cleanup.close()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make a test for each fault."""
        if "fault" in metafunc.fixturenames:
            faults: tuple[Fault | CodeFault, ...] = (*CATALOGUE, *self.own_faults)
            metafunc.parametrize("fault", faults, ids=[each.what for each in faults])

    def test_a_fault_is_found(self, fault: Fault | CodeFault) -> None:
        """A scenario complains, and does not without the fault."""
        tried = []
        for scenario in islice(self.scenarios_that_show(fault), TRIES):
            tried.append(scenario.name)
            with self.having(fault):
                complaints = run(scenario, self._subject, _SURE).complaints
            if complaints:
                self.assert_sound(scenario)
                return
        if not tried:
            pytest.skip("no scenario for this mode is about it")
        pytest.fail(f"not found by {', '.join(tried)}")

    def test_faults_are_many(self) -> None:
        """Twenty at least, and no two alike."""
        names = [*(each.what for each in CATALOGUE), *(each.what for each in self.own_faults)]
        assert len(set(names)) == len(names) >= 20

    # -- how

    def scenarios_that_show(self, fault: Fault | CodeFault) -> Iterator[Scenario]:
        """What is to be tried, the most likely and cheapest first."""
        if isinstance(fault, Fault):
            return (candidate.scenario for candidate in self._search.candidates(fault))
        return (scenario for name in fault.shown_by for scenario in self.scenarios() if scenario.name == name)

    @classmethod
    @contextlib.contextmanager
    def having(cls, fault: Fault | CodeFault) -> Iterator[None]:
        """The mode, or every backend of it that is made meanwhile, has a fault."""
        if isinstance(fault, CodeFault):
            with planted(fault):
                yield
            return
        cls._planted = fault
        try:
            yield
        finally:
            cls._planted = None

    def assert_sound(self, scenario: Scenario) -> None:
        """Nothing is wrong without a fault."""
        report = run(scenario, self._subject)
        assert report.ok, report.text()
