"""The conformance of the nftables mode beneath another one, which claims what comes from inside and leaves the rest."""

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.model.state import FrontendRule, Origin, ServicePort
from kproxy_core.plugin.backend import AnyBackend, Companion
from kproxy_core.runtime.stack import StackedBackend
from kproxy_core.testing.conformance.laws import CrashLaws, FaultLaws
from kproxy_core.testing.conformance.plugin import Conformance
from kproxy_core.testing.memory_backend import MemoryBackend
from kproxy_nftables.backend import NftablesBackend

pytestmark = pytest.mark.kernel

# No real packet meets the mode above, so that the companion has to answer all of them, by the rules that are left to it.
MODE = "nftables"


def from_inside(_port: ServicePort, _rule: FrontendRule, origin: Origin) -> bool:
    return origin is not Origin.OUTSIDE


def stack() -> StackedBackend:
    beneath = Companion(mode=MODE, purpose="serves clients from outside")
    return StackedBackend([MemoryBackend(name="upper", companions=(beneath,), claimed=from_inside), NftablesBackend()])


class TestScenarios(Conformance):
    mode = MODE

    @classmethod
    def make_backend(cls, settings: Settings) -> AnyBackend:
        del settings
        return stack()


class TestLaws(FaultLaws, CrashLaws):
    mode = MODE

    @classmethod
    def make_backend(cls, settings: Settings) -> AnyBackend:
        del settings
        return stack()
