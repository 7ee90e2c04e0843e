"""The conformance of the iptables mode, in both variants of iptables, and whether the kit finds faults in it."""

import pytest

from kproxy_core.kernel.iptables import Variant
from kproxy_core.testing.conformance.planted.tests import PlantedFaults
from kproxy_core.testing.conformance.plugin import Conformance

from ..iptables.variants import OneVariant

pytestmark = pytest.mark.kernel


class TestIptablesNft(OneVariant, Conformance):
    variant = Variant.NFT


class TestIptablesLegacy(OneVariant, Conformance):
    variant = Variant.LEGACY


class TestPlantedFaults(OneVariant, PlantedFaults):
    variant = Variant.NFT
