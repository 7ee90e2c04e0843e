"""What every group of the kit's tests begins with: a mode, and a world in which it is at work."""

import contextlib
from typing import Any, ClassVar

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.plugin.backend import AnyBackend, Capability
from kproxy_core.testing.conformance.modes import installed_backend
from kproxy_core.testing.conformance.world import World
from kproxy_core.testing.lab import Lab, can_build


class ModeTests:
    """Tests of an installed mode. Inherit, and set ``mode``; override ``make_backend`` where it is not installed.

    A class has one lab; each test begins with an empty cluster and the usual settings.
    """

    mode: ClassVar[str]
    world: ClassVar[World[Any]]

    _cleanup: ClassVar[contextlib.ExitStack]

    @classmethod
    def make_backend(cls, settings: Settings) -> AnyBackend:
        """Build the backend for settings, by default as it is installed."""
        return installed_backend(settings)

    @classmethod
    def setup_class(cls) -> None:
        """Build a lab with the mode at work on its node."""
        if not can_build():
            pytest.skip("no privilege to make network namespaces (run as root, or: python -m kproxy_core.testing.lab pytest)")
        with contextlib.ExitStack() as cleanup:
            lab = cleanup.enter_context(Lab())
            cls.world = World(lab, cls.make_backend(Settings(mode=cls.mode, node_name=lab.node.name)))
            cleanup.callback(cls.world.close)
            cls._cleanup = cleanup.pop_all()

    @classmethod
    def teardown_class(cls) -> None:
        """Take it down."""
        cls._cleanup.close()

    def setup_method(self) -> None:
        """Empty the cluster."""
        self.world.reset()

    def need(self, capability: Capability) -> None:
        """Skip a test that makes no sense for a mode which does not claim this."""
        if capability not in self.world.node.backend.capabilities:
            pytest.skip(f"the mode lacks the capability {capability.name}: it does not claim that it {capability.value}")
