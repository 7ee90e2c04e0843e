"""The conformance of the iptables mode, in both variants of iptables."""

from typing import ClassVar

import pytest

from kproxy_core.config.settings import Settings
from kproxy_core.kernel.iptables import Variant, find_program
from kproxy_core.model.addresses import Family
from kproxy_core.plugin.backend import AnyBackend
from kproxy_core.testing.conformance.plugin import Conformance
from kproxy_iptables.backend import IptablesBackend
from kproxy_iptables.plugin import features_of

pytestmark = pytest.mark.kernel


class OneVariant(Conformance):
    mode = "iptables"
    variant: ClassVar[Variant]

    @classmethod
    def setup_class(cls) -> None:
        if any(find_program(cls.variant, family, "restore") is None for family in Family):
            pytest.skip(f"iptables ({cls.variant.value}) is not installed")
        super().setup_class()

    @classmethod
    def make_backend(cls, settings: Settings) -> AnyBackend:
        return IptablesBackend(features_of(settings), cls.variant.value)


class TestIptablesNft(OneVariant):
    variant = Variant.NFT


class TestIptablesLegacy(OneVariant):
    variant = Variant.LEGACY
